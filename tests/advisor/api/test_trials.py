from __future__ import annotations

import uuid
from typing import Any

from django.test import Client

from advisor.accounts.models import AuditEvent, Org
from advisor.fleet.models import Agent
from advisor.studies.states import TrialState
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


def test_one_trial_is_cancelled_and_the_study_goes_on(
    api: Client, org: Org, agent: Agent, django_capture_on_commit_callbacks: Any
) -> None:
    study = factories.create_study(org, agent=agent)
    running = factories.create_trial(study, state=TrialState.RUNNING)
    waiting = factories.create_trial(study)
    for _ in range(2):
        with django_capture_on_commit_callbacks(execute=True):
            response = api.post(f"/api/v1/trials/{waiting.pk}/cancel")
        assert (response.status_code, response.json()["state"]) == (200, "cancelled")
        answer = api.post(f"/api/v1/trials/{running.pk}/cancel").json()
        # Its agent still has to hear of it.
        assert (answer["state"], answer["cancel_requested"]) == ("running", True)
    study.refresh_from_db()
    assert (study.state, study.cancel_requested_at) == ("running", None)
    seen = AuditEvent.objects.filter(org=org, action="trial.cancel")
    assert sorted(seen.values_list("target", flat=True)) == [
        f"study {study.number} trial 1",
        f"study {study.number} trial 2",
    ]


def test_a_trial_that_ended_and_a_viewer_cannot_cancel(
    api: Client, reader: Client, stranger: Client, org: Org
) -> None:
    trial = factories.create_finished_study(org).trials.first()
    url = f"/api/v1/trials/{trial.pk}/cancel"
    assert api.post(url).json()["code"] == "conflict"
    assert [c.post(url).status_code for c in (api, reader, stranger)] == [409, 403, 404]
