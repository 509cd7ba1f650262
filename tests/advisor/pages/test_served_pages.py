"""Pages, report and API of a study on a real server: every number has a place, nothing breaks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.test import Client

from advisor.accounts.models import Org
from advisor.studies.models import TrialState
from gpuagent.wire.serving import CountCheck
from tests.advisor.pages.conftest import MARKUP
from tests.advisor.studies.test_served import BAD, served, spec
from tests.advisor.studies.test_simulated import make_spec, measure, serving, trial_spec
from tests.builders import make_robustness, make_trial
from tests.factories import create_agent, create_study, create_trial

pytestmark = pytest.mark.django_db


def test_a_served_study_is_shown_everywhere(browser: Client, org: Org) -> None:
    agent = create_agent(org)
    study = create_study(org, agent=agent, spec=spec(agent=agent.slug, boundary=True))
    result = served(rate=2.5)
    counts = (
        CountCheck(what="requests", client=30, server=30),
        CountCheck(what="output_tokens", client=90, reason="no counter"),
    )
    result = result.model_copy(
        update={
            "memory_kind": "server_rss",
            "served": result.served.model_copy(update={"counts": counts}),
        }
    )
    evidence = make_trial(result, ordinal=1, role="current", settings=BAD)
    evidence = replace(evidence, spec=evidence.spec.model_copy(update={"engine": "vllm"}))
    trial = create_trial(study, evidence)
    pages = {
        "timing": ("resident memory of all processes of the server",),
        "server": (
            "vllm 0.32.0, ready",
            "Same",
            "Client alone",
            "no counter",
            "does not speculate",
        ),
        "rate": ("2.50\u00a0req/s", "Bracketed"),
    }
    for tab, expected in pages.items():
        page = browser.get(f"/trials/{trial.pk}/?tab={tab}").content.decode()
        assert [words for words in expected if words not in page] == []
    for tab in ("memory", "kernels", "settings", "telemetry", "environment", "log"):
        assert browser.get(f"/trials/{trial.pk}/?tab={tab}").status_code == 200
    assert browser.get(f"/studies/{study.pk}/").status_code == 200
    report = browser.get(f"/studies/{study.pk}/report.html")
    assert report.status_code == 200
    assert browser.get(f"/studies/{study.pk}/report.json").status_code == 200
    for complaint in ("memory", "throughput"):
        assert browser.get(f"/studies/{study.pk}/diagnose/{complaint}/").status_code == 200


def test_a_simulated_study_shows_the_same_and_says_that_it_is_simulated(
    browser: Client, org: Org
) -> None:
    agent = create_agent(org)
    simulated = make_spec(agent=agent.slug, boundary=True)
    study = create_study(org, agent=agent, spec=simulated)
    asked = serving(simulated, point_s=10.0, boundary_points=3)
    evidence = make_trial(ordinal=1, role="current", settings=simulated.current)
    trial = create_trial(study, replace(evidence, spec=asked, result=measure(asked)))
    server = browser.get(f"/trials/{trial.pk}/?tab=server").content.decode()
    for words in ("nothing was started", "as simulated", "Gauges of the simulated server"):
        assert words in server
    assert "Counted on both sides" not in server
    rate = browser.get(f"/trials/{trial.pk}/?tab=rate").content.decode()
    assert "of simulated time" in rate
    assert all(f'data-chart="{name}-by-rate"' in rate for name in ("ttft", "goodput"))
    page = browser.get(f"/studies/{study.pk}/").content.decode()
    assert 'data-chart="highest-rate"' in page
    assert "simulated time" in browser.get(f"/studies/{study.pk}/report.html").content.decode()
    # Without a search, and by an older agent without a server, the rest is shown as before.
    older = create_study(org, agent=agent, spec=make_spec(agent=agent.slug))
    plain = trial_spec(older.spec)
    trial = create_trial(older, replace(evidence, spec=plain, result=measure(plain)))
    page = browser.get(f"/trials/{trial.pk}/").content.decode()
    assert "tab=rate" not in page
    assert "tab=server" not in page
    assert browser.get(f"/studies/{older.pk}/").status_code == 200


def test_the_form_offers_the_servers_that_an_agent_has(browser: Client, org: Org) -> None:
    assert "vLLM server" not in browser.get("/studies/new/").content.decode()
    agent = create_agent(org)
    hello = agent.hello.model_copy(
        update={"engines": ("transformers", "vllm", "openai"), "endpoints": ("prod",)}
    )
    agent.hello_json = hello.model_dump(mode="json")
    agent.save()
    page = browser.get("/studies/new/").content.decode()
    assert "vLLM server" in page
    assert f"prod ({agent.slug})" in page


def test_members_cancel_one_trial_and_the_page_says_so(
    member: Client, viewer: Client, org: Org
) -> None:
    study = create_study(org, agent=create_agent(org))
    trial = create_trial(study)
    create_trial(study)
    url = f"/trials/{trial.pk}/cancel/"
    for page in (f"/trials/{trial.pk}/", f"/studies/{study.pk}/"):
        assert url in member.get(page).content.decode()
        assert url not in viewer.get(page).content.decode()
    assert viewer.post(url).status_code == 403
    assert "goes on without this trial" in member.post(url, follow=True).content.decode()
    page = member.get(f"/studies/{study.pk}/").content.decode()
    assert "Trial 1 was cancelled" in page
    assert url not in page


def test_a_running_trial_is_not_called_cancelled_before_it_ended(member: Client, org: Org) -> None:
    agent = create_agent(org)
    trial = create_trial(create_study(org, agent=agent))
    trial.state = TrialState.RUNNING
    trial.save()
    page = member.post(f"/trials/{trial.pk}/cancel/", follow=True).content.decode()
    assert "ends when its agent hears of it" in page
    assert "Cancelled." not in page


def test_a_misused_server_is_shown_on_its_trial_the_study_and_the_report(
    browser: Client, org: Org
) -> None:
    agent = create_agent(org)
    study = create_study(org, agent=agent, spec=spec(agent=agent.slug))
    found = make_robustness(
        died_after="long_prompt",
        seen={},
        long_prompt={"verdict": "fail", "sentence": f"It fell over {MARKUP}", "value": 500.0},
    )
    trial = create_trial(
        study, make_trial(found, ordinal=1, role="diagnosis", settings=BAD, title="Robustness")
    )
    for address in (f"/trials/{trial.pk}/", f"/studies/{study.pk}/"):
        page = browser.get(address).content.decode()
        assert "Prompt beyond the context" in page
        assert "10 of 11 checks passed, 1 failed" in page
        assert "The server was gone after" in page
        assert MARKUP not in page
    report = browser.get(f"/studies/{study.pk}/report.md").content.decode()
    assert "## Robustness" in report
    assert "At the peak of the overload 16 ran and 24 of 64 waited." in report
    assert "Robustness" in browser.get(f"/studies/{study.pk}/report.html").content.decode()
