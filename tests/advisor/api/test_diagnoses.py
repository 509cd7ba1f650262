from __future__ import annotations

import pytest
from django.test import Client

from advisor.accounts.models import Org
from tests import factories


def test_both_walks_come_with_their_steps(reader: Client, org: Org) -> None:
    study = factories.create_finished_study(org)
    url = f"/api/v1/studies/{study.pk}/diagnoses"
    throughput, memory = reader.get(url).json()["results"]
    assert (throughput["id"], memory["id"]) == ("throughput", "memory")
    assert throughput["outcome"] == "no_complaint"
    assert {step["verdict"] for step in memory["steps"]} <= {"pass", "fail", "cannot_tell"}


@pytest.mark.parametrize("trial", ["99", "1", "x"])
def test_a_trial_that_cannot_be_compared_names_the_field(
    reader: Client, org: Org, trial: str
) -> None:
    study = factories.create_finished_study(org)
    response = reader.get(f"/api/v1/studies/{study.pk}/diagnoses?trial={trial}")
    assert response.status_code == 400
    assert list(response.json()["fields"]) == ["trial"]


def test_an_empty_study_says_what_to_run(reader: Client, org: Org) -> None:
    study = factories.create_study(org)
    rows = reader.get(f"/api/v1/studies/{study.pk}/diagnoses").json()["results"]
    assert [row["outcome"] for row in rows] == ["cannot_tell", "cannot_tell"]
