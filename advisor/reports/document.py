"""`ReportDocument`: a study as plain, versioned data. Every exporter renders this and nothing else.

Pure: built from evidence, findings and verdict; knows neither Django nor rows. Numbers stay in SI
units; words were chosen by the verdict, the rules and the charts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

from advisor import units
from advisor.charts import Chart, ChartInput, study_charts
from advisor.evidence import Basis, StudyEvidence, TrialEvidence
from advisor.exports.knob_lines import KnobLine, knob_lines
from advisor.exports.launch import launch_lines
from advisor.knobs import settings_text
from advisor.presets import PRESETS
from advisor.reported import AS_SENT, NOT_IN_FILE, source_of
from advisor.reports.method import environment_lines, limit_lines, method_lines
from advisor.reports.robustness import RobustnessPart, study_robustness
from advisor.rules.rule import Finding
from advisor.scenarios import SCENARIOS
from advisor.targets import (
    TargetStatus,
    TargetVerdict,
    in_flight,
    target_name,
    target_statuses,
)
from advisor.verdict import StudyVerdict, VerdictStatus, Verification
from gpuagent.wire import EngineSettings, StudySpec

_ONE_BY_ONE: Final = "one request after the other"
REPORT_VERSION: Final = 1
"""Raised with every change that a reader of the JSON report would misread."""


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class ReportContext(_Value):
    """What is known about a study beside its evidence. url: empty in a shared report."""

    organisation: str
    created_at: datetime
    finished_at: datetime | None
    generated_at: datetime
    advisor_version: str
    url: str


class Measured(_Value):
    """One value of one target; `value` None comes with the reason."""

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


class TargetRow(_Value):
    """One target with the best trial's value and the current configuration's."""

    name: str
    metric: str
    statistic: str
    limit: float
    higher_is_better: bool
    best: Measured | None
    current: Measured | None


class VerdictPart(_Value):
    status: VerdictStatus
    sentence: str
    lede: str
    verification: Verification
    verification_sentence: str
    noise_frac: float | None
    known: tuple[str, ...]
    unknown: tuple[str, ...]
    best_trial: int | None


class SettingChange(_Value):
    knob: str
    current: str | int | float | bool | None
    recommended: str | int | float | bool | None


class Line(_Value):
    text: str
    changed: bool


class Fact(_Value):
    name: str
    value: str


class ChartPart(_Value):
    """A chart with its data; `figure` is plotly JSON with token names for colours."""

    id: str
    title: str
    note: str
    label: str
    columns: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[str, ...], ...]
    figure: dict[str, Any] | None
    empty_reason: str | None


class TrialRow(_Value):
    """One trial in the report's table; the raw samples are at the trial's own address."""

    ordinal: int
    id: str
    title: str
    role: str
    experiment: str
    state: str
    reason: str
    settings: dict[str, Any]
    settings_text: str
    validity: Literal["valid", "warn", "invalid"] | None
    validity_reasons: tuple[str, ...]
    failure: str | None
    attempts: int
    duration_s: float | None
    targets: tuple[Measured, ...]


class ReportDocument(_Value):
    """The whole report."""

    report_version: Literal[1] = REPORT_VERSION
    study_id: str
    number: int
    name: str
    state: Literal["waiting", "running", "finished", "cancelled"]
    context: ReportContext
    spec: StudySpec
    facts: tuple[Fact, ...]
    verdict: VerdictPart
    targets: tuple[TargetRow, ...]
    changes: tuple[SettingChange, ...]
    recommended: EngineSettings | None
    launch: tuple[Line, ...]
    knobs: tuple[KnobLine, ...]
    findings: tuple[Finding, ...]
    charts: tuple[ChartPart, ...]
    trials: tuple[TrialRow, ...]
    robustness: RobustnessPart | None = None
    method: tuple[str, ...]
    environment: tuple[Fact, ...]
    limits: tuple[str, ...]


def report_document(
    evidence: StudyEvidence,
    findings: Sequence[Finding],
    verdict: StudyVerdict,
    context: ReportContext,
) -> ReportDocument:
    """The report of a study at this moment, finished or not."""
    charts = [c for group in study_charts(ChartInput.of_study(evidence, verdict)) for c in group]
    return ReportDocument(
        study_id=evidence.study_id,
        number=evidence.number,
        name=evidence.name,
        state=_state(evidence),
        context=context,
        spec=evidence.spec,
        facts=tuple(Fact(name=name, value=value) for name, value in study_facts(evidence)),
        verdict=_verdict(verdict),
        targets=_targets(evidence, verdict),
        changes=tuple(
            SettingChange(knob=knob, current=_plain(old), recommended=_plain(new))
            for knob, (old, new) in verdict.changes.items()
        ),
        recommended=verdict.recommended,
        launch=_launch(evidence, verdict),
        knobs=knob_lines(evidence, verdict, findings),
        findings=tuple(findings),
        charts=tuple(_chart(c) for c in charts),
        trials=tuple(trial_row(t, evidence) for t in evidence.trials),
        robustness=study_robustness(evidence),
        method=method_lines(evidence),
        environment=tuple(Fact(name=n, value=v) for n, v in environment_lines(evidence)),
        limits=limit_lines(evidence, verdict),
    )


def study_facts(evidence: StudyEvidence) -> list[tuple[str, str]]:
    """Model, hardware, engine and workload in words, as they stand under a verdict."""
    workload = evidence.spec.workload
    rate = workload.request_rate_per_s
    imported = evidence.spec.engine == "imported"
    streams = max((in_flight(trial) for trial in evidence.trials), default=1)
    arrivals = _ONE_BY_ONE
    if rate:
        arrivals = f"{units.number(rate)} req/s"
    elif imported:
        arrivals = AS_SENT
    elif streams > 1:
        arrivals = f"{streams} requests in flight"
    lengths = f"input {workload.input_tokens.text}, output {workload.output_tokens.text} tokens"
    if workload.input_tokens.kind == workload.output_tokens.kind == "unknown":
        lengths = "lengths not in the file"
    if workload.shared_prefix_frac:
        lengths += f", {units.percent(workload.shared_prefix_frac)} of each prompt shared"
    facts = [("Model", evidence.spec.model.label)]
    if evidence.device is not None:
        memory = evidence.device.memory_bytes
        tail = f", {units.memory(memory)}" if memory else ""
        facts.append(("Hardware", f"{evidence.device.count} × {evidence.device.name}{tail}"))
    facts.append(("Source", source_of(evidence)) if imported else ("Engine", evidence.spec.engine))
    facts.append(("Workload", f"{workload.preset}, {arrivals}, {lengths}"))
    facts.append(("Objective", SCENARIOS[workload.preset].objective))
    facts.append(("Trade-off", PRESETS[workload.preset].trade_off))
    if not imported:
        facts.append(("Current settings", settings_text(evidence.spec.current)))
    return facts


def _state(evidence: StudyEvidence) -> Literal["waiting", "running", "finished", "cancelled"]:
    if evidence.cancelled:
        return "cancelled"
    if evidence.finished:
        return "finished"
    return "running" if evidence.trials else "waiting"


def _verdict(verdict: StudyVerdict) -> VerdictPart:
    return VerdictPart(
        status=verdict.status,
        sentence=verdict.sentence,
        lede=verdict.lede,
        verification=verdict.verification,
        verification_sentence=verdict.verification_sentence,
        noise_frac=verdict.noise_frac,
        known=verdict.known,
        unknown=verdict.unknown,
        best_trial=verdict.best.ordinal if verdict.best else None,
    )


def _targets(evidence: StudyEvidence, verdict: StudyVerdict) -> tuple[TargetRow, ...]:
    best = {status.target.key: status for status in verdict.targets}
    current = {status.target.key: status for status in verdict.current_targets}
    return tuple(
        TargetRow(
            name=target_name(target),
            metric=target.metric,
            statistic=target.statistic,
            limit=target.limit,
            higher_is_better=target.higher_is_better,
            best=_measured(best.get(target.key)),
            current=_measured(current.get(target.key)),
        )
        for target in evidence.spec.targets
    )


def _measured(status: TargetStatus | None) -> Measured | None:
    if status is None:
        return None
    kept = {k: v for k, v in asdict(status).items() if k in Measured.model_fields}
    return Measured.model_validate(kept)


def _launch(evidence: StudyEvidence, verdict: StudyVerdict) -> tuple[Line, ...]:
    current = evidence.spec.current
    wanted = verdict.recommended or (current if verdict.status == "met" else None)
    if wanted is None:
        return ()
    lines = launch_lines(evidence.spec.model, wanted, current, evidence.spec.engine)
    return tuple(Line(text=line.text, changed=line.changed) for line in lines)


def _plain(value: object) -> str | int | float | bool | None:
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)


def _chart(chart: Chart) -> ChartPart:
    return ChartPart(
        id=chart.id,
        title=chart.title,
        note=chart.note,
        label=chart.label,
        columns=tuple(column.name for column in chart.columns),
        numeric=tuple(column.numeric for column in chart.columns),
        rows=chart.rows,
        figure=chart.figure,
        empty_reason=chart.empty_reason,
    )


def trial_row(trial: TrialEvidence, evidence: StudyEvidence) -> TrialRow:
    """One trial with its value for every target of the study."""
    validity = trial.result.validity if trial.result else None
    failure = f"{trial.failure.kind.text}: {trial.failure.message}" if trial.failure else None
    statuses = target_statuses(trial, evidence.spec)
    return TrialRow(
        ordinal=trial.ordinal,
        id=trial.trial_id,
        title=trial.title,
        role=trial.role,
        experiment=trial.spec.experiment,
        state=trial.state,
        reason=trial.reason,
        settings=trial.settings.model_dump(mode="json"),
        settings_text=NOT_IN_FILE
        if trial.spec.engine == "imported"
        else settings_text(trial.settings),
        validity=validity.verdict if validity else None,
        validity_reasons=validity.reasons if validity else (),
        failure=failure,
        attempts=trial.attempts,
        duration_s=trial.result.duration_s if trial.result else None,
        targets=tuple(m for m in (_measured(s) for s in statuses) if m is not None),
    )
