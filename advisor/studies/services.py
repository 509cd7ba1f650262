"""Writes of studies: create, preview, cancel. One transaction each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from advisor.accounts.models import Org, User
from advisor.accounts.services import audit
from advisor.errors import Conflict
from advisor.shapes import ModelShape
from advisor.studies import advance, dispatch, intake, leases, planner
from advisor.studies.listing import listing_of
from advisor.studies.models import Study, Trial
from advisor.studies.planner import PlannedTrial
from advisor.studies.states import TERMINAL, StudyState, TrialState
from advisor.studies.trials import trials_add
from gpuagent.wire import StudySpec


@dataclass(frozen=True, slots=True)
class StudyPreview:
    """What would run, shown before the start."""

    planned: tuple[PlannedTrial, ...]
    notes: tuple[str, ...]
    estimate_s: float
    shape: ModelShape | None
    notices: tuple[str, ...]


def study_preview(*, org: Org, spec: StudySpec) -> StudyPreview:
    """Check and plan without storing anything. Raises InvalidInput as `study_create` does."""
    found = intake.check(org=org, spec=spec)
    plan = _plan(found)
    return StudyPreview(
        planned=plan.trials,
        notes=plan.notes,
        estimate_s=sum(trial.estimate_s for trial in plan.trials),
        shape=found.shape,
        notices=found.notices,
    )


def study_create(
    *,
    org: Org,
    user: User | None,
    spec: StudySpec,
    actor: str,
    found: intake.Intake | None = None,
) -> Study:
    """Store a study with its planned trials and wake the agent after commit.

    found: what `intake.check` returned, from a caller that must not ask the hub inside its own
    transaction.
    """
    found = found or intake.check(org=org, spec=spec)
    plan = _plan(found)
    with transaction.atomic():
        number = study_number_take(org)
        study = Study(
            org=org,
            number=number,
            name=spec.name,
            spec_json=spec.model_dump(mode="json"),
            model_config_json=found.config,
            agent=found.agent,
            created_by=user,
            state=StudyState.RUNNING if plan.trials else StudyState.WAITING,
            notices=list(found.notices),
            plan_notes=list(plan.notes),
        )
        for field, value in listing_of(study).items():
            setattr(study, field, value)
        study.save(force_insert=True)
        trials = trials_add(study, plan.trials)
        leases.touch_study(study.pk)
        audit(org=org, actor=actor, action="study.create", target=f"study {number} {spec.name}")
        dispatch.wake_after_commit(trials)
        transaction.on_commit(lambda: advance.study_advance_safely(study.pk))
    study.refresh_from_db()
    return study


def study_number_take(org: Org) -> int:
    """The organisation's next number, taken; inside a transaction."""
    Org.objects.filter(pk=org.pk).update(next_study_number=F("next_study_number") + 1)
    return Org.objects.values_list("next_study_number", flat=True).get(pk=org.pk) - 1


def _plan(found: intake.Intake) -> planner.Plan:
    if found.agent is None or found.device is None:
        return planner.Plan(trials=(), notes=())
    return planner.plan(found.spec, shape=found.shape, device=found.device)


def study_cancel(*, study: Study, actor: str) -> None:
    """Cancel what has not finished. Finished trials and their findings stay; no verdict follows."""
    now = timezone.now()
    with transaction.atomic():
        asked = (
            Study.objects.filter(pk=study.pk, cancel_requested_at=None)
            .exclude(state__in=(StudyState.FINISHED, StudyState.CANCELLED))
            .update(cancel_requested_at=now)
        )
        if not asked:
            return
        for trial in study.trials.exclude(state__in=TERMINAL):
            leases.trial_cancel(trial=trial)
        leases.touch_study(study.pk)
        audit(org=study.org, actor=actor, action="study.cancel", target=f"study {study.number}")
        transaction.on_commit(lambda: advance.study_advance_safely(study.pk))
    study.refresh_from_db()


def trial_cancel(*, trial: Trial, actor: str) -> None:
    """Cancel one trial: its study goes on without it. Again on a cancelled one changes nothing.

    A running one ends when its agent hears of it. Raises Conflict for a trial that ended otherwise.
    """
    with transaction.atomic():
        asked = leases.trial_cancel(trial=trial)
        if asked:
            study = trial.study
            target = f"study {study.number} trial {trial.ordinal}"
            audit(org=study.org, actor=actor, action="trial.cancel", target=target)
            transaction.on_commit(lambda: advance.study_advance_safely(study.pk))
    trial.refresh_from_db()
    if not asked and trial.is_terminal and trial.state != TrialState.CANCELLED:
        raise Conflict(f"Trial {trial.ordinal} has ended: there is nothing left to cancel.")


def study_progress(trials: Sequence[Trial]) -> tuple[int, int, float]:
    """(done, total, share of the whole work done) by estimated time."""
    total_s = sum(trial.estimate_s or 1.0 for trial in trials) or 1.0
    done_s = sum(
        (trial.estimate_s or 1.0) * (1.0 if trial.is_terminal else trial.done_frac or 0.0)
        for trial in trials
        if trial.state != TrialState.QUEUED
    )
    return sum(trial.is_terminal for trial in trials), len(trials), min(done_s / total_s, 1.0)
