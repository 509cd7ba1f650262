"""How one trial stands against one target: met, missed, not proven or not measured.

A target is judged by a test, not by comparing two numbers: `met` and `missed` are both proven at
95 % confidence, and everything between is `not_proven` with the number of requests that would
decide it. Pure; used by rules, verdict, charts and pages.

What is not claimed: latency at a rate from requests sent one after the other; anything from a
measurement that is invalid; a percentile from too few samples. Failed requests count as over every
latency limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from advisor import units
from advisor.evidence import Basis, TrialEvidence
from advisor.reported import ONLY_SUMS, reported_reason, reported_value
from gpuagent.request_metrics import (
    Floats,
    Labels,
    RequestMetrics,
    latency_samples,
    request_metrics,
    throughput,
    with_failed,
)
from gpuagent.stats import clustered_mean, prove_quantile, quantile, summarise
from gpuagent.wire import Quantity, SlaTarget, StudySpec, Workload
from gpuagent.wire.serving import ServeConfig
from gpuagent.wire.trial import BaselineResult, ImportedResult, VerifyConfig, VerifyResult

CONFIDENCE = 0.95
# One reading has no interval of its own; runs of one configuration differ by this much anyway.
SINGLE_READING_NOISE_FRAC = 0.05
LATENCIES = ("ttft_s", "itl_s", "e2e_s")
OF_TOKENS = ("itl_s", "output_tok_s")
"""Metrics that single tokens tell and chunks of several do not."""

TargetVerdict = Literal["met", "missed", "not_proven", "not_measured"]
Side = Literal["a", "b"]


@dataclass(frozen=True, slots=True)
class TargetStatus:
    """One target against one trial.

    value, low, high: the target's statistic with its 95 % interval, in SI units of the metric;
    None where too few samples were taken or nothing was measured (`reason` says which).
    n: samples behind the value (gaps for ITL, requests for TTFT and E2E, blocks for throughput).
    needed_n: *requests* needed in all for a proof at the share over the limit seen so far; None
    where the verdict is proven or more requests would not help.
    headroom_frac: distance to the limit as a share of it, negative beyond the limit.
    reason: one sentence on how the verdict was reached or why there is none.
    trial_id: where the number comes from; None where no trial measured it.
    over: samples over the limit, failed requests among them; None for metrics without samples.
    """

    target: SlaTarget
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
    over: int | None = None


def target_label(target: SlaTarget) -> str:
    """ "TTFT p95 ≤ 200 ms", as it stands in sentences and headings."""
    sign = "≥" if target.higher_is_better else "≤"
    return f"{target_name(target)} {sign} {limit_text(target)}"


def limit_text(target: SlaTarget) -> str:
    """The limit as a person wrote it: 50 ms, not 50.0 ms."""
    value, _, unit = units.metric(target.metric, target.limit, 4).partition(units.NBSP)
    if "." in value:
        value = value.rstrip("0").rstrip(".")
    return f"{value}{units.NBSP}{unit}"


def target_name(target: SlaTarget) -> str:
    """ "TTFT p95"; metrics with one statistic go without it."""
    name = units.METRIC_NAMES[target.metric]
    return f"{name} {target.statistic}" if target.metric in LATENCIES else name


def target_statuses(
    trial: TrialEvidence | None, spec: StudySpec, *, side: Side = "b"
) -> tuple[TargetStatus, ...]:
    """Status of every target of the study for `trial`, in the order of the study."""
    found = tuple(target_status(trial, target, spec.workload, side=side) for target in spec.targets)
    if spec.engine in ("simulated", "imported"):
        basis: Basis = "simulated" if spec.engine == "simulated" else "imported"
        return tuple(replace(status, basis=basis) for status in found)
    return found


def target_status(
    trial: TrialEvidence | None, target: SlaTarget, workload: Workload, *, side: Side = "b"
) -> TargetStatus:
    """Status of one target for `trial`; `side` picks the half of a verification (b: candidate)."""
    if trial is None:
        return _status(None, target, workload, None)
    # The intervals of percentiles are bootstrapped, and every chart of a page asks for them.
    key = ("status", side, target, workload.request_rate_per_s)
    if key not in trial.memo:
        metrics = trial_metrics(trial, side=side)
        trial.memo[key] = _status(trial, target, workload, metrics)
    found: TargetStatus = trial.memo[key]
    return found


def trial_metrics(trial: TrialEvidence, *, side: Side = "b") -> RequestMetrics | None:
    """The trial's requests as arrays; None where it did not succeed or sent none."""
    key = ("metrics", side)
    if key not in trial.memo:
        trial.memo[key] = _trial_metrics(trial, side)
    found: RequestMetrics | None = trial.memo[key]
    return found


