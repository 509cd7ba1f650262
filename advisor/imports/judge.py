"""Imported trials against targets: proven where the file holds single requests, else as reported.

A sum alone proves nothing: it does not say which requests shared a batch or when they were sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from advisor import units
from advisor.imports.model import ImportedTrial
from advisor.reported import reported_reason, reported_value, side_of
from advisor.targets import TargetVerdict, requests_status, target_label
from gpuagent.request_metrics import request_metrics, throughput
from gpuagent.wire.base import WireModel
from gpuagent.wire.sla import SlaTarget

_OF_REQUESTS = ("ttft_s", "itl_s", "e2e_s", "output_tok_s")
_RATE_SLACK = 0.1


class ImportedStatus(WireModel):
    """One target against one imported trial.

    value, low, high: SI units of the metric. reported: on which side of the limit the tool's own
    number lies, where nothing is proven. needed_requests: in all, for a proof.
    """

    target: SlaTarget
    label: str
    verdict: TargetVerdict
    reported: Literal["within", "beyond"] | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    needed_requests: int | None = None
    reason: str
    basis: str


def judge_import(trial: ImportedTrial, targets: Sequence[SlaTarget]) -> tuple[ImportedStatus, ...]:
    """Status of every target, in order."""
    return tuple(_status(trial, target) for target in targets)


def _status(trial: ImportedTrial, target: SlaTarget) -> ImportedStatus:
    if trial.records and target.metric in _OF_REQUESTS:
        metrics = request_metrics(trial.records)
        hidden = hidden_tokens(trial, throughput(metrics).value_tok_s)
        found = requests_status(target, metrics, hidden_tokens=hidden)
        if target.metric == "output_tok_s" and hidden:
            return _as_reported(trial, target)
        return ImportedStatus(
            target=target,
            label=target_label(target).replace(units.NBSP, " "),
            verdict=found.verdict,
            reported=None if found.value is None else side_of(target, found.value),
            value=found.value,
            low=found.low,
            high=found.high,
            n=found.n,
            needed_requests=found.needed_n,
            reason=found.reason,
            basis=trial.basis,
        )
    return _as_reported(trial, target)


def hidden_tokens(trial: ImportedTrial, value: float | None) -> bool:
    """Whether chunks carried more tokens than one, so that counting them says too little."""
    told = trial.output_tok_s.value
    return told is not None and (value is None or value < (1 - _RATE_SLACK) * told)


def _as_reported(trial: ImportedTrial, target: SlaTarget) -> ImportedStatus:
    answered = trial.requests - (trial.failed or 0)
    value, n, reason = reported_value(target, trial.metrics, trial.output_tok_s, answered=answered)
    if value is None:
        return _made(trial, target, "not_measured", reason)
    told = reported_reason(
        target,
        value,
        sent=trial.requests,
        failed=trial.failed,
        single_requests=bool(trial.records),
    )
    found_status = _made(trial, target, "not_proven", told)
    return found_status.model_copy(
        update={"reported": side_of(target, value), "value": value, "n": n}
    )


def _made(
    trial: ImportedTrial, target: SlaTarget, verdict: TargetVerdict, reason: str
) -> ImportedStatus:
    return ImportedStatus(
        target=target,
        label=target_label(target).replace(units.NBSP, " "),
        verdict=verdict,
        reason=reason,
        basis=trial.basis,
    )
