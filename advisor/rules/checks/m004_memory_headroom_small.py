"""The peak comes close to what the device has."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import current_baseline, not_applicable, plain
from advisor.thresholds import MEMORY_MAX_SHARE

ID = "memory-headroom-small"


def check(evidence: StudyEvidence) -> list[Finding]:
    found = current_baseline(evidence)
    device = evidence.device
    if found is None or device is None or device.memory_bytes is None:
        missing = "A valid baseline on a device whose memory is known"
        return not_applicable(ID, "The headroom of memory is not measured", missing)
    trial, result = found
    peak = result.peak_memory_bytes.value
    if peak is None:
        reason = result.peak_memory_bytes.reason or "not measured"
        return not_applicable(ID, "Peak memory was not read", f"A counter of memory ({reason})")
    share = peak / device.memory_bytes
    item = EvidenceItem(
        text=f"Peak {units.memory(peak)} of {units.memory(device.memory_bytes)}, "
        f"{units.percent(share)} (read once, whole trial)",
        value=share,
        unit="share",
        n=1,
        trial_id=trial.trial_id,
    )
    if share <= MEMORY_MAX_SHARE.value:
        title = f"{units.memory(device.memory_bytes - peak)} of memory stay free at the peak"
        return plain(ID, Verdict.PASS, title, item)
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Leave memory free: the peak takes {units.percent(share)} of the device",
            summary="The workload was short. Longer prompts, more requests at once or a "
            "fragmented allocator need the rest.",
            evidence=(item,),
            change=Change(
                text="Lower the batch or the longest context, load fewer bits per weight, or use a "
                "device with more memory."
            ),
            confidence="high",
            confidence_reason="read from a counter",
        )
    ]


RULE = Rule(
    id=ID,
    code="m004",
    group="memory",
    title="Some memory stays free at the peak",
    failing_title="Leave memory free",
    why="A service that runs at the edge of its memory ends with the first request that is longer "
    "than the test's.",
    how_measured="Peak of the process or of the device allocator over the whole trial, against the "
    "device's memory.",
    threshold=f"Fails above {MEMORY_MAX_SHARE.value:.0%} of the memory.",
    source=MEMORY_MAX_SHARE.source,
    when_not="Engines that reserve their cache at start fill the device by design.",
    needs=("a valid baseline", "the memory of the device"),
    knobs=(),
    check=check,
)