def _trial_metrics(trial: TrialEvidence, side: Side) -> RequestMetrics | None:
    baseline = trial.measured(BaselineResult)
    if baseline is not None:
        return request_metrics(baseline.requests)
    verify = trial.measured(VerifyResult)
    if verify is None:
        return None
    runs = [run for run in verify.runs if run.side == side]
    records = [(run.order, record) for run in runs for record in run.requests]
    return request_metrics((record for _, record in records), runs=[order for order, _ in records])


def hides_tokens(trial: TrialEvidence) -> bool:
    """Whether the times of its requests are those of chunks with several tokens."""
    imported = trial.measured(ImportedResult)
    return imported is not None and imported.hidden_tokens


def output_tok_s(trial: TrialEvidence) -> float | None:
    """Output tokens a second; by the tool itself where single tokens have no times."""
    imported = trial.measured(ImportedResult)
    if imported is not None and (imported.hidden_tokens or not imported.requests):
        return imported.output_tok_s.value
    metrics = trial_metrics(trial)
    return throughput(metrics).value_tok_s if metrics is not None else None


def measured_at_rate(trial: TrialEvidence) -> bool:
    """Whether arrivals were open-loop, so that latency at the workload's rate can be claimed."""
    if trial.measured(VerifyResult) is not None:
        # Every engine sends the runs of an A/B at the workload's rate where it has one.
        return trial.spec.workload.request_rate_per_s is not None
    baseline = trial.measured(BaselineResult)
    return baseline is not None and baseline.arrivals == "poisson"


def in_flight(trial: TrialEvidence) -> int:
    """Requests that a closed loop keeps in flight; 1 where they are sent one after the other."""
    config = trial.spec.config
    return config.streams if isinstance(config, ServeConfig | VerifyConfig) else 1


def _status(
    trial: TrialEvidence | None,
    target: SlaTarget,
    workload: Workload,
    metrics: RequestMetrics | None,
) -> TargetStatus:
    absent = _why_absent(trial)
    if trial is None or absent is not None:
        return _unmeasured(target, absent or "no trial has measured it yet")
    found = _judged(trial, target, metrics)
    found = replace(found, headroom_frac=_headroom(target, found.value))
    if found.verdict == "not_measured":
        return found
    if not trial.usable:
        return _withdrawn(found, _invalid_reason(trial))
    rate = workload.request_rate_per_s
    if rate is None or measured_at_rate(trial) or target.metric in ("memory_bytes",):
        return found
    streams, wanted = in_flight(trial), f"{rate:g}{units.NBSP}req/s"
    if streams > 1:
        # So many at once may be more than the rate brings: neither verdict holds at the rate.
        reason = f"measured with {streams} requests in flight; the target is for {wanted}"
        return _withdrawn(found, reason)
    # Queueing and batching only add to latency, so a limit missed by single requests stays missed.
    if target.metric in LATENCIES and found.verdict == "missed":
        return replace(found, reason=f"{found.reason}, already with one request at a time")
    return _withdrawn(found, f"measured one request at a time; the target is for {wanted}")


def _why_absent(trial: TrialEvidence | None) -> str | None:
    if trial is None:
        return "no trial has measured it yet"
    if trial.failure is not None:
        return f"trial {trial.ordinal} failed: {trial.failure.kind.text.lower()}"
    if trial.state == "cancelled":
        return f"trial {trial.ordinal} was cancelled"
    if trial.result is None:
        return f"trial {trial.ordinal} has no result yet"
    if trial.measured(BaselineResult) is None and trial.measured(VerifyResult) is None:
        return f"trial {trial.ordinal} sends no requests"
    return None


def _invalid_reason(trial: TrialEvidence) -> str:
    reasons = trial.result.validity.reasons if trial.result is not None else ()
    return f"the measurement is invalid: {reasons[0] if reasons else 'no reason recorded'}"


