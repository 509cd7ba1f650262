"""The weights take so much of the memory that little is left for the cache."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import (
    current_baseline,
    hurts,
    mean_tokens,
    needed_concurrency,
    not_applicable,
    plain,
    predict,
)
from advisor.thresholds import WEIGHTS_MAX_SHARE

ID = "weights-crowd-cache"


def check(evidence: StudyEvidence) -> list[Finding]:
    found, device = current_baseline(evidence), evidence.device
    if found is None or device is None or device.memory_bytes is None:
        missing = "A valid baseline on a device whose memory is known"
        return not_applicable(ID, "The weight of the weights is not measured", missing)
    trial, result = found
    model = result.model
    weights = model.stored_weight_bytes
    if weights is None:
        return not_applicable(ID, "The weight of the weights is not known", "A model loaded here")
    share = weights / device.memory_bytes
    item = EvidenceItem(
        text=f"Weights in {model.dtype} take {units.memory(weights)} of "
        f"{units.memory(device.memory_bytes)}, {units.percent(share)}",
        value=share,
        unit="share",
        trial_id=trial.trial_id,
    )
    if share <= WEIGHTS_MAX_SHARE.value:
        title = f"The weights leave {units.percent(1 - share)} of the memory to the cache"
        return plain(ID, Verdict.PASS, title, item)
    if not _tight(evidence):
        title = f"The weights take {units.percent(share)} of the memory, which this load allows"
        return plain(ID, Verdict.INFORMATIVE, title, item)
    # On a processor a narrower format may be slower, so the choice is left to what was measured.
    halves = model.dtype == "float32" and device.kind == "gpu"
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Store weights in fewer bits: they take {units.percent(share)} of the memory",
            evidence=(item,),
            change=Change(
                text="Load the model in bfloat16, which halves them."
                if halves
                else "Use a checkpoint with 8- or 4-bit weights and compare its quality, or split "
                "the model over more devices.",
                settings={"dtype": "bfloat16"} if halves else {},
            ),
            confidence="high",
            confidence_reason="bytes of the loaded tensors",
        )
    ]


def _tight(evidence: StudyEvidence) -> bool:
    """Whether the load or a target asks for memory that the weights hold."""
    if evidence.spec.targets and hurts(evidence, "memory_bytes"):
        return True
    needed = needed_concurrency(evidence)
    room = predict(evidence, context=mean_tokens(evidence.spec.workload))
    return needed is not None and room is not None and room.memory.max_concurrency < needed[0]


RULE = Rule(
    id=ID,
    code="m008",
    group="memory",
    title="The weights leave room for the cache",
    failing_title="Store the weights in fewer bits",
    why="What the weights do not take holds the sequences that run at once, and those set the "
    "throughput.",
    how_measured="Bytes of the loaded parameter tensors against the device's memory.",
    threshold=f"Fails above {WEIGHTS_MAX_SHARE.value:.0%} of the memory when a memory target is "
    "missed or the cache holds fewer sequences than the load needs.",
    source=WEIGHTS_MAX_SHARE.source,
    when_not="One stream on a dedicated device needs no room for others.",
    needs=("a valid baseline", "the memory of the device"),
    knobs=("dtype",),
    check=check,
)
