"""Some gaps between tokens are many times the usual one."""

from __future__ import annotations

import numpy as np

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.measures import times
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import chunks_not_tokens, current_baseline, hurts, not_applicable, plain
from advisor.targets import trial_metrics
from advisor.thresholds import STALL_MAX_RATIO, STALL_MIN_GAPS
from gpuagent.wire.trial import ServerCounters

ID = "decode-stalls"


def check(evidence: StudyEvidence) -> list[Finding]:
    chunks = chunks_not_tokens(ID, evidence)
    if chunks:
        return chunks
    found = current_baseline(evidence)
    metrics = trial_metrics(found[0]) if found is not None else None
    if found is None or metrics is None or metrics.itl_s.size < STALL_MIN_GAPS.value:
        missing = f"{STALL_MIN_GAPS.value:.0f} gaps between tokens in a valid baseline"
        return not_applicable(ID, "Too few gaps between tokens to see stalls", missing)
    middle, late = (float(v) for v in np.quantile(metrics.itl_s, (0.5, 0.99)))
    ratio = late / middle if middle > 0 else 1.0
    lost = float(np.maximum(metrics.itl_s - STALL_MAX_RATIO.value * middle, 0).sum())
    share = lost / float(metrics.itl_s.sum()) if middle > 0 else 0.0
    item = EvidenceItem(
        text=f"Gaps between tokens: median {units.seconds(middle)}, p99 {units.seconds(late)}, "
        f"{times(ratio)} (n = {metrics.itl_s.size:,} gaps of {metrics.succeeded:,} requests); "
        f"{units.percent(share)} of decode is lost in stalls",
        value=ratio,
        unit="×",
        n=int(metrics.itl_s.size),
        trial_id=found[0].trial_id,
    )
    if ratio <= STALL_MAX_RATIO.value:
        return plain(ID, Verdict.PASS, f"The p99 gap is {times(ratio)} the median", item)
    if not hurts(evidence, "itl_s", "e2e_s"):
        title = f"Some tokens come late ({times(ratio)} the median), within the latency targets"
        return plain(ID, Verdict.INFORMATIVE, title, item)
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Find what stops decoding: one gap in a hundred is {times(ratio)} the median",
            summary="Steps of one length take one time. What is far above it is another request's "
            "prefill, garbage collection, a busy host, or a clock that changed.",
            evidence=(item,),
            change=Change(text=_remedy(found[1].server)),
            confidence="medium",
            confidence_reason="the stalls are measured, their cause is not",
        )
    ]


def _remedy(server: ServerCounters | None) -> str:
    """In a server prompts of others come first; an engine in the process serves one at a time."""
    if server is not None and server.mixed_frac is None:
        return (
            "A server computes prompts of others between tokens: lower the tokens per step "
            "(max_batched_tokens) or prefill in chunks."
        )
    if server is not None and server.mixed_frac is not None:
        return (
            f"{units.percent(server.mixed_frac)} of the steps also computed someone's prompt: "
            "lower the tokens per step (max_batched_tokens) or prefill in chunks."
        )
    return (
        "Compare with an idle host, pin threads to cores, and look at the telemetry of the trial "
        "at the time of the stalls."
    )


RULE = Rule(
    id=ID,
    code="s008",
    group="scheduling",
    title="Tokens come at an even pace",
    failing_title="Find what stops decoding",
    why="A percentile of the gap is made by its tail. A tail of stalls has another cause than a "
    "slow step, and no setting of the model removes it.",
    how_measured="p99 over median of all gaps between tokens of the workload's requests.",
    threshold=f"Fails above {STALL_MAX_RATIO.value:.0f} × with {STALL_MIN_GAPS.value:.0f} gaps or "
    "more, when an ITL or end-to-end target is not met.",
    source=STALL_MAX_RATIO.source,
    when_not="Engines that send several tokens at once: their gaps are bimodal by design.",
    needs=("200 gaps between tokens in a valid baseline",),
    knobs=(),
    check=check,
)
