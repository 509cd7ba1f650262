"""A study to look at before any agent exists: simulated here, labelled as that, changed by nobody.

The server runs the simulator itself, once in each process, in seconds and without a device; every
organisation that asks gets the rows of its own.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from django.db import IntegrityError, transaction
from django.utils import timezone

from advisor.accounts.models import Org, User
from advisor.accounts.services import audit
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.studies import advance, intake, planner
from advisor.studies.models import Attempt, Result, Study, Trial
from advisor.studies.planner import PlannedTrial
from advisor.studies.services import study_number_take
from advisor.studies.states import AttemptEnd, StudyState, TrialState
from gpuagent.errors import AgentError
from gpuagent.experiments.base import SystemClock
from gpuagent.simulated_trial import simulate_trial
from gpuagent.wire import Failure, StudySpec, TrialSpec

NAME: Final = "Sample (simulated): chat on 2 × H100"
NOTICE: Final = (
    "Sample study: simulated on this server, to show what a study gives. No device was measured."
)
_MAX_TRIALS: Final = 12
_SPEC: Final = {
    "name": NAME,
    "model": {"kind": "simulated", "name": "qwen3-32b-2xh100"},
    "engine": "simulated",
    "workload": {
        "preset": "chat",
        "input_tokens": {"kind": "lognormal", "mean": 600, "p95": 1400, "maximum": 4000},
        "output_tokens": {"kind": "fixed", "mean": 24},
        "request_rate_per_s": 4.0,
        "requests": 240,
    },
    "targets": [
        {"metric": "ttft_s", "statistic": "p90", "limit": 0.8},
        {"metric": "itl_s", "statistic": "p90", "limit": 0.1},
    ],
    "current": {
        "max_running": 8,
        "max_batched_tokens": 512,
        "cuda_graphs": False,
        "memory_share_frac": 0.7,
    },
    "boundary": True,
    "budget_s": 120,
}


@dataclass(frozen=True, slots=True)
class _Ran:
    """A trial of the sample: what was planned, and what the simulator answered."""

    planned: PlannedTrial
    evidence: TrialEvidence


def sample_id(org: Org) -> uuid.UUID:
    """The same for each call, so that an organisation has one sample at most."""
    return uuid.uuid5(org.pk, "sample study")


def sample_open(*, org: Org, user: User, actor: str) -> Study:
    """The organisation's sample study, made now where there is none. Takes seconds once."""
    found = Study.objects.filter(pk=sample_id(org)).first()
    if found is not None:
        return found
    ran = _simulated()
    try:
        return _stored(org, user, actor, ran)
    except IntegrityError:
        # Two clicks at once: the first one made it.
        return Study.objects.get(pk=sample_id(org))


@lru_cache(maxsize=1)
def _simulated() -> tuple[_Ran, ...]:
    """The whole study in memory, so that no transaction waits for it."""
    spec = StudySpec.model_validate(_SPEC)
    device = intake.study_device(spec, None)
    if device is None:
        raise RuntimeError("the simulator has no machine for the sample")
    ran: list[_Ran] = []
    waiting = planner.plan(spec, shape=None, device=device).trials
    while waiting and len(ran) < _MAX_TRIALS:
        for planned in waiting:
            ran.append(_Ran(planned, _run(spec, planned, len(ran) + 1)))
        evidence = StudyEvidence(
            study_id=str(uuid.UUID(int=0)),
            number=1,
            name=NAME,
            spec=spec,
            shape=None,
            device=device,
            trials=tuple(one.evidence for one in ran),
            finished=False,
            cancelled=False,
        )
        # No rule withdraws a candidate of the simulator, and evaluating all takes most of the time.
        waiting = planner.next_trials(evidence, ())
    return tuple(ran)


def _run(spec: StudySpec, planned: PlannedTrial, ordinal: int) -> TrialEvidence:
    asked = TrialSpec(
        trial_id=str(uuid.UUID(int=ordinal)),
        model=spec.model,
        engine=spec.engine,
        settings=planned.settings,
        workload=spec.workload,
        config=planned.config,
        seed=ordinal,
    )
    started, result, failure = datetime.now(UTC), None, None
    try:
        result = simulate_trial(
            asked, emit=lambda *_, **__: None, tick=lambda: None, clock=SystemClock()
        )
    except AgentError as error:
        failure = Failure(reason=error.reason, message=str(error), detail=error.detail)
    return TrialEvidence(
        trial_id=asked.trial_id,
        ordinal=ordinal,
        role=planned.role,
        title=planned.title,
        reason=planned.reason,
        spec=asked,
        state="failed" if failure else "succeeded",
        result=result,
        failure=failure,
        attempts=1,
        started_at=started,
        finished_at=datetime.now(UTC),
    )


@transaction.atomic
def _stored(org: Org, user: User, actor: str, ran: tuple[_Ran, ...]) -> Study:
    number, now = study_number_take(org), timezone.now()
    study = Study.objects.create(
        id=sample_id(org),
        org=org,
        number=number,
        name=NAME,
        spec_json=StudySpec.model_validate(_SPEC).model_dump(mode="json"),
        created_by=user,
        state=StudyState.FINISHED,
        finished_at=now,
        notices=[NOTICE],
        stale_since=now,
    )
    for one in ran:
        _trial(study, one)
    audit(org=org, actor=actor, action="sample.create", target=f"study {number}")
    advance.study_evaluate(study)
    study.refresh_from_db()
    return study


def _trial(study: Study, one: _Ran) -> None:
    seen, trial_id = one.evidence, uuid.uuid4()
    spec = seen.spec.model_copy(update={"trial_id": str(trial_id)})
    trial = Trial.objects.create(
        id=trial_id,
        study=study,
        ordinal=seen.ordinal,
        role=seen.role,
        title=seen.title,
        reason=seen.reason,
        estimate_s=one.planned.estimate_s,
        spec_json=spec.model_dump(mode="json"),
        state=TrialState.FAILED if seen.failure else TrialState.SUCCEEDED,
        epoch=1,
        attempts_used=1,
        failure_json=seen.failure.model_dump(mode="json") if seen.failure else None,
        started_at=seen.started_at,
        finished_at=seen.finished_at,
    )
    end = AttemptEnd.FAILED if seen.failure else AttemptEnd.SUCCEEDED
    attempt = Attempt.objects.create(trial=trial, number=1, end=end, ended_at=seen.finished_at)
    if seen.result is not None:
        payload = seen.result.model_dump(mode="json")
        Result.objects.create(trial=trial, attempt=attempt, payload=payload)
