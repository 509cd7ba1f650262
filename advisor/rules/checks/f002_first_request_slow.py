"""The first request after loading takes several times as long as a warm one."""

from __future__ import annotations

import numpy as np

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.measures import times
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import MIN_REQUESTS, current_baseline, not_applicable, plain
from advisor.targets import trial_metrics
from advisor.thresholds import FIRST_REQUEST_MAX

ID = "first-request-slow"


def check(evidence: StudyEvidence) -> list[Finding]:
    found = current_baseline(evidence)
    metrics = trial_metrics(found[0]) if found is not None else None
    cold = found[1].cold if found is not None else None
    if found is None or cold is None or metrics is None or metrics.succeeded < MIN_REQUESTS:
        missing = "A valid baseline with requests"
        return not_applicable(ID, "The first request is not measured", missing)
    trial, result = found
    if result.arrivals != "closed_loop" or metrics.overlapping:
        missing = "Requests one after the other: in a queue the warm time is not seen"
        return not_applicable(ID, "Warm requests waited for each other", missing)
    first_s = cold.first_request_ttft_s
    warm_s = float(np.median(metrics.ttft_s - metrics.queue_s))
    ratio = first_s / warm_s if warm_s > 0 else 1.0
    item = EvidenceItem(
        text=f"First request: TTFT {units.seconds(first_s)} (once); warm median "
        f"{units.seconds(warm_s)}, n = {metrics.succeeded:,}; {times(ratio)}",
        value=ratio,
        unit="×",
        n=metrics.succeeded,
        trial_id=trial.trial_id,
    )
    if ratio <= FIRST_REQUEST_MAX.value:
        title = f"The first request takes {times(ratio)} the time of a warm one"
        return plain(ID, Verdict.PASS, title, item)
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Warm up before taking traffic: the first request takes {times(ratio)} as long",
            evidence=(item,),
            change=Change(
                text="Send a few requests of typical length before the readiness check passes."
            ),
            confidence="medium",
            confidence_reason="one first request against many warm ones of other lengths",
        )
    ]


RULE = Rule(
    id=ID,
    code="f002",
    group="stability",
    title="The first request is as fast as others",
    failing_title="Warm up before taking traffic",
    why="Allocation, compilation and cold caches fall on whoever comes first. After each scale-up "
    "that is a user.",
    how_measured="Time to first token of the very first request of the process against the median "
    "of the workload's requests.",
    threshold=f"Fails above {FIRST_REQUEST_MAX.value:.0f} × the warm median.",
    source=FIRST_REQUEST_MAX.source,
    when_not="Engines that warm up by themselves before they listen.",
    needs=("a valid baseline with requests",),
    knobs=(),
    check=check,
)
