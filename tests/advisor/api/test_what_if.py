from __future__ import annotations

from typing import Any

from django.test import Client

from advisor.accounts.models import Org
from advisor.studies.models import Study
from tests import factories


def ask(client: Client, study: Study, body: Any) -> Any:
    url = f"/api/v1/studies/{study.pk}/what-if"
    return client.post(url, body, content_type="application/json")


def test_a_viewer_gets_verdict_and_ranking_and_nothing_is_stored(reader: Client, org: Org) -> None:
    study = factories.create_finished_study(org)
    target = {"metric": "itl_s", "statistic": "p95", "limit": 0.5}
    response = ask(reader, study, {"targets": [target], "usd_per_hour": 2})
    assert response.status_code == 200, response.content
    answer = response.json()
    assert answer["verdict"]["status"] == "met"
    assert answer["verdict"]["targets"][0]["limit"] == 0.5
    assert {entry["ordinal"] for entry in answer["ranking"]} == {1, 2}
    assert all(entry["usd_per_million_output_tokens"] > 0 for entry in answer["ranking"])
    own = reader.get(f"/api/v1/studies/{study.pk}").json()["verdict"]["targets"]
    assert [t["limit"] for t in own] == [0.2, 0.05]


def test_a_study_without_trials_has_an_empty_ranking(reader: Client, org: Org) -> None:
    answer = ask(reader, factories.create_study(org), {}).json()
    assert answer["ranking"] == []
    assert answer["verdict"]["status"] == "no_verdict"


def test_bad_targets_name_the_field(reader: Client, org: Org) -> None:
    study = factories.create_finished_study(org)
    bad = {"metric": "ttft_s", "statistic": "p95", "limit": -1}
    assert list(ask(reader, study, {"targets": [bad]}).json()["fields"]) == ["targets.0.limit"]
    good = {**bad, "limit": 1}
    twice = ask(reader, study, {"targets": [good, good]})
    assert twice.status_code == 400
    assert "Two targets" in twice.json()["message"]
