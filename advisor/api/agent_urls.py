"""`/api/agent/v1/`: what agents call. Versioned by the X-Agent-Wire header, see docs/agents.md."""

from django.urls import path

from advisor.api.views import agent_artifacts, agent_claims, agent_register, agent_results

urlpatterns = [
    path("register", agent_register.RegisterView.as_view(), name="agent-register"),
    path("claim", agent_claims.ClaimView.as_view(), name="agent-claim"),
    path("renew", agent_claims.RenewView.as_view(), name="agent-renew"),
    path("release", agent_claims.ReleaseView.as_view(), name="agent-release"),
    path("events", agent_results.EventsView.as_view(), name="agent-events"),
    path("telemetry", agent_results.TelemetryView.as_view(), name="agent-telemetry"),
    path("result", agent_results.ResultView.as_view(), name="agent-result"),
    path(
        "artifacts/<uuid:trial_id>/<int:epoch>/<str:sha256>",
        agent_artifacts.ArtifactView.as_view(),
        name="agent-artifact",
    ),
]
