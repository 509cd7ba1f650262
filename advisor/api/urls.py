"""`/api/`: the user's API under `v1/`, the agents' under `agent/v1/`, schema and docs.

Every route has an entry in tests/advisor/test_tenancy.py.
"""

from django.urls import include, path, re_path
from django.views.generic import RedirectView
from drf_spectacular.views import SpectacularAPIView

from advisor.api.errors import no_such_endpoint
from advisor.api.views import (
    agents,
    comparisons,
    diagnoses,
    docs,
    estimates,
    exports,
    gates,
    gpus,
    imports,
    models,
    reports,
    rules,
    shares,
    studies,
    tokens,
    traces,
    trials,
    what_if,
)

v1 = [
    path("studies", studies.StudyList.as_view(), name="api-studies"),
    path("studies/<uuid:study_id>", studies.StudyDetail.as_view(), name="api-study"),
    path("studies/<uuid:study_id>/cancel", studies.StudyCancel.as_view(), name="api-study-cancel"),
    path("studies/<uuid:study_id>/trials", trials.StudyTrials.as_view(), name="api-study-trials"),
    path(
        "studies/<uuid:study_id>/findings",
        studies.StudyFindings.as_view(),
        name="api-study-findings",
    ),
    path("studies/<uuid:study_id>/gate", gates.StudyGate.as_view(), name="api-study-gate"),
    path("studies/<uuid:study_id>/report", reports.StudyReport.as_view(), name="api-study-report"),
    path(
        "studies/<uuid:study_id>/diagnoses",
        diagnoses.StudyDiagnoses.as_view(),
        name="api-study-diagnoses",
    ),
    path("studies/<uuid:study_id>/export", exports.StudyExport.as_view(), name="api-study-export"),
    path("studies/<uuid:study_id>/shares", shares.StudyShares.as_view(), name="api-study-shares"),
    path(
        "studies/<uuid:study_id>/shares/<uuid:share_id>",
        shares.StudyShareDetail.as_view(),
        name="api-study-share",
    ),
    path("studies/<uuid:study_id>/what-if", what_if.StudyWhatIf.as_view(), name="api-what-if"),
    path("trials/<uuid:trial_id>", trials.TrialDetail.as_view(), name="api-trial"),
    path("trials/<uuid:trial_id>/cancel", trials.TrialCancel.as_view(), name="api-trial-cancel"),
    path("compare", comparisons.TrialComparisonView.as_view(), name="api-compare"),
    path("traces", traces.TraceList.as_view(), name="api-traces"),
    path("traces/<uuid:trace_id>", traces.TraceDetail.as_view(), name="api-trace"),
    path("traces/<uuid:trace_id>/compare", traces.TraceCompare.as_view(), name="api-trace-compare"),
    path("traces/<uuid:trace_id>/file", traces.TraceFile.as_view(), name="api-trace-file"),
    path("agents", agents.AgentList.as_view(), name="api-agents"),
    path("agents/<slug:slug>", agents.AgentDetail.as_view(), name="api-agent"),
    path("agents/<slug:slug>/drain", agents.AgentDrain.as_view(), name="api-agent-drain"),
    path("agents/<slug:slug>/resume", agents.AgentResume.as_view(), name="api-agent-resume"),
    path("models", models.ModelList.as_view(), name="api-models"),
    path("estimates", estimates.EstimateCreate.as_view(), name="api-estimates"),
    path("imports", imports.ImportCreate.as_view(), name="api-imports"),
    path("gpus", gpus.GpuList.as_view(), name="api-gpus"),
    path("gpus/<str:name>/price", gpus.GpuPriceDetail.as_view(), name="api-gpu-price"),
    path("rules", rules.RuleList.as_view(), name="api-rules"),
    path("tokens", tokens.TokenList.as_view(), name="api-tokens"),
    path("tokens/<uuid:token_id>", tokens.TokenDetail.as_view(), name="api-token"),
]

urlpatterns = [
    path("v1/", include(v1)),
    path("agent/v1/", include("advisor.api.agent_urls")),
    path("schema/", SpectacularAPIView.as_view(), name="schema"),
    path("schema", RedirectView.as_view(pattern_name="schema"), name="schema-no-slash"),
    path("docs/", docs.ApiDocs.as_view(), name="docs"),
    path("docs", RedirectView.as_view(pattern_name="docs"), name="docs-no-slash"),
    # Last: what is left is answered as JSON, not with the HTML page of the dashboard.
    re_path(r"^(?P<rest>.*)$", no_such_endpoint, name="api-unknown"),
]
