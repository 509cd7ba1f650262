"""Studies as the API shows them: a summary in lists, everything on one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.urls import reverse

from advisor.api.serializers.base import Answer, Page
from advisor.evidence import Basis
from advisor.rules.rule import Finding
from advisor.studies.models import Study, Trial
from advisor.studies.selectors import StudyView
from advisor.studies.services import study_progress
from advisor.studies.states import StudyState, TrialState
from advisor.targets import TargetStatus, TargetVerdict
from advisor.verdict import StudyVerdict, VerdictStatus, Verification
from gpuagent.wire import EngineSettings, StudySpec
from gpuagent.wire.sla import Metric, Statistic
from gpuagent.wire.workload import Preset

METRIC_UNITS: dict[str, str] = {
    "ttft_s": "s",
    "itl_s": "s",
    "e2e_s": "s",
    "output_tok_s": "token/s",
    "memory_bytes": "byte",
    "joules_per_token": "J/token",
}


class CurrentTrial(Answer):
    """The trial that runs now."""

    id: UUID
    ordinal: int
    title: str
    phase: str
    text: str


class StudyProgress(Answer):
    """remaining_s is an estimate; null while no agent was chosen."""

    trials_done: int
    trials_succeeded: int
    trials_total: int
    current: CurrentTrial | None
    done_frac: float
    remaining_s: float | None


class TargetAnswer(Answer):
    """One target and how it stands. value, low, high and limit are in `unit`.

    verdict: met and missed are proven at 95 % confidence; needed_n is how many requests in all
    would decide a target that is not proven.
    """

    metric: Metric
    statistic: Statistic
    limit: float
    unit: str
    verdict: TargetVerdict
    value: float | None
    low: float | None
    high: float | None
    n: int
    needed_n: int | None
    headroom_frac: float | None
    reason: str
    basis: Basis
    trial_id: str | None


class KnobChange(Answer):
    current: str | int | float | bool | None
    recommended: str | int | float | bool | None


class VerificationAnswer(Answer):
    """What the interleaved comparison of current and recommended settings proved."""

    status: Verification
    sentence: str


class VerdictSummary(Answer):
    status: VerdictStatus
    sentence: str


class VerdictAnswer(Answer):
    """targets are those of the best trial, current_targets those of the current settings."""

    status: VerdictStatus
    sentence: str
    lede: str
    targets: list[TargetAnswer]
    current_targets: list[TargetAnswer]
    best_trial: str | None
    recommended: EngineSettings | None
    changes: dict[str, KnobChange]
    verification: VerificationAnswer
    noise_frac: float | None
    known: list[str]
    unknown: list[str]


class StudyUrls(Answer):
    self: str
    trials: str
    findings: str
    report: str
    dashboard: str


class StudySummary(Answer):
    """A study in a list."""

    id: UUID
    number: int
    name: str
    state: StudyState
    phase: str
    model: str
    preset: Preset
    agent: str | None
    created_at: datetime
    finished_at: datetime | None
    progress: StudyProgress
    verdict: VerdictSummary | None
    urls: StudyUrls


class StudyAnswer(Answer):
    """A study. verdict is there from the first moment and says what is not known yet."""

    id: UUID
    number: int
    name: str
    state: StudyState
    phase: str
    agent: str | None
    created_by: str | None
    created_at: datetime
    finished_at: datetime | None
    spec: StudySpec
    progress: StudyProgress
    verdict: VerdictAnswer
    notices: list[str]
    plan_notes: list[str]
    urls: StudyUrls


class StudyPage(Page[StudySummary]):
    pass


class FindingPage(Page[Finding]):
    pass


def study_summary(study: Study) -> StudySummary:
    """For a study with prefetched trials: reads no payload and recomputes no verdict."""
    stored: dict[str, Any] | None = study.verdict_json
    return StudySummary(
        id=study.pk,
        number=study.number,
        name=study.name,
        state=StudyState(study.state),
        phase=study.phase,
        model=study.spec.model.label,
        preset=study.spec.workload.preset,
        agent=study.agent.slug if study.agent else None,
        created_at=study.created_at,
        finished_at=study.finished_at,
        progress=progress_of(study, study.trials.all()),
        verdict=VerdictSummary(status=stored["status"], sentence=stored["sentence"])
        if stored
        else None,
        urls=study_urls(study),
    )


def study_answer(view: StudyView, trials: Sequence[Trial]) -> StudyAnswer:
    study = view.study
    return StudyAnswer(
        id=study.pk,
        number=study.number,
        name=study.name,
        state=StudyState(study.state),
        phase=study.phase,
        agent=study.agent.slug if study.agent else None,
        created_by=study.created_by.email if study.created_by else None,
        created_at=study.created_at,
        finished_at=study.finished_at,
        spec=study.spec,
        progress=progress_of(study, trials),
        verdict=verdict_answer(view.verdict),
        notices=study.notices,
        plan_notes=study.plan_notes,
        urls=study_urls(study),
    )


def verdict_answer(verdict: StudyVerdict) -> VerdictAnswer:
    return VerdictAnswer(
        status=verdict.status,
        sentence=verdict.sentence,
        lede=verdict.lede,
        targets=[target_answer(status) for status in verdict.targets],
        current_targets=[target_answer(status) for status in verdict.current_targets],
        best_trial=verdict.best.trial_id if verdict.best else None,
        recommended=verdict.recommended,
        changes={
            knob: KnobChange.model_validate({"current": before, "recommended": after})
            for knob, (before, after) in verdict.changes.items()
        },
        verification=VerificationAnswer(
            status=verdict.verification, sentence=verdict.verification_sentence
        ),
        noise_frac=verdict.noise_frac,
        known=list(verdict.known),
        unknown=list(verdict.unknown),
    )


def target_answer(status: TargetStatus) -> TargetAnswer:
    return TargetAnswer(
        metric=status.target.metric,
        statistic=status.target.statistic,
        limit=status.target.limit,
        unit=METRIC_UNITS[status.target.metric],
        verdict=status.verdict,
        value=status.value,
        low=status.low,
        high=status.high,
        n=status.n,
        needed_n=status.needed_n,
        headroom_frac=status.headroom_frac,
        reason=status.reason,
        basis=status.basis,
        trial_id=status.trial_id,
    )


def progress_of(study: Study, trials: Sequence[Trial]) -> StudyProgress:
    done, total, done_frac = study_progress(trials)
    live = next((trial for trial in trials if trial.is_live), None)
    return StudyProgress(
        trials_done=done,
        trials_succeeded=sum(trial.state == TrialState.SUCCEEDED for trial in trials),
        trials_total=total,
        current=CurrentTrial(
            id=live.pk,
            ordinal=live.ordinal,
            title=live.title,
            phase=live.phase,
            text=live.progress_text,
        )
        if live
        else None,
        done_frac=1.0 if study.is_terminal else done_frac,
        remaining_s=0.0 if study.is_terminal else _remaining_s(trials),
    )


def study_urls(study: Study) -> StudyUrls:
    def absolute(name: str) -> str:
        return settings.PUBLIC_URL + reverse(name, kwargs={"study_id": study.pk})

    return StudyUrls(
        self=absolute("api-study"),
        trials=absolute("api-study-trials"),
        findings=absolute("api-study-findings"),
        report=absolute("api-study-report"),
        dashboard=absolute("study"),
    )


def _remaining_s(trials: Sequence[Trial]) -> float | None:
    """Estimated time of the planned trials that are not done; None where one has no estimate."""
    total = 0.0
    for trial in trials:
        if trial.is_terminal:
            continue
        if trial.is_live and trial.remaining_s is not None:
            total += trial.remaining_s
        elif trial.estimate_s is None:
            return None
        else:
            total += trial.estimate_s * (1.0 - (trial.done_frac or 0.0))
    return total if trials else None