def _judged(
    trial: TrialEvidence, target: SlaTarget, metrics: RequestMetrics | None
) -> TargetStatus:
    if target.metric in ("memory_bytes", "joules_per_token"):
        baseline = trial.measured(BaselineResult)
        if baseline is None:
            return _unmeasured(target, "an A/B trial compares latency only")
        if target.metric == "memory_bytes":
            return _exact(trial, target, baseline.peak_memory_bytes)
        return _single_reading(trial, target, baseline.joules_per_token)
    imported = trial.measured(ImportedResult)
    hidden = hides_tokens(trial)
    if imported is not None:
        told = not imported.requests or (hidden and target.metric == "output_tok_s")
        if told:
            return _reported(trial, target, imported)
    if metrics is None or metrics.sent == 0:
        return _unmeasured(target, f"trial {trial.ordinal} sent no requests")
    found = _of_requests(target, metrics, trial.trial_id)
    return _of_chunks(found) if hidden else found


def _reported(trial: TrialEvidence, target: SlaTarget, result: ImportedResult) -> TargetStatus:
    """What the file's sums say: a side of the limit and no proof."""
    answered = result.sent - (result.failed or 0)
    value, n, reason = reported_value(
        target, result.metrics, result.output_tok_s, answered=answered
    )
    if value is None:
        return _unmeasured(target, f"{reason} ({ONLY_SUMS})" if not result.requests else reason)
    told = reported_reason(
        target,
        value,
        sent=result.sent,
        failed=result.failed,
        single_requests=bool(result.requests),
    )
    return TargetStatus(
        target=target,
        verdict="not_proven",
        value=value,
        low=None,
        high=None,
        n=n or 0,
        needed_n=None,
        headroom_frac=None,
        reason=told,
        basis="imported",
        trial_id=trial.trial_id,
    )


def requests_status(
    target: SlaTarget, metrics: RequestMetrics, *, hidden_tokens: bool = False
) -> TargetStatus:
    """Status of a target on latency or throughput for requests that belong to no trial here.

    hidden_tokens: their times are those of chunks with several tokens.
    """
    if target.metric not in (*LATENCIES, "output_tok_s"):
        return _unmeasured(target, "requests alone do not tell it")
    if metrics.sent == 0:
        return _unmeasured(target, "there are no requests")
    found = _of_requests(target, metrics, None)
    found = _of_chunks(found) if hidden_tokens else found
    return replace(found, headroom_frac=_headroom(target, found.value))


def _of_chunks(found: TargetStatus) -> TargetStatus:
    """Gaps between chunks are no shorter than gaps between tokens: they may prove met, not more."""
    if found.target.metric != "itl_s" or found.verdict == "met":
        return found
    why = "the tool's chunks carry several tokens each"
    if found.verdict == "not_measured":
        return replace(found, reason=f"{why}, so that single tokens have no times")
    return _withdrawn(found, f"{why}, so that gaps between tokens may be shorter than these")


def _of_requests(target: SlaTarget, metrics: RequestMetrics, trial_id: str | None) -> TargetStatus:
    if target.metric == "output_tok_s":
        return _rate(trial_id, target, metrics)
    return _latency(trial_id, target, metrics)


# --- latency -----------------------------------------------------------------------------------


def _latency(trial_id: str | None, target: SlaTarget, metrics: RequestMetrics) -> TargetStatus:
    values, labels, per_request = latency_samples(target.metric, metrics)
    if values.size == 0:
        if metrics.failed:
            return _unmeasured(target, f"all {metrics.failed:,} requests failed")
        return _unmeasured(target, "every answer had one token, so there is no gap between tokens")
    if target.percentile is None:
        return _mean(trial_id, target, metrics, values, labels)
    p = target.percentile
    padded, all_labels = with_failed(values, labels, metrics.failed, per_request)
    shown = quantile(padded, p, confidence=CONFIDENCE, clusters=all_labels)
    proof = prove_quantile(padded, p, target.limit, confidence=CONFIDENCE, clusters=all_labels)
    what = "gaps" if target.metric == "itl_s" else "requests"
    counted = f"{proof.over:,} of {proof.n:,} {what} over the limit"
    needed = None
    if proof.verdict == "not_proven":
        reason = counted
        if proof.needed_n is not None:
            needed = max(metrics.sent + 1, math.ceil(proof.needed_n / per_request))
            reason += f"; needs {needed:,} requests ({metrics.sent:,} so far)"
        else:
            reason += ", too close to the allowed share for any number of requests to decide"
    else:
        reason = f"{proof.verdict} with {CONFIDENCE * 100:.0f}{units.NBSP}% confidence: {counted}"
    if shown.value is None and shown.reason:
        reason += f"; {target.statistic} not shown: {shown.reason}"
    return TargetStatus(
        target=target,
        verdict=proof.verdict,
        value=shown.value,
        low=shown.low,
        high=shown.high,
        n=proof.n,
        needed_n=needed,
        headroom_frac=None,
        reason=reason,
        basis="measured",
        trial_id=trial_id,
        over=proof.over,
    )


