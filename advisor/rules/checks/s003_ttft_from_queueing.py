"""The time to the first token is mostly waiting for others, not computing the prompt."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.rules.rule import Change, Effect, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import (
    MIN_REQUESTS,
    current_baseline,
    hurts,
    modelled_gain,
    not_applicable,
    plain,
    unloaded_prefill_s,
)
from advisor.targets import trial_metrics
from advisor.thresholds import QUEUE_MAX_SHARE
from gpuagent.request_metrics import RequestMetrics, dependence_labels
from gpuagent.stats import clustered_mean, summarise

ID = "ttft-from-queueing"


def check(evidence: StudyEvidence) -> list[Finding]:
    found = current_baseline(evidence)
    metrics = trial_metrics(found[0]) if found is not None else None
    if found is None or metrics is None or metrics.succeeded < MIN_REQUESTS:
        return _absent("A valid baseline at a request rate")
    trial, result = found
    if result.arrivals != "poisson":
        return _absent("A request rate: requests sent one after the other never wait")
    prefill_s = unloaded_prefill_s(result, round(float(metrics.input_tokens.mean())))
    if prefill_s is None:
        return _absent("Prefill at batch 1 in the grid")
    mean_s, low_s, high_s = _mean(metrics)
    share = max(0.0, 1 - prefill_s / mean_s)
    low = max(0.0, 1 - prefill_s / low_s) if low_s is not None and low_s > 0 else None
    high = 1 - prefill_s / high_s if high_s is not None else None
    limits = f" (95{units.NBSP}% interval {units.percent(low)} to {units.percent(high)})"
    item = EvidenceItem(
        text=f"Mean TTFT {units.seconds(mean_s)} over {metrics.succeeded:,} requests; a prompt of "
        f"that length alone takes {units.seconds(prefill_s)}: {units.percent(share)} is waiting"
        f"{limits if low is not None else ''}",
        value=share,
        low=low,
        high=high,
        unit="share",
        n=metrics.succeeded,
        trial_id=trial.trial_id,
    )
    limit = QUEUE_MAX_SHARE.value
    shown = units.percent(share)
    if share <= limit:
        return plain(ID, Verdict.PASS, f"Waiting is {shown} of the time to first token", item)
    if low is None or low <= limit:
        return plain(ID, Verdict.CANNOT_TELL, f"Waiting may be half of TTFT ({shown})", item)
    if not hurts(evidence, "ttft_s", "e2e_s"):
        title = f"Waiting is {shown} of TTFT, within the latency targets"
        return plain(ID, Verdict.INFORMATIVE, title, item)
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Shorten the queue: {shown} of the time to first token is waiting",
            summary="A faster prefill moves the smaller part. The queue shrinks with more "
            "capacity or less load, and does so faster than in proportion.",
            evidence=(item,),
            change=Change(
                text="Lower the rate per replica, add replicas, or serve requests together "
                "(continuous batching)."
            ),
            effect=Effect(metric="ttft_s", change_frac=-share, basis="modelled", better=True),
            confidence="medium",
            confidence_reason="waiting is measured; without any queue it would be gone",
            gain=modelled_gain(evidence, {"ttft_s": -share}),
        )
    ]


def _mean(metrics: RequestMetrics) -> tuple[float, float | None, float | None]:
    labels = dependence_labels(metrics)
    spread = summarise(metrics.ttft_s) if labels is None else clustered_mean(metrics.ttft_s, labels)
    return spread.mean, spread.mean_low, spread.mean_high


def _absent(missing: str) -> list[Finding]:
    return not_applicable(ID, "Waiting is not measured", missing)


RULE = Rule(
    id=ID,
    code="s003",
    group="scheduling",
    title="Prefill, not the queue, sets the time to first token",
    failing_title="Shorten the queue",
    why="Time to first token is waiting plus prefill. They have opposite remedies, and the sum "
    "does not tell them apart.",
    how_measured="Mean TTFT from the intended send under open-loop arrivals, against prefill of "
    "the same length measured alone.",
    threshold=f"Fails when waiting is proven above {QUEUE_MAX_SHARE.value:.0%} of TTFT and a TTFT "
    "or end-to-end target is not met.",
    source=QUEUE_MAX_SHARE.source,
    when_not="Batch jobs, where only the end of the whole queue matters.",
    needs=("a baseline at a request rate",),
    knobs=(),
    check=check,
)
