"""Every request of a study's trials as CSV: what the numbers of a report were computed from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.reports.csv_text import csv_bytes
from gpuagent.request_metrics import request_metrics
from gpuagent.wire.measure import RequestRecord
from gpuagent.wire.trial import BaselineResult, VerifyResult

COLUMNS = (
    "study",
    "trial",
    "trial_id",
    "role",
    "run",
    "side",
    "request",
    "intended_s",
    "sent_s",
    "queue_s",
    "ttft_s",
    "itl_mean_s",
    "itl_max_s",
    "e2e_s",
    "input_tokens",
    "output_tokens",
    "error",
    "basis",
)


def requests_csv(evidence: StudyEvidence) -> bytes:
    """One line for each request, failed ones too; times in seconds, `intended_s` since its run's
    start. A failed request has an error and no latencies. side: a current, b recommended."""
    return csv_bytes(
        COLUMNS, (row for trial in evidence.trials for row in _trial_rows(evidence, trial))
    )


def _trial_rows(evidence: StudyEvidence, trial: TrialEvidence) -> Iterator[dict[str, Any]]:
    engine = evidence.spec.engine
    basis = engine if engine in ("simulated", "imported") else "measured"
    for run, side, records in _runs(trial):
        for number, record in enumerate(records, start=1):
            yield {
                "study": evidence.number,
                "trial": trial.ordinal,
                "trial_id": trial.trial_id,
                "role": trial.role,
                "run": run,
                "side": side,
                "request": number,
                "basis": basis,
                **_record(record),
            }


def _runs(trial: TrialEvidence) -> Iterator[tuple[int, str | None, tuple[RequestRecord, ...]]]:
    baseline, verify = trial.measured(BaselineResult), trial.measured(VerifyResult)
    if baseline is not None:
        yield 1, None, baseline.requests
    if verify is not None:
        for run in verify.runs:
            yield run.order + 1, run.side, run.requests


def _record(record: RequestRecord) -> dict[str, Any]:
    """The definitions are those of every other number: `request_metrics` of this request alone."""
    metrics = request_metrics([record])
    known = {
        "intended_s": record.intended_s,
        "sent_s": record.sent_s,
        "input_tokens": record.input_tokens,
        "output_tokens": record.output_tokens,
    }
    if not metrics.succeeded:
        return {**known, "error": record.error or "no token arrived"}
    gaps = metrics.itl_s
    return {
        **known,
        "queue_s": float(metrics.queue_s[0]),
        "ttft_s": float(metrics.ttft_s[0]),
        "itl_mean_s": float(gaps.mean()) if gaps.size else None,
        "itl_max_s": float(gaps.max()) if gaps.size else None,
        "e2e_s": float(metrics.e2e_s[0]),
    }