def _mean(
    trial_id: str | None,
    target: SlaTarget,
    metrics: RequestMetrics,
    values: Floats,
    labels: Labels | None,
) -> TargetStatus:
    spread = summarise(values) if labels is None else clustered_mean(values, labels)
    found = _by_interval(
        trial_id,
        target,
        spread.mean,
        spread.mean_low,
        spread.mean_high,
        spread.n,
        "too few requests",
    )
    if metrics.failed and found.verdict == "met":
        return _withdrawn(
            found, f"{metrics.failed:,} of {metrics.sent:,} requests failed and have no latency"
        )
    return found


# --- throughput, memory, energy ----------------------------------------------------------------


def _rate(trial_id: str | None, target: SlaTarget, metrics: RequestMetrics) -> TargetStatus:
    rate = throughput(metrics)
    if rate.value_tok_s is None:
        return _unmeasured(target, rate.reason)
    return _by_interval(
        trial_id, target, rate.value_tok_s, rate.low, rate.high, rate.blocks, rate.reason
    )


def _by_interval(
    trial_id: str | None,
    target: SlaTarget,
    value: float,
    low: float | None,
    high: float | None,
    n: int,
    why_none: str,
) -> TargetStatus:
    """Met or missed where the whole interval lies on one side of the limit."""
    verdict: TargetVerdict = "not_proven"
    limit, upward = target.limit, target.higher_is_better
    if low is None or high is None:
        reason = f"measured once: {why_none}"
    elif (low >= limit) if upward else (high <= limit):
        verdict, reason = "met", f"the whole 95{units.NBSP}% interval keeps the limit"
    elif (high < limit) if upward else (low > limit):
        verdict, reason = "missed", f"the whole 95{units.NBSP}% interval is beyond the limit"
    else:
        reason = f"the 95{units.NBSP}% interval of the mean holds the limit"
    return TargetStatus(
        target=target,
        verdict=verdict,
        value=value,
        low=low,
        high=high,
        n=n,
        needed_n=None,
        headroom_frac=None,
        reason=reason,
        basis="measured",
        trial_id=trial_id,
    )


def _exact(trial: TrialEvidence, target: SlaTarget, quantity: Quantity) -> TargetStatus:
    """A peak read from a counter: no sampling error, so the comparison itself decides."""
    if quantity.value is None:
        return _unmeasured(target, quantity.reason or "not measured")
    within = quantity.value <= target.limit
    return TargetStatus(
        target=target,
        verdict="met" if within else "missed",
        value=quantity.value,
        low=quantity.value,
        high=quantity.value,
        n=1,
        needed_n=None,
        headroom_frac=None,
        reason="peak of the whole trial, read from a counter",
        basis="exact",
        trial_id=trial.trial_id,
    )


def _single_reading(trial: TrialEvidence, target: SlaTarget, quantity: Quantity) -> TargetStatus:
    """One integral over the trial: decided only outside the noise between runs."""
    if quantity.value is None:
        return _unmeasured(target, quantity.reason or "not measured")
    noise = SINGLE_READING_NOISE_FRAC
    low, high = quantity.value * (1 - noise), quantity.value * (1 + noise)
    found = _by_interval(trial.trial_id, target, quantity.value, low, high, 1, "")
    reason = f"measured once; decided outside ± {units.percent(noise)} between runs"
    return replace(found, low=None, high=None, reason=reason)


def _withdrawn(found: TargetStatus, reason: str) -> TargetStatus:
    return replace(found, verdict="not_proven", needed_n=None, reason=reason)


def _unmeasured(target: SlaTarget, reason: str) -> TargetStatus:
    return TargetStatus(
        target=target,
        verdict="not_measured",
        value=None,
        low=None,
        high=None,
        n=0,
        needed_n=None,
        headroom_frac=None,
        reason=reason,
        basis="measured",
        trial_id=None,
    )


def _headroom(target: SlaTarget, value: float | None) -> float | None:
    if value is None:
        return None
    distance = value - target.limit if target.higher_is_better else target.limit - value
    return distance / target.limit
