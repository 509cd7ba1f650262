"""Builds `advisor.evidence.StudyEvidence` from rows: the only bridge between ORM and pure code."""

from __future__ import annotations

from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.shapes import ModelShape, ShapeError, shape_from_config
from advisor.studies.intake import study_device
from advisor.studies.models import Study, Trial
from advisor.studies.pricing import own_prices


def build_evidence(study: Study) -> StudyEvidence:
    """Everything known about `study` now: trials with results, the agent, prices of a GPU."""
    device = study_device(study.spec, study.agent)
    trials = study.trials.select_related("result").order_by("ordinal")
    return StudyEvidence(
        study_id=str(study.pk),
        number=study.number,
        name=study.name,
        spec=study.spec,
        shape=study_shape(study),
        device=device,
        trials=tuple(_trial(trial) for trial in trials),
        finished=study.is_terminal,
        cancelled=study.cancel_requested_at is not None,
        prices=own_prices(study.org) if device is not None and device.kind == "gpu" else {},
    )


def study_shape(study: Study) -> ModelShape | None:
    """The model's shape, or None where its config is not known (yet)."""
    if study.model_config_json is None:
        return None
    try:
        return shape_from_config(study.model_config_json)
    except ShapeError:
        return None


def _trial(trial: Trial) -> TrialEvidence:
    result = getattr(trial, "result", None)
    return TrialEvidence(
        trial_id=str(trial.pk),
        ordinal=trial.ordinal,
        role=trial.role,
        title=trial.title,
        reason=trial.reason,
        spec=trial.spec,
        state=trial.state,
        result=result.value if result is not None else None,
        failure=trial.failure,
        attempts=trial.attempts_used,
        started_at=trial.started_at,
        finished_at=trial.finished_at,
    )
