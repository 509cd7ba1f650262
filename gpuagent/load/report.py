"""A run as numbers: the verdict on the client first, then latencies, rates and targets.

Definitions are those of `gpuagent.request_metrics`; percentiles and proofs those of
`gpuagent.stats`. An invalid run keeps its counts and loses every latency.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gpuagent.errors import ConfigError
from gpuagent.load.selfcheck import check_client
from gpuagent.request_metrics import (
    RequestMetrics,
    latency_samples,
    request_metrics,
    throughput,
    with_failed,
)
from gpuagent.stats import clustered_mean, prove_quantile, quantile, summarise
from gpuagent.wire.measure import RequestRecord
from gpuagent.wire.sla import LatencyMetric, SlaTarget, parse_target

if TYPE_CHECKING:
    # A simulated search for the highest rate sends nothing, and the server has no HTTP client.
    from gpuagent.load.driver import LoadRun

CONFIDENCE = 0.95
SHOWN = (0.50, 0.90, 0.95, 0.99)
LATENCIES: tuple[LatencyMetric, ...] = ("ttft_s", "itl_s", "e2e_s")

TargetVerdict = Literal["met", "missed", "not_proven", "not_measured"]


def read_target(text: str) -> SlaTarget:
    """`ttft_s:p99<=0.2` as a target. Raises ConfigError with the accepted form."""
    try:
        target = parse_target(text)
    except ValueError:
        target = None
    if target is not None and target.metric in LATENCIES and target.percentile is not None:
        return target
    raise ConfigError(
        f"target {text!r}: give METRIC:STATISTIC<=SECONDS with ttft_s, itl_s or e2e_s and p50, "
        "p90, p95 or p99, such as ttft_s:p99<=0.2"
    )


@dataclass(frozen=True, slots=True)
class TargetResult:
    """One target against one run. needed_requests: in all, for a proof at the share seen so far.

    value, low, high: the target's percentile in seconds with its 95 % interval, None where it is
    not shown. n, over: samples (gaps for ITL, else requests) and those over the limit, failed
    requests among them.
    """

    target: str
    verdict: TargetVerdict
    limit_s: float
    value: float | None
    low: float | None
    high: float | None
    n: int
    over: int
    needed_requests: int | None
    reason: str


def judge_target(metrics: RequestMetrics, target: SlaTarget) -> TargetResult:
    """Proven met, proven missed, or not proven and how many requests would decide."""
    metric = target.metric
    if target.percentile is None or metric not in LATENCIES:
        raise ValueError(f"{target.key} is no percentile of a latency")
    values, labels, per_request = latency_samples(metric, metrics)
    padded, all_labels = with_failed(values, labels, metrics.failed, per_request)
    if padded.size == 0:
        return _unmeasured(target, "nothing was measured")
    shown = quantile(padded, target.percentile, confidence=CONFIDENCE, clusters=all_labels)
    proof = prove_quantile(
        padded, target.percentile, target.limit, confidence=CONFIDENCE, clusters=all_labels
    )
    what = "gaps" if metric == "itl_s" else "requests"
    reason = f"{proof.over:,} of {proof.n:,} {what} over the limit"
    needed = None
    if proof.verdict == "not_proven":
        if proof.needed_n is None:
            reason += ", too close to the allowed share for any number of requests to decide"
        else:
            needed = max(metrics.sent + 1, math.ceil(proof.needed_n / max(per_request, 1e-9)))
            reason += f"; needs {needed - metrics.sent:,} more requests"
    return TargetResult(
        target=f"{target.key}<={target.limit:g}",
        verdict=proof.verdict,
        limit_s=target.limit,
        value=shown.value,
        low=shown.low,
        high=shown.high,
        n=proof.n,
        over=proof.over,
        needed_requests=needed,
        reason=reason,
    )


def goodput(records: Sequence[RequestRecord], targets: Sequence[SlaTarget]) -> float | None:
    """Share of the requests that kept every limit, each by its own latencies; None without any.

    A request keeps an ITL limit when its own percentile of gaps does.
    """
    if not records or not targets:
        return None
    return sum(_keeps(record, targets) for record in records) / len(records)


def _keeps(record: RequestRecord, targets: Sequence[SlaTarget]) -> bool:
    if record.error is not None or not record.token_s:
        return False
    return all(_within(record, target) for target in targets)


def _within(record: RequestRecord, target: SlaTarget) -> bool:
    if target.metric != "itl_s":
        end = record.token_s[0] if target.metric == "ttft_s" else record.token_s[-1]
        return end - record.intended_s <= target.limit
    gaps = np.diff(record.token_s)
    if gaps.size == 0:
        return True
    share = target.percentile or 0.5
    # The percentile lies between the gaps of two ranks; where both are on one side of the limit
    # there is nothing to interpolate, which takes most of the time of a search.
    below, rank = int((gaps <= target.limit).sum()), int(share * (gaps.size - 1))
    if below <= rank or below > rank + 1:
        return below > rank
    return float(np.quantile(gaps, share)) <= target.limit


def report(
    run: LoadRun, asked: dict[str, Any], targets: Sequence[SlaTarget] = (), *, stopped: bool = False
) -> dict[str, Any]:
    """Everything that is shown of a run, JSON-ready; times in seconds, rates per second.

    asked: the settings of the run, given back as they are.
    """
    validity = check_client(run)
    metrics = request_metrics(run.records)
    usable = validity.verdict != "invalid"
    why_not = f"the run is invalid: {validity.reasons[0]}" if validity.reasons else ""
    rate = throughput(metrics)
    span_s = _span_s(metrics)
    results = [
        judge_target(metrics, target) if usable else _unmeasured(target, why_not)
        for target in targets
    ]
    share = goodput(run.records, targets) if usable else None
    return {
        "verdict": validity.verdict,
        "reasons": list(validity.reasons),
        "checks": [check.model_dump() for check in validity.checks],
        "loop": "open" if run.open_loop else "closed",
        "stopped_early": stopped,
        "asked": asked,
        "requests": {
            "planned": run.planned,
            "recorded": metrics.sent,
            "succeeded": metrics.succeeded,
            "failed": metrics.failed,
            "unfinished": run.unfinished,
            "errors": _errors(run.records),
        },
        "wall_s": run.wall_s,
        "completed_per_s": metrics.succeeded / span_s if span_s else None,
        "rate_achieved_frac": run.rate_achieved_frac,
        "output_tok_s": _throughput(rate.value_tok_s, rate.low, rate.high, rate.reason),
        "latency": {
            name: _latency(metrics, name) if usable else {"reason": why_not} for name in LATENCIES
        },
        "send_lag_s": _plain(metrics.queue_s),
        "tokens": {
            "input": int(metrics.input_tokens.sum()),
            "output": int(metrics.output_tokens.sum()),
            "server_output": run.server_output_tokens,
            "counted_by": list(run.counted),
            "unexpected_lengths": run.unexpected_lengths,
        },
        "turns": _turns(run, usable=usable),
        "peak_in_flight": run.peak_in_flight,
        "targets": [asdict(result) for result in results],
        "goodput": {
            "share_of_requests": share,
            "per_s": share * metrics.sent / span_s if share is not None and span_s else None,
        },
    }


def _turns(run: LoadRun, *, usable: bool) -> list[dict[str, Any]]:
    """Each turn of the sessions: how long its prompt was, how soon its first token came (None in
    an invalid run)."""
    rows = []
    for turn in sorted(set(run.turns)):
        mine = [r for r, place in zip(run.records, run.turns, strict=True) if place == turn]
        metrics = request_metrics(mine)
        ttft = summarise(metrics.ttft_s) if metrics.succeeded and usable else None
        lengths = metrics.input_tokens
        rows.append(
            {
                "turn": turn + 1,
                "n": metrics.sent,
                "failed": metrics.failed,
                "input_tokens_mean": float(lengths.mean()) if lengths.size else None,
                "ttft_s_mean": ttft.mean if ttft else None,
                "ttft_s_low": ttft.mean_low if ttft else None,
                "ttft_s_high": ttft.mean_high if ttft else None,
            }
        )
    return rows


def _span_s(metrics: RequestMetrics) -> float | None:
    """First intended send to the last token; None where nothing succeeded."""
    if metrics.succeeded == 0:
        return None
    return float(metrics.token_s.max() - metrics.intended_s.min()) or None


def _latency(metrics: RequestMetrics, name: LatencyMetric) -> dict[str, Any]:
    values, labels, per_request = latency_samples(name, metrics)
    if values.size == 0:
        return {"reason": "nothing was measured"}
    spread = summarise(values) if labels is None else clustered_mean(values, labels)
    padded, all_labels = with_failed(values, labels, metrics.failed, per_request)
    found: dict[str, Any] = {
        "n": int(values.size),
        "mean": spread.mean,
        "mean_low": spread.mean_low,
        "mean_high": spread.mean_high,
        "minimum": spread.minimum,
        "maximum": spread.maximum,
    }
    for p in SHOWN:
        shown = quantile(padded, p, confidence=CONFIDENCE, clusters=all_labels)
        found[f"p{p * 100:.0f}"] = {
            "value": shown.value,
            "low": shown.low,
            "high": shown.high,
            "reason": shown.reason,
        }
    return found


def _throughput(
    value: float | None, low: float | None, high: float | None, reason: str
) -> dict[str, Any]:
    return {"value": value, "low": low, "high": high, "reason": reason or None}


def _plain(values: Any) -> dict[str, Any] | None:
    if values.size == 0:
        return None
    return {"mean": float(values.mean()), "maximum": float(values.max())}


def _errors(records: Sequence[RequestRecord]) -> dict[str, int]:
    """The ten most frequent errors and how often each came."""
    counts: dict[str, int] = {}
    for record in records:
        if record.error is not None:
            counts[record.error] = counts.get(record.error, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1])[:10])


def _unmeasured(target: SlaTarget, reason: str) -> TargetResult:
    return TargetResult(
        target=f"{target.key}<={target.limit:g}",
        verdict="not_measured",
        limit_s=target.limit,
        value=None,
        low=None,
        high=None,
        n=0,
        over=0,
        needed_requests=None,
        reason=reason,
    )
