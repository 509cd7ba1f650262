"""Splitting the model would spend much of prefill on the link between the GPUs."""

from __future__ import annotations

from advisor import units
from advisor.estimates.roofline import Placement, Roofline, StepFloor
from advisor.evidence import StudyEvidence
from advisor.measures import resolved_dtype
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import (
    current_baseline,
    device_spec,
    longest_tokens,
    not_applicable,
    plain,
    predict,
)
from advisor.thresholds import LINK_MAX_SHARE

ID = "link-too-slow"


def check(evidence: StudyEvidence) -> list[Finding]:
    device, shape, spec = evidence.device, evidence.shape, device_spec(evidence)
    if device is None or device.kind != "gpu" or device.count < 2 or spec is None or shape is None:
        missing = "A host with two GPUs or more of the catalogue, and a readable config"
        return not_applicable(ID, "There is no link between GPUs", missing)
    count, tokens = device.count, evidence.spec.workload.input_tokens.mean
    dtype = "auto" if shape.quant is not None else resolved_dtype(evidence.spec.current, shape)
    roofline = Roofline(shape, Placement(spec, gpus=count, tp=count, dtype=dtype))
    floor = roofline.prefill(tokens)
    measured = device.ceilings.rate("all_reduce") if device.ceilings is not None else None
    # The ring factor is in the model's bytes; the calibrated rate counts one buffer.
    plain_bytes = roofline.comm_bytes(tokens) / (2 * (count - 1) / count)
    comm_s = plain_bytes / measured if measured else floor.comm_s
    busy_s = _busy_s(floor)
    share = comm_s / (comm_s + busy_s) if comm_s + busy_s > 0 else 0.0
    basis = "calibrated all-reduce" if measured else "link of the data sheet"
    item = EvidenceItem(
        text=f"Prefill of {tokens:,} tokens on {count} GPUs: at least {units.seconds(busy_s)} of "
        f"work and {units.seconds(comm_s)} of all-reduce ({basis}), {units.percent(share)} "
        "(modelled)",
        value=share,
        unit="share",
    )
    if share <= LINK_MAX_SHARE.value:
        title = f"The link takes {units.percent(share)} of a split prefill"
        return plain(ID, Verdict.PASS, title, item)
    alone = predict(evidence, context=longest_tokens(evidence.spec.workload))
    ran = current_baseline(evidence) is not None
    needed = alone is not None and not alone.memory.fits and not ran
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL if needed else Verdict.INFORMATIVE,
            title=f"Split by layers, not within them: the link takes {units.percent(share)} of "
            "prefill",
            summary="Tensor parallelism sends every token's activations twice per layer, a "
            "pipeline once per stage.",
            evidence=(item,),
            change=Change(
                text=f"Use pipeline parallel size {count} instead of tensor parallelism, GPUs "
                "with NVLink, or one larger GPU."
            ),
            confidence="medium" if measured else "low",
            confidence_reason="work at the data sheet's rates; real kernels take longer, which "
            "makes the link matter less",
        )
    ]


def _busy_s(floor: StepFloor) -> float:
    return max(floor.memory_s, floor.compute_s + floor.attention_s)


RULE = Rule(
    id=ID,
    code="d005",
    group="parallelism",
    title="The link between GPUs keeps up",
    failing_title="Split by layers, not within them",
    why="Tensor parallelism needs two all-reduces per layer. Over PCIe they can take longer than "
    "the work they divide.",
    how_measured="Bytes of the all-reduces of a prefill over the calibrated rate of this host (or "
    "the data sheet's link), against the floor of its work.",
    threshold=f"Fails above {LINK_MAX_SHARE.value:.0%} of prefill when the model must be split; "
    "told else.",
    source=LINK_MAX_SHARE.source,
    when_not="Decode of few sequences: its messages are small, and latency of the link counts.",
    needs=("a host with two GPUs or more", "a readable config"),
    knobs=(),
    check=check,
)
