"""The wait for the first token takes more of an answer's time than all other tokens together."""

from __future__ import annotations

import math

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import chunks_not_tokens, current_baseline, hurts, not_applicable
from advisor.targets import trial_metrics
from advisor.thresholds import PREFILL_MAX_SHARE, PREFILL_MIN_OUTPUT
from gpuagent.request_metrics import Floats, RequestMetrics
from gpuagent.stats.distributions import t_quantile

ID = "prefill-dominant"


def check(evidence: StudyEvidence) -> list[Finding]:
    chunks = chunks_not_tokens(ID, evidence)
    if chunks:
        return chunks
    found = current_baseline(evidence)
    metrics = trial_metrics(found[0]) if found is not None else None
    if found is None or metrics is None or metrics.succeeded == 0:
        missing = "A valid baseline of the current settings with requests"
        return not_applicable(ID, "The share of prefill is not measured", missing)
    trial, result = found
    if result.server is not None and result.arrivals == "poisson":
        missing = "Requests one after the other: at a rate a server's TTFT holds the waiting, too"
        return not_applicable(ID, "Prefill and waiting cannot be told apart", missing)
    prefill_s = metrics.ttft_s - metrics.queue_s
    share, low, high = _share(prefill_s, metrics.e2e_s)
    shown = units.percent(share)
    item = EvidenceItem(
        text=f"Prefill takes {units.seconds(float(prefill_s.mean()))} of "
        f"{units.seconds(float(metrics.e2e_s.mean()))} end to end, {shown}"
        f"{_interval(low, high)}, over {metrics.succeeded:,} requests of "
        f"{metrics.input_tokens.mean():,.0f} prompt and {metrics.output_tokens.mean():,.0f} output "
        "tokens",
        value=share,
        low=low,
        high=high,
        unit="share",
        n=metrics.succeeded,
        trial_id=trial.trial_id,
        chart="e2e-trials",
    )
    if share <= PREFILL_MAX_SHARE.value:
        return [
            Finding(
                rule_id=ID,
                verdict=Verdict.PASS,
                title=f"Decode, not prefill, sets the latency: prefill is {shown} of an answer",
                evidence=(item,),
            )
        ]
    if low is not None and low <= PREFILL_MAX_SHARE.value:
        return [_other(Verdict.CANNOT_TELL, f"Prefill is about half of an answer ({shown})", item)]
    if metrics.output_tokens.mean() < PREFILL_MIN_OUTPUT.value:
        title = f"Prefill is {shown} of an answer, as short answers have it"
        return [_other(Verdict.INFORMATIVE, title, item)]
    if not hurts(evidence, "ttft_s", "e2e_s"):
        title = f"Prefill is {shown} of an answer, within the latency targets"
        return [_other(Verdict.INFORMATIVE, title, item)]
    return [_failing(metrics, shown, item)]


def _share(prefill_s: Floats, e2e_s: Floats) -> tuple[float, float | None, float | None]:
    """Ratio of sums with its 95 % interval (linearised over requests)."""
    n = prefill_s.size
    share = float(prefill_s.sum() / e2e_s.sum())
    if n < 2:
        return share, None, None
    residual = prefill_s - share * e2e_s
    error = math.sqrt(n / (n - 1) * float((residual**2).sum())) / float(e2e_s.sum())
    half = t_quantile(0.975, n - 1) * error
    return share, share - half, share + half


def _failing(metrics: RequestMetrics, shown: str, item: EvidenceItem) -> Finding:
    per_token_s = float((metrics.ttft_s - metrics.queue_s).sum() / metrics.input_tokens.sum())
    return Finding(
        rule_id=ID,
        verdict=Verdict.FAIL,
        title=f"Shorten prefill: it is {shown} of every answer",
        summary="Settings of decode cannot move this share; fewer prompt tokens to compute can.",
        evidence=(
            item,
            EvidenceItem(
                text=f"One prompt token costs {units.seconds(per_token_s)}",
                value=per_token_s,
                unit="s/token",
                n=metrics.succeeded,
                trial_id=item.trial_id,
                chart="prefill-grid",
            ),
        ),
        change=Change(
            text="Keep the cache of prompt beginnings that requests share (prefix caching), cut "
            "the prompt, or prefill on a device with more compute."
        ),
        confidence="high",
        confidence_reason="both times are measured in the same requests",
    )


def _other(verdict: Verdict, title: str, item: EvidenceItem) -> Finding:
    return Finding(rule_id=ID, verdict=verdict, title=title, evidence=(item,))


def _interval(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return ", measured once"
    return f" (95{units.NBSP}% interval {units.percent(low)} to {units.percent(high)})"


RULE = Rule(
    id=ID,
    code="s001",
    group="scheduling",
    title="Decode sets the latency of an answer",
    failing_title="Shorten prefill",
    why="Prefill computes the whole prompt before the first token. Where it outweighs decode, "
    "faster decoding is wasted effort: what helps is fewer prompt tokens or more compute.",
    how_measured="Time from sending a request to its first token as a share of its end-to-end "
    "latency, summed over the workload's requests; the client's own queue is left out.",
    threshold=f"Fails above {PREFILL_MAX_SHARE.value * 100:.0f} % when a TTFT or end-to-end target "
    f"is not met and answers have {PREFILL_MIN_OUTPUT.value:.0f} tokens or more.",
    source=PREFILL_MAX_SHARE.source,
    when_not="Classification, extraction and other short answers are prefill by nature.",
    needs=("a valid baseline of the current settings with requests",),
    knobs=(),
    check=check,
)
