"""The number of GPUs of the host does not divide the heads of the model."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.estimates.memory import allowed_tp, tp_problem
from advisor.evidence import StudyEvidence
from advisor.rules.checks._parallel import smallest_split, split_needed
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import device_spec, not_applicable, plain

ID = "tensor-parallel-heads"


def check(evidence: StudyEvidence) -> list[Finding]:
    device, shape = evidence.device, evidence.shape
    if device is None or device.kind != "gpu" or device.count < 2 or shape is None:
        missing = "A host with two GPUs or more and a readable config"
        return not_applicable(ID, "There are no GPUs to divide heads over", missing)
    item = EvidenceItem(
        text=f"{shape.heads} query and {shape.kv_heads} K/V heads, {device.count} GPUs (config)",
        value=shape.heads,
    )
    problem = tp_problem(shape, device.count)
    if problem is None:
        title = f"The heads divide over all {device.count} GPUs"
        return plain(ID, Verdict.PASS, title, item)
    needed, spec = split_needed(evidence), device_spec(evidence)
    split = smallest_split(evidence, shape, spec) if needed and spec is not None else None
    pipeline = f"pipeline parallel size {device.count}" if split is None else split.text
    sizes = [size for size in allowed_tp(shape, device.count) if size > 1 or not needed]
    return [
        Finding(
            rule_id=ID,
            # Where layers are split anyway, no size has to divide the heads.
            verdict=Verdict.FAIL
            if needed and (not sizes or split is None or split.pp == 1)
            else Verdict.INFORMATIVE,
            title=f"{_advice(sizes)}: {device.count} does not divide the heads",
            summary=f"{problem[:1].upper()}{problem[1:]}.",
            evidence=(item,),
            change=Change(
                text=f"Split over {max(sizes)} GPUs at most; use the others for replicas or "
                "pipeline stages."
                if sizes and max(sizes) > 1
                else "Run one replica per GPU."
                if sizes
                else f"Use {pipeline}, or one larger GPU."
            ),
            confidence="high",
            confidence_reason="engines refuse other sizes at start",
        )
    ]


def _advice(sizes: Sequence[int]) -> str:
    if not sizes:
        return "Split by layers, not by heads"
    *first, last = map(str, sizes)
    words = f"{', '.join(first)} or {last}" if first else last
    return f"Use tensor parallel size {words}"


RULE = Rule(
    id=ID,
    code="d002",
    group="parallelism",
    title="The heads divide over the GPUs",
    failing_title="Use a tensor parallel size that divides the heads",
    why="Tensor parallelism gives each GPU whole heads. A size that does not divide them ends in "
    "an error at start, after the weights were loaded.",
    how_measured="Heads and K/V heads of the config against the number of GPUs.",
    threshold="Fails when the size of the host does not divide them and the model must be split; "
    "told when it fits one GPU.",
    source="vLLM issues 414, 596 and 11797",
    when_not="Replicas of a model that fits one GPU need no division.",
    needs=("a host with two GPUs or more", "a readable config"),
    knobs=(),
    check=check,
)
