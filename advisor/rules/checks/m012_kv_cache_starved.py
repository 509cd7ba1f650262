"""Requests wait, or are thrown out and computed again, because the cache has no room."""

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
from advisor.rules.support_cache import fp8_cache_quality
from advisor.thresholds import CACHE_STARVED_MAX

ID = "kv-cache-starved"


def check(evidence: StudyEvidence) -> list[Finding]:
    found = server_counters(evidence)
    if found is None:
        return not_applicable(ID, "The cache was not watched", NO_COUNTERS)
    trial, server = found
    share = units.percent(server.starved_frac)
    item = EvidenceItem(
        text=f"In {share} of {shares_of(server)} requests waited for room in the cache; "
        f"{server.preemptions:,} were thrown out and computed again; the cache was at most "
        f"{units.percent(server.kv_peak_frac)} full",
        value=server.starved_frac,
        unit=f"share of {server.shares_of}",
        n=server.shares_n,
        trial_id=trial.trial_id,
    )
    if server.starved_frac <= CACHE_STARVED_MAX.value and server.preemptions == 0:
        return plain(
            ID,
            Verdict.PASS,
            f"The cache had room in all but {share} of the {server.shares_of}",
            item,
        )
    if not hurts(evidence, "ttft_s", "itl_s", "e2e_s", "output_tok_s"):
        title = "The cache was full at times, within the targets"
        return plain(ID, Verdict.INFORMATIVE, title, item)
    quality = fp8_cache_quality(evidence) if trial.settings.kv_dtype == "auto" else None
    half = f"store keys and values in fp8, which holds twice the tokens ({quality}); "
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Make room in the cache: requests waited for it in {share} of the "
            f"{server.shares_of}",
            summary="A request without room waits; one that is thrown out computes its whole "
            "prompt a second time.",
            evidence=(item,),
            change=Change(
                text="Give the engine a larger share of the memory; "
                f"{half if quality else ''}or let fewer requests run at once."
            ),
            confidence="high",
            confidence_reason="the engine counted the steps itself",
        )
    ]


RULE = Rule(
    id=ID,
    code="m012",
    group="memory",
    title="The cache has room under load",
    failing_title="Make room in the cache",
    why="The cache decides how many requests can run. Where it is full the engine queues, or "
    "throws requests out and repeats work, and latency rises in jumps.",
    how_measured="Steps in which a request waits for room, and requests that were thrown out, by "
    "the engine's counters.",
    threshold=f"Fails above {CACHE_STARVED_MAX.value:.0%} of the steps, or with any request thrown "
    "out, when a latency or throughput target is not met.",
    source=CACHE_STARVED_MAX.source,
    when_not="Batch work whose throughput is the same with a full cache.",
    needs=("the engine's counters at a request rate",),
    knobs=("memory_share_frac", "kv_dtype", "max_running"),
    check=check,
)
