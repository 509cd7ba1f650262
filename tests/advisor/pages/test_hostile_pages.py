"""Badly chosen names and studies that measured nothing, on every page that shows them."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils import timezone

from advisor.accounts.models import Org
from advisor.fleet.models import Agent
from advisor.studies.states import StudyState
from tests import builders, factories
from tests.advisor.pages.conftest import MARKUP

pytestmark = pytest.mark.django_db

PLOTLY = "vendor/plotly.min"


def test_plotly_comes_only_with_a_figure(browser: Client, org: Org, agent: Agent) -> None:
    """Charts that are still empty are words; they need no script of a megabyte."""
    measured = factories.create_finished_study(org, agent=agent)
    bare = factories.create_study(org, agent=agent)
    failed = factories.create_study(org, agent=agent, state=StudyState.FINISHED, phase="done")
    evidence = builders.make_trial(failure=builders.make_failure(message="x" * 400), state="failed")
    trial = factories.create_trial(failed, evidence)
    pages = {
        f"/studies/{measured.pk}/": True,
        f"/trials/{measured.trials.first().pk}/": True,
        f"/trials/{measured.trials.first().pk}/?tab=log": False,
        f"/studies/{bare.pk}/": False,
        f"/studies/{failed.pk}/": False,
        f"/trials/{trial.pk}/": False,
        "/compare/": False,
    }
    for url, has_figure in pages.items():
        html = browser.get(url).content.decode()
        assert ("data-figure=" in html) is has_figure, url
        assert (PLOTLY in html) is has_figure, url


def test_what_only_scripts_use_is_there_before_they_run(
    browser: Client, org: Org, agent: Agent
) -> None:
    """Hidden by style where no script runs: an element that appears later moves the page."""
    study = factories.create_finished_study(org, agent=agent)
    html = browser.get(f"/studies/{study.pk}/").content.decode()
    for mark in ("data-theme-switch", "data-copy", "data-switch"):
        assert mark in html
        assert f"hidden {mark}" not in html


@pytest.mark.parametrize(
    "name", [MARKUP, "=cmd|' /C calc'!A0 `c` **d** " + "نموذج" * 18], ids=["markup", "formula"]
)
def test_a_name_is_text_wherever_it_stands(
    browser: Client, org: Org, agent: Agent, name: str
) -> None:
    study = factories.create_finished_study(org, agent=agent, name=name)
    study.trials.update(title=name)
    factories.create_finding(study, title=f"Set {name}", summary=name)
    trials = [str(pk) for pk in study.trials.values_list("pk", flat=True)]
    base = f"/studies/{study.pk}/"
    pages = (
        base,
        f"{base}what-if/?t0-metric=ttft_s&t0-statistic=p50&t0-limit=90",
        f"{base}diagnose/memory/",
        f"{base}report.html",
        f"{base}report.md",
        f"/trials/{trials[0]}/",
        f"/compare/?trials={','.join(trials)}",
        f"/agents/{agent.slug}/",
        "/studies/",
        "/compare/",
        "/organisation/",
    )
    for url in pages:
        answer = browser.get(url)
        assert answer.status_code == 200, url
        assert MARKUP not in answer.content.decode(), url
    csv = browser.get(f"{base}report.csv").content.decode()
    assert ",=" not in csv.replace('"', "")
    saved = browser.get(f"{base}report.md?download")["Content-Disposition"]
    assert saved.isascii()
    assert not set("<>|`=") & set(saved.partition("filename=")[2])


def test_a_study_that_ended_without_a_result_has_every_page(
    browser: Client, org: Org, agent: Agent
) -> None:
    ended = {"finished_at": timezone.now(), "phase": "done"}
    for state in (StudyState.FINISHED, StudyState.CANCELLED):
        for trial_state in ("failed", "cancelled"):
            study = factories.create_study(org, agent=agent, state=state, **ended)
            failure = builders.make_failure() if trial_state == "failed" else None
            factories.create_trial(study, builders.make_trial(failure=failure, state=trial_state))
            for page in (
                "",
                "what-if/",
                "diagnose/memory/",
                "diagnose/throughput/",
                "report.html",
                "report.md",
                "report.csv",
                "report.json",
            ):
                url = f"/studies/{study.pk}/{page}"
                assert browser.get(url).status_code == 200, (state, trial_state, page)
            trial = study.trials.get()
            assert browser.get(f"/compare/?trials={trial.pk}").status_code == 200


def test_a_comparison_can_be_had_as_json(browser: Client, org: Org, agent: Agent) -> None:
    study = factories.create_finished_study(org, agent=agent)
    trials = ",".join(str(trial.pk) for trial in study.trials.order_by("ordinal"))
    html = browser.get(f"/compare/?trials={trials}").content.decode()
    assert f'href="/api/v1/compare?trials={trials}"' in html
    assert browser.get(f"/api/v1/compare?trials={trials}").json()["trials"]
