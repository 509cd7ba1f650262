from __future__ import annotations

import uuid

from django.test import Client

from advisor.accounts.models import Org
from gpuagent.wire import TrialResult
from tests import builders, factories


def test_trials_come_in_order_and_without_samples_unless_asked(reader: Client, org: Org) -> None:
    study = factories.create_finished_study(org)
    url = f"/api/v1/studies/{study.pk}/trials"
    results = reader.get(url).json()["results"]
    assert [trial["ordinal"] for trial in results] == [1, 2]
    assert [trial["settings"]["dtype"] for trial in results] == ["bfloat16", "float32"]
    assert all(trial["result"] is None for trial in results)
    assert all(trial["validity"]["verdict"] == "valid" for trial in results)
    full = reader.get(f"{url}?full=1").json()["results"]
    assert TrialResult.model_validate(full[0]["result"]).measurements.experiment == "baseline"


def test_trials_are_paginated_in_order(reader: Client, org: Org) -> None:
    study = factories.create_study(org)
    for _ in range(5):
        factories.create_trial(study)
    url, seen = f"/api/v1/studies/{study.pk}/trials?limit=2", []
    while url:
        page = reader.get(url).json()
        seen += [trial["ordinal"] for trial in page["results"]]
        url = page["next"]
    assert seen == [1, 2, 3, 4, 5]


def test_one_trial_carries_the_result_exactly_as_it_was_accepted(reader: Client, org: Org) -> None:
    study = factories.create_finished_study(org)
    trial = study.trials.first()
    answer = reader.get(f"/api/v1/trials/{trial.pk}").json()
    assert answer["study_id"] == str(study.pk)
    assert TrialResult.model_validate(answer["result"]) == trial.result.value
    assert answer["progress"] is None


def test_a_failed_trial_says_why_and_what_to_do(reader: Client, org: Org) -> None:
    study = factories.create_study(org)
    trial = factories.create_trial(study, builders.make_trial(failure=builders.make_failure()))
    failure = reader.get(f"/api/v1/trials/{trial.pk}").json()["failure"]
    assert failure == {
        "reason": "out_of_memory",
        "message": "cannot allocate 2.1 GiB",
        "fix": "Lower batch, context or precision, or use a larger device.",
        "detail": None,
    }


def test_an_invalid_measurement_is_marked_before_its_numbers(reader: Client, org: Org) -> None:
    study = factories.create_study(org)
    evidence = builders.make_trial(
        builders.make_baseline_result(), validity=builders.make_validity("invalid", "too hot")
    )
    trial = factories.create_trial(study, evidence)
    validity = reader.get(f"/api/v1/trials/{trial.pk}").json()["validity"]
    assert validity["verdict"] == "invalid"
    assert validity["reasons"] == ["too hot"]


def test_another_organisations_trial_is_404(stranger: Client, org: Org) -> None:
    trial = factories.create_trial(factories.create_study(org))
    foreign = stranger.get(f"/api/v1/trials/{trial.pk}")
    missing = stranger.get(f"/api/v1/trials/{uuid.uuid4()}")
    assert foreign.status_code == 404
    assert foreign.json() == missing.json()
