"""Trials as the API shows them. The full wire result is in the detail view or under `?full=1`."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from django.conf import settings
from django.urls import reverse

from advisor.api.serializers.base import Answer, Page
from advisor.evidence import Role
from advisor.studies.models import Trial
from advisor.studies.states import TrialState
from gpuagent.wire import EngineSettings, Failure, FailureReason, TrialResult, parse_from_peer
from gpuagent.wire.measure import Validity, ValidityCheck


class TrialProgress(Answer):
    phase: str
    text: str
    done_frac: float | None
    remaining_s: float | None


class FailureAnswer(Answer):
    """reason is a stable code, message what was seen, fix what to do."""

    reason: FailureReason
    message: str
    fix: str
    detail: str | None


class ValidityAnswer(Answer):
    """Whether the numbers may be used at all, with the lines of the checklist."""

    verdict: Literal["valid", "warn", "invalid"]
    reasons: list[str]
    checks: list[ValidityCheck]


class TrialUrls(Answer):
    self: str
    study: str


class TrialAnswer(Answer):
    """A trial. result is null until it succeeded, and in lists without `?full=1`."""

    id: UUID
    study_id: UUID
    ordinal: int
    role: Role
    title: str
    reason: str
    state: TrialState
    cancel_requested: bool
    attempts: int
    agent: str | None
    settings: EngineSettings
    experiment: str
    progress: TrialProgress | None
    failure: FailureAnswer | None
    validity: ValidityAnswer | None
    result: TrialResult | None
    estimate_s: float | None
    queued_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    urls: TrialUrls


class TrialPage(Page[TrialAnswer]):
    pass


def trial_answer(trial: Trial, *, full: bool) -> TrialAnswer:
    spec = trial.spec
    result = getattr(trial, "result", None)
    return TrialAnswer(
        id=trial.pk,
        study_id=trial.study_id,
        ordinal=trial.ordinal,
        role=trial.role,
        title=trial.title,
        reason=trial.reason,
        state=TrialState(trial.state),
        cancel_requested=trial.cancel_requested_at is not None,
        attempts=trial.attempts_used,
        agent=trial.agent.slug if trial.agent else None,
        settings=spec.settings,
        experiment=spec.experiment,
        progress=_progress(trial) if trial.is_live else None,
        failure=failure_answer(trial.failure),
        validity=_validity(result.payload) if result else None,
        result=result.value if result and full else None,
        estimate_s=trial.estimate_s,
        queued_at=trial.queued_at,
        started_at=trial.started_at,
        finished_at=trial.finished_at,
        urls=TrialUrls(
            self=settings.PUBLIC_URL + reverse("api-trial", kwargs={"trial_id": trial.pk}),
            study=settings.PUBLIC_URL + reverse("api-study", kwargs={"study_id": trial.study_id}),
        ),
    )


def failure_answer(failure: Failure | None) -> FailureAnswer | None:
    if failure is None:
        return None
    return FailureAnswer(
        reason=failure.reason,
        message=failure.message,
        fix=failure.kind.fix,
        detail=failure.detail,
    )


def _progress(trial: Trial) -> TrialProgress:
    return TrialProgress(
        phase=trial.phase,
        text=trial.progress_text,
        done_frac=trial.done_frac,
        remaining_s=trial.remaining_s,
    )


def _validity(payload: dict[str, Any]) -> ValidityAnswer:
    """Read from the payload alone: a list need not parse every raw sample."""
    validity = parse_from_peer(Validity, payload["validity"])
    return ValidityAnswer(
        verdict=validity.verdict, reasons=list(validity.reasons), checks=list(validity.checks)
    )
