"""The allocator holds memory that it cannot hand out, or had to free and ask again."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import latest, not_applicable, plain
from advisor.thresholds import FRAGMENTATION_MAX
from gpuagent.wire.trial import ProfileResult

ID = "memory-fragmented"


def check(evidence: StudyEvidence) -> list[Finding]:
    found = latest(evidence, ProfileResult)
    memory = found[1].memory if found is not None else None
    if found is None or memory is None:
        reason = found[1].memory_reason if found is not None else None
        missing = "A profile on a GPU, with the allocator's snapshot"
        return not_applicable(
            ID, "The allocator was not looked into", f"{missing} ({reason})" if reason else missing
        )
    trial, _ = found
    device = evidence.device.memory_bytes if evidence.device is not None else None
    unused = memory.reserved_peak_bytes - memory.allocated_peak_bytes
    share = unused / device if device else memory.fragmentation_frac
    items = (
        EvidenceItem(
            text=f"At their peaks {units.memory(memory.reserved_peak_bytes)} were reserved and "
            f"{units.memory(memory.allocated_peak_bytes)} in use, in {memory.segments:,} segments",
            value=memory.fragmentation_frac,
            unit="share of reserved",
            trial_id=trial.trial_id,
        ),
        EvidenceItem(
            text=f"{memory.alloc_retries:,} times the allocator freed its blocks and asked again; "
            f"{memory.ooms:,} times it found none",
            value=memory.alloc_retries,
            n=memory.alloc_retries,
            trial_id=trial.trial_id,
        ),
    )
    if memory.alloc_retries == 0 and share <= FRAGMENTATION_MAX.value:
        title = f"The allocator holds {units.memory(unused)} that nothing uses"
        return plain(ID, Verdict.PASS, title, *items)
    why = (
        f"{memory.alloc_retries:,} retries"
        if memory.alloc_retries
        else f"{units.memory(unused)} lie unused"
    )
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Stop the allocator from fragmenting: {why}",
            summary="Each retry stops the device until all blocks are given back.",
            evidence=items,
            change=Change(
                text="Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, reuse buffers of fixed "
                "sizes, and avoid batches of ever new shapes."
            ),
            confidence="high" if memory.alloc_retries else "medium",
            confidence_reason="counted by the allocator"
            if memory.alloc_retries
            else "peaks of both figures need not fall on one moment",
        )
    ]


RULE = Rule(
    id=ID,
    code="m011",
    group="memory",
    title="The allocator hands out what it holds",
    failing_title="Stop the allocator from fragmenting",
    why="Blocks of the wrong size are memory that is paid for and not usable; when the device is "
    "full they turn into retries, and then into out of memory.",
    how_measured="The snapshot of PyTorch's caching allocator at the end of a profile: reserved "
    "against allocated at their peaks, and its count of retries.",
    threshold=f"Fails with any retry, or when more than {FRAGMENTATION_MAX.value:.0%} of the "
    "device is reserved and unused.",
    source=FRAGMENTATION_MAX.source,
    when_not="Right after a phase of larger batches: the allocator keeps blocks for their return.",
    needs=("a profile on a GPU",),
    knobs=(),
    check=check,
)
