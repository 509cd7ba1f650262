"""Lists ask a bounded number of queries, however many rows there are."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from advisor.accounts.models import Org, Role, User
from advisor.fleet.models import Agent
from advisor.fleet.services import telemetry_record
from advisor.pages.present.studies import study_rows
from advisor.studies.listing import CANCELLED, DECIDE, MET, MISSED, RUNNING, WAITING, need_of
from advisor.studies.models import Study
from advisor.studies.states import StudyState
from gpuagent.wire import EngineSettings, HostSample
from tests import builders, factories

pytestmark = pytest.mark.django_db
MOST = 12
OPEN = builders.make_trial(state="queued")


def add_studies(org: Org, agent: Agent, n: int) -> None:
    for index in range(n):
        done = index % 3 != 0
        study = factories.create_study(
            org,
            agent=agent,
            spec=builders.make_study_spec(agent=agent.slug, name=f"Study {index:03d}"),
            state="finished" if done else "running",
            verdict_json={"status": "missed" if index % 3 == 1 else "met", "targets": []}
            if done
            else None,
        )
        factories.create_trial(study, OPEN)


def queries(client: Client, address: str, asked: list[int]) -> int:
    before = len(asked)
    assert client.get(address).status_code == 200
    return len(asked) - before


@pytest.fixture
def asked() -> Iterator[list[int]]:
    """Grows by one with every query."""
    seen: list[int] = []

    def note(execute: Any, sql: Any, params: Any, many: Any, context: Any) -> Any:
        seen.append(1)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        yield seen


def test_query_counts_do_not_grow_with_rows(
    browser: Client, org: Org, agent: Agent, asked: list[int]
) -> None:
    addresses = ("/studies/", "/studies/?q=study&status=attention", "/agents/", "/traces/",
                 f"/agents/{agent.slug}/", "/organisation/", "/account/", "/compare/")  # fmt: skip
    add_studies(org, agent, 3)
    few = {address: queries(browser, address, asked) for address in addresses}
    assert max(few.values()) <= MOST
    add_studies(org, agent, 57)
    for n in range(4):
        other = factories.create_agent(org, f"more-{n}")
        telemetry_record(agent=other, samples=[HostSample(at_s=time.time())])
    for address in addresses:
        assert queries(browser, address, asked) <= few[address] + 1, address


def test_filters_search_and_pages_are_in_the_address(
    browser: Client, org: Org, agent: Agent
) -> None:
    add_studies(org, agent, 60)
    first = browser.get("/studies/")
    assert len(first.context["rows"]) == 50
    assert first.context["counts"] == {"attention": 20, "running": 20, "met": 20}
    kinds = [row.kind for row in first.context["rows"]]
    assert kinds == ["bad"] * 20 + ["run"] * 20 + ["good"] * 10
    assert len(browser.get("/studies/?page=2").context["rows"]) == 10
    assert len(browser.get("/studies/?page=99").context["rows"]) == 10
    assert len(browser.get("/studies/?page=x").context["rows"]) == 50
    found = browser.get("/studies/?q=STUDY+017 bench").context["rows"]
    assert [row.study.name for row in found] == ["Study 017"]
    assert not browser.get("/studies/?status=nonsense").context["rows"]
    assert "page=2" in browser.get("/studies/?preset=chat").content.decode()


def test_running_on_a_silent_agent_needs_attention(browser: Client, org: Org, agent: Agent) -> None:
    add_studies(org, agent, 1)
    Agent.objects.filter(pk=agent.pk).update(last_seen_at=timezone.now() - timedelta(hours=1))
    page = browser.get("/studies/?status=attention")
    assert [row.word for row in page.context["rows"]] == ["Waiting for bench-1"]
    assert page.context["counts"] == {"attention": 1, "running": 0, "met": 0}
    assert not browser.get("/studies/?status=running").context["rows"]


@pytest.mark.parametrize(
    ("state", "status", "need"),
    [
        ("finished", "met", MET),
        ("finished", "missed", MISSED),
        ("finished", "no_verdict", MISSED),
        ("finished", "not_proven", DECIDE),
        ("finished", None, MISSED),
        ("running", "met", RUNNING),
        ("waiting", None, WAITING),
        ("cancelled", "missed", CANCELLED),
    ],
)
def test_need_follows_state_and_verdict(state: str, status: str | None, need: int) -> None:
    assert need_of(state, {"status": status} if status else None) == need


def test_agent_page_shows_lease_trials_and_models(
    browser: Client, viewer: Client, org: Org, agent: Agent
) -> None:
    study = factories.create_study(org, agent=agent)
    running = factories.create_trial(study, builders.make_trial(state="running"), agent=agent)
    Study.objects.filter(pk=study.pk).update(name="<b>bold</b>")
    running.started_at = timezone.now()
    running.save()
    html = browser.get(f"/agents/{agent.slug}/").content.decode()
    assert "claim 1" in html
    assert "<b>bold</b>" not in html
    assert "The folder holds pickled weights only." in html
    assert "Remove for good" in html
    assert "Remove for good" not in viewer.get(f"/agents/{agent.slug}/").content.decode()


def test_account_changes_name_and_organisation(browser: Client, alice: User, charlie: User) -> None:
    other = factories.create_org("Second team", owner=charlie)
    factories.create_member(other, alice, Role.VIEWER)
    assert browser.post("/account/", {"name": "Alice <b>"}).status_code == 302
    html = browser.get("/account/").content.decode()
    assert "Alice &lt;b&gt;" in html
    assert browser.post("/account/", {"name": "x" * 121}).status_code == 400
    browser.post("/account/", {"org": str(other.pk)})
    assert browser.get("/studies/").context["org"] == other
    browser.post("/account/", {"org": "nonsense"})
    assert browser.get("/account/").status_code == 200


@pytest.mark.parametrize(
    ("engine", "load"), [("transformers", "1 stream"), ("vllm", "closed loop")]
)
def test_a_list_calls_only_an_engine_in_the_process_one_stream(engine: str, load: str) -> None:
    spec = builders.make_study_spec(engine=engine, current=EngineSettings())
    study = Study(spec_json=spec.model_dump(mode="json"), state=StudyState.FINISHED)
    assert f", {load}, " in study_rows([study])[0].subtitle
