"""Splitting the model would spend much of prefill on the link between the GPUs."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.rules.checks._parallel import (
    LinkShare,
    Split,
    link_share,
    smallest_split,
    split_change,
    split_needed,
    within_layers,
)
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import device_spec, not_applicable, plain
from advisor.thresholds import LINK_MAX_SHARE

ID = "link-too-slow"


def check(evidence: StudyEvidence) -> list[Finding]:
    device, shape, spec = evidence.device, evidence.shape, device_spec(evidence)
    if device is None or device.kind != "gpu" or device.count < 2 or spec is None or shape is None:
        missing = "A host with two GPUs or more of the catalogue, and a readable config"
        return not_applicable(ID, "There is no link between GPUs", missing)
    tokens, needed = evidence.spec.workload.input_tokens.mean, split_needed(evidence)
    # Where the model must be split, by the size that holds it: the same one that is advised.
    within = within_layers(evidence, shape, spec) if needed else None
    count = within.tp if within is not None and within.tp > 1 else device.count
    link = link_share(evidence, shape, spec, count)
    share = link.share
    item = EvidenceItem(
        text=f"Prefill of {tokens:,} tokens on {count} GPUs: at least "
        f"{units.seconds(link.busy_s)} of work and {units.seconds(link.comm_s)} of all-reduce "
        f"({link.basis}), {units.percent(share)} "
        "(modelled)",
        value=share,
        unit="share",
    )
    if share > LINK_MAX_SHARE.value and not link.slow:
        title = f"By data sheets the link may take {units.percent(share)} of a split prefill"
        summary = (
            "Kernels reach less than the stated arithmetic, so it is less than that. A calibration "
            "of this host measures the link."
        )
        return plain(ID, Verdict.CANNOT_TELL, title, item, summary=summary)
    if not link.slow:
        title = f"The link takes {units.percent(share)} of a split prefill"
        return plain(ID, Verdict.PASS, title, item)
    split = smallest_split(evidence, shape, spec) if needed else None
    if needed and (split is None or split.pp == 1):
        return [_no_pipeline(link, item)]
    layers = split if split is not None else Split(1, count)
    text = f"Use {layers.text} instead of tensor parallelism, GPUs with NVLink, or one larger GPU."
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL if needed else Verdict.INFORMATIVE,
            title=f"Split by layers, not within them: the link takes {units.percent(share)} of "
            "prefill",
            summary="Tensor parallelism sends every token's activations twice per layer, a "
            "pipeline once per stage.",
            evidence=(item,),
            change=split_change(evidence, text, layers) if needed else Change(text=text),
            confidence="medium" if link.measured else "low",
            confidence_reason="work at the data sheet's rates; real kernels take longer, which "
            "makes the link matter less",
        )
    ]


def _no_pipeline(link: LinkShare, item: EvidenceItem) -> Finding:
    """The model must be split, and no number of stages on this host holds it."""
    return Finding(
        rule_id=ID,
        verdict=Verdict.FAIL,
        title=f"Use GPUs with faster links: the link takes {units.percent(link.share)} of prefill",
        summary="Tensor parallelism sends every token's activations twice per layer. No pipeline "
        "on this host holds the model.",
        evidence=(item,),
        change=Change(text="Use GPUs with NVLink, or one larger GPU."),
        confidence="medium" if link.measured else "low",
        confidence_reason="work at the data sheet's rates; real kernels take longer, which "
        "makes the link matter less",
    )


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
    "told else. With links between the GPUs and no calibration of them it cannot tell.",
    source=LINK_MAX_SHARE.source,
    when_not="Decode of few sequences: its messages are small, and latency of the link counts.",
    needs=("a host with two GPUs or more", "a readable config"),
    knobs=("tensor_parallel", "pipeline_parallel"),
    check=check,
)
