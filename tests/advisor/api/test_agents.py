from __future__ import annotations

from datetime import timedelta

from django.test import Client
from django.utils import timezone

from advisor.accounts.models import AuditEvent, Org, User
from advisor.fleet.models import Agent, AgentState
from tests import factories
from tests.conftest import ApiClient


def test_agents_say_what_they_are_and_keep_their_credential(reader: Client, agent: Agent) -> None:
    response = reader.get("/api/v1/agents")
    (answer,) = response.json()["results"]
    assert answer["slug"] == "bench-1"
    assert answer["reachable"] is True
    assert answer["host"]["cpu"] == "Intel Xeon"
    assert answer["engines"] == ["transformers", "simulated"]
    assert agent.credential_prefix not in response.content.decode()
    assert agent.credential_hash not in response.content.decode()


def test_a_silent_agent_is_not_reachable(reader: Client, org: Org) -> None:
    factories.create_agent(org, "old", last_seen_at=timezone.now() - timedelta(minutes=5))
    assert reader.get("/api/v1/agents/old").json()["reachable"] is False


def test_an_owner_drains_and_resumes(api: Client, agent: Agent) -> None:
    assert api.post("/api/v1/agents/bench-1/drain").json()["state"] == "draining"
    agent.refresh_from_db()
    assert agent.state == AgentState.DRAINING
    assert api.post("/api/v1/agents/bench-1/resume").json()["state"] == "active"
    actions = AuditEvent.objects.order_by("pk").values_list("action", flat=True)
    assert list(actions) == ["agent.drain", "agent.resume"]


def test_a_member_may_not_drain(org: Org, dora: User, agent: Agent, with_token: ApiClient) -> None:
    response = with_token(dora).post("/api/v1/agents/bench-1/drain")
    assert response.status_code == 403
    assert "owner" in response.json()["message"]
    agent.refresh_from_db()
    assert agent.state == AgentState.ACTIVE


def test_another_organisations_agent_is_404(stranger: Client, agent: Agent) -> None:
    assert stranger.get("/api/v1/agents").json()["results"] == []
    assert stranger.get("/api/v1/agents/bench-1").status_code == 404
    assert stranger.post("/api/v1/agents/bench-1/drain").status_code == 404
    agent.refresh_from_db()
    assert agent.state == AgentState.ACTIVE


def test_models_are_those_of_the_organisations_agents(
    reader: Client, stranger: Client, agent: Agent
) -> None:
    usable, refused = reader.get("/api/v1/models").json()["results"]
    assert usable["agent"] == "bench-1"
    assert usable["architecture"] == "LlamaForCausalLM"
    assert usable["weight_bytes"] == 269_060_552
    assert usable["problem"] is None
    assert refused["config"] is None
    assert "pickled" in refused["problem"]
    assert stranger.get("/api/v1/models").json()["results"] == []
