from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from advisor.accounts.models import Org
from advisor.fleet.models import Agent
from advisor.studies.models import Study
from tests import builders, factories
from tests.advisor.pages.conftest import MARKUP

pytestmark = pytest.mark.django_db


@pytest.fixture
def study(org: Org, agent: Agent) -> Study:
    spec = builders.make_study_spec(agent=agent.slug)
    study = factories.create_study(org, agent=agent, spec=spec, name=MARKUP)
    for trial in (builders.make_current(), builders.make_variant(ordinal=2)):
        factories.create_trial(study, trial)
    factories.create_trial(study, builders.make_trial(state="failed", ordinal=3))
    return study


def ids(study: Study) -> list[str]:
    return [str(pk) for pk in study.trials.order_by("ordinal").values_list("pk", flat=True)]


def test_page_and_api_tell_the_same_numbers(browser: Client, study: Study) -> None:
    first, second, _ = ids(study)
    page = browser.get("/compare/", {"trials": [first, second, ""]})
    assert page.status_code == 200
    html = page.content.decode()
    assert MARKUP not in html
    answer = browser.get(f"/api/v1/compare?trials={first},{second}").json()
    assert answer["settings"] == [{"name": "dtype", "values": ["bfloat16", "float32"]}]
    (pair,) = answer["pairs"]
    assert (pair["before"], pair["after"], pair["method"]) == (first, second, "one_after_other")
    shown = page.context["page"].pairs[0].lines[0]
    change = pair["deltas"][0]["change_frac"]
    assert shown.change == f"−{-change * 100:.0f}\u00a0%"


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("", 200, "Two to four trials"),
        ("?trials=nonsense", 400, "Give ids"),
        ("?trials={0}", 200, "Add a second one"),
        ("?trials={0},{2}", 200, "may not be compared"),
        ("?trials={0},00000000-0000-0000-0000-000000000000", 404, "Nothing is here"),
    ],
)
def test_every_input_is_answered(
    browser: Client, study: Study, query: str, status: int, said: str
) -> None:
    response = browser.get("/compare/" + query.format(*ids(study)))
    assert response.status_code == status
    assert said in response.content.decode()


def test_studies_stand_for_their_best_trials(browser: Client, study: Study) -> None:
    response = browser.get("/compare/", {"studies": str(study.pk)})
    assert response.status_code == 302
    chosen = response["Location"].rpartition("=")[2]
    assert chosen in ids(study)


@pytest.mark.parametrize("query", ["", "?trials={0}", "?trials=x", "?trials={0},{0}"])
def test_api_refuses_what_is_no_pair(browser: Client, study: Study, query: str) -> None:
    response = browser.get("/api/v1/compare" + query.format(*ids(study)))
    assert response.status_code == 400
    assert "trials" in response.json()["fields"]


def test_trials_table_offers_finished_trials_alone(browser: Client, study: Study) -> None:
    html: Any = browser.get(f"/studies/{study.pk}/").content.decode()
    first, second, failed = ids(study)
    assert f'name="trials" value="{first}"' in html
    assert f'name="trials" value="{second}"' in html
    assert f'name="trials" value="{failed}"' not in html
    assert "Compare selected" in html
