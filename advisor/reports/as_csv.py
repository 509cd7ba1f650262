"""The report's trials as CSV, one line each: outcome, settings and every target in SI units."""

from __future__ import annotations

from typing import Any

from advisor.reports.csv_text import csv_bytes
from advisor.reports.document import Measured, ReportDocument, TargetRow, TrialRow

_TRIAL = (
    "study",
    "study_name",
    "trial",
    "trial_id",
    "title",
    "role",
    "experiment",
    "state",
    "best",
    "validity",
    "validity_reasons",
    "failure",
    "attempts",
    "duration_s",
)
_MEASURED = ("low", "high", "n", "verdict", "headroom_frac", "basis", "reason")


def to_csv(document: ReportDocument) -> bytes:
    """Columns of a target: `ttft_s_p95` is the value, `ttft_s_p95_low` the interval's lower end."""
    knobs = list(dict.fromkeys(knob for trial in document.trials for knob in trial.settings))
    columns = [*_TRIAL, *(f"setting_{knob}" for knob in knobs)]
    for target in document.targets:
        name = _name(target)
        columns += [name, f"{name}_limit", *(f"{name}_{part}" for part in _MEASURED)]
    return csv_bytes(columns, (_row(document, trial) for trial in document.trials))


def _name(target: TargetRow) -> str:
    return f"{target.metric}_{target.statistic}"


def _row(document: ReportDocument, trial: TrialRow) -> dict[str, Any]:
    row: dict[str, Any] = {
        "study": document.number,
        "study_name": document.name,
        "trial": trial.ordinal,
        "trial_id": trial.id,
        "title": trial.title,
        "role": trial.role,
        "experiment": trial.experiment,
        "state": trial.state,
        "best": trial.ordinal == document.verdict.best_trial,
        "validity": trial.validity,
        "validity_reasons": "; ".join(trial.validity_reasons) or None,
        "failure": trial.failure,
        "attempts": trial.attempts,
        "duration_s": trial.duration_s,
    }
    row |= {f"setting_{knob}": value for knob, value in trial.settings.items()}
    for target, measured in zip(document.targets, trial.targets, strict=True):
        row |= _measured(_name(target), target, measured)
    return row


def _measured(name: str, target: TargetRow, measured: Measured) -> dict[str, Any]:
    parts = {f"{name}_{part}": getattr(measured, part) for part in _MEASURED}
    return {name: measured.value, f"{name}_limit": target.limit, **parts}
