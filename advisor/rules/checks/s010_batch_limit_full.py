"""Requests wait although the cache has room, because the batch may not grow."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import (
    NO_COUNTERS,
    hurts,
    not_applicable,
    plain,
    server_counters,
    shares_of,
)
from advisor.thresholds import BATCH_FULL_MAX

ID = "batch-limit-full"


def check(evidence: StudyEvidence) -> list[Finding]:
    found = server_counters(evidence)
    if found is None:
        return not_applicable(ID, "The batch limit was not watched", NO_COUNTERS)
    trial, server = found
    share = units.percent(server.full_frac)
    item = EvidenceItem(
        text=f"In {share} of {shares_of(server)} {server.running_peak:,} requests ran, the most "
        f"that may, while others waited; the cache was at most {units.percent(server.kv_peak_frac)}"
        " full",
        value=server.full_frac,
        unit=f"share of {server.shares_of}",
        n=server.shares_n,
        trial_id=trial.trial_id,
    )
    if server.full_frac <= BATCH_FULL_MAX.value:
        return plain(
            ID, Verdict.PASS, f"The batch was full in {share} of the {server.shares_of}", item
        )
    if not hurts(evidence, "ttft_s", "e2e_s", "output_tok_s"):
        title = (
            f"Requests waited for a place in {share} of the {server.shares_of}, within the targets"
        )
        return plain(ID, Verdict.INFORMATIVE, title, item)
    more = 2 * server.running_peak
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Let more requests run: all places were taken in {share} of the "
            f"{server.shares_of}",
            summary="What waits for a place adds to the time to first token, and a larger batch "
            "costs each token little as long as memory bandwidth is the limit.",
            evidence=(item,),
            change=Change(
                text=f"Raise the number of running requests to {more:,} or more, as far as the "
                "cache and the gap between tokens allow.",
                settings={"max_running": more},
            ),
            confidence="high",
            confidence_reason="the engine counted the steps itself",
        )
    ]


RULE = Rule(
    id=ID,
    code="s010",
    group="scheduling",
    title="The batch has room for those that wait",
    failing_title="Let more requests run",
    why="A limit on running requests protects the gap between tokens. Set too low it only moves "
    "time from the answer into the queue, where nobody sees it but the user.",
    how_measured="Steps with as many running requests as the settings allow, while others wait for "
    "a place, by the engine's counters.",
    threshold=f"Fails above {BATCH_FULL_MAX.value:.0%} of the steps when a latency or throughput "
    "target is not met.",
    source=BATCH_FULL_MAX.source,
    when_not="Where the limit is there to keep the gap between tokens short.",
    needs=("the engine's counters at a request rate",),
    knobs=("max_running",),
    check=check,
)
