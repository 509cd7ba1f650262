"""The first request of the measured window is many times slower than the others."""

from __future__ import annotations

import numpy as np

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.measures import times
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import MIN_REQUESTS, current_baseline, not_applicable, plain
from advisor.targets import trial_metrics
from advisor.thresholds import WARM_UP_OUTLIER
from gpuagent.request_metrics import RequestMetrics

ID = "warm-up-in-window"


def check(evidence: StudyEvidence) -> list[Finding]:
    found = current_baseline(evidence)
    metrics = trial_metrics(found[0]) if found is not None else None
    if (
        found is None
        or metrics is None
        or metrics.succeeded <= MIN_REQUESTS
        or found[1].arrivals != "closed_loop"
        or metrics.overlapping
    ):
        missing = "A valid baseline with more than five requests, one after the other"
        return not_applicable(ID, "A warm-up in the window cannot be seen", missing)
    first_s = float((metrics.e2e_s - metrics.queue_s)[0])
    rest = _expected_s(metrics)
    ratio = first_s / rest if rest > 0 else 1.0
    with_it, without = float(metrics.e2e_s.mean()), float(metrics.e2e_s[1:].mean())
    item = EvidenceItem(
        text=f"First request {units.seconds(first_s)}; one of its lengths takes "
        f"{units.seconds(rest)} by the medians of the other {metrics.succeeded - 1:,}, "
        f"{times(ratio)}; mean end-to-end latency {units.seconds(with_it)} with it and "
        f"{units.seconds(without)} without",
        value=ratio,
        unit="×",
        n=metrics.succeeded,
        trial_id=found[0].trial_id,
    )
    if ratio <= WARM_UP_OUTLIER.value:
        title = f"The first measured request takes {times(ratio)} the time of the others"
        return plain(ID, Verdict.PASS, title, item)
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Leave the first request out: it takes {times(ratio)} as long as the others",
            summary="Warm-up ended too early. With few requests one outlier moves means and upper "
            "percentiles.",
            evidence=(item,),
            change=Change(text="Measure again on an idle host; read the numbers without it."),
            confidence="medium",
            confidence_reason="one request; it may have been an unlucky one",
        )
    ]


def _expected_s(metrics: RequestMetrics) -> float:
    """What a request of the first one's lengths takes by the medians of the others.

    A prompt costs a part that grows with its length and a part that does not; the larger of both
    readings is taken, so that lengths alone never look like warm-up.
    """
    prefill_s = (metrics.ttft_s - metrics.queue_s)[1:]
    per_token_s = float(np.median(prefill_s / metrics.input_tokens[1:]))
    first_token_s = max(float(np.median(prefill_s)), per_token_s * int(metrics.input_tokens[0]))
    gaps_s = metrics.itl_s[metrics.itl_request > 0]
    gap_s = float(np.median(gaps_s)) if gaps_s.size else 0.0
    return first_token_s + gap_s * (int(metrics.output_tokens[0]) - 1)


RULE = Rule(
    id=ID,
    code="v006",
    group="measurement",
    title="Warm-up is outside the window",
    failing_title="Leave the first request out",
    why="The first requests of a process pay for allocation and compilation that later ones do "
    "not. Inside the window they look like a slow tail.",
    how_measured="Time of the first request against what the medians of the others give for its "
    "lengths, both means beside each other.",
    threshold=f"Fails above {WARM_UP_OUTLIER.value:.0f} ×.",
    source=WARM_UP_OUTLIER.source,
    when_not="When cold requests are what is to be measured.",
    needs=("a valid baseline with requests one after the other",),
    knobs=(),
    check=check,
)
