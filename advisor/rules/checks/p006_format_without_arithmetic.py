"""The checkpoint's number format has no arithmetic on this GPU: it saves memory only."""

from __future__ import annotations

from advisor.evidence import StudyEvidence
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import device_spec, not_applicable, plain

ID = "format-without-arithmetic"


def check(evidence: StudyEvidence) -> list[Finding]:
    shape, device, spec = evidence.shape, evidence.device, device_spec(evidence)
    quant = shape.quant if shape is not None else None
    if quant is None or device is None or device.kind != "gpu" or spec is None:
        missing = "A quantised checkpoint on a GPU of the catalogue"
        return not_applicable(ID, "No quantised format to compare", missing)
    if quant.compute not in ("fp8", "fp4", "int8"):
        title = f"{quant.method} stores weights in {quant.bits:g} bits and computes in 16"
        return plain(ID, Verdict.PASS, title)
    known = ", ".join(name for name, _ in spec.flops)
    item = EvidenceItem(
        text=f"The checkpoint computes in {quant.compute} ({quant.method}); {spec.name} has rates "
        f"for {known} ({spec.source})"
    )
    if spec.supports(quant.compute):
        return plain(ID, Verdict.PASS, f"{spec.name} computes in {quant.compute}", item)
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.INFORMATIVE,
            title=f"{quant.compute} saves memory only: {spec.name} has no arithmetic for it",
            summary="Weights are converted to 16 bit for every product, so prefill is no faster "
            "than with 16-bit weights; decode still reads fewer bytes.",
            evidence=(item,),
            change=Change(
                text="Keep it for its memory, or take a format with kernels for this GPU (AWQ or "
                "GPTQ), or a newer GPU for its speed."
            ),
            confidence="medium",
            confidence_reason="by data sheet; kernels were not measured",
        )
    ]


RULE = Rule(
    id=ID,
    code="p006",
    group="precision",
    title="The GPU has arithmetic for the checkpoint's format",
    failing_title="Expect memory, not speed, of this format",
    why="A format of 8 or 4 bits makes products faster only where tensor cores take it. Elsewhere "
    "it costs a conversion.",
    how_measured="The config's quantisation against the rates of the GPU's data sheet.",
    threshold="Told when the GPU has no rate for the checkpoint's arithmetic; never a failure.",
    source="data sheets of the GPU catalogue",
    when_not="When memory is the reason for the format.",
    needs=("a quantised checkpoint", "a GPU of the catalogue"),
    knobs=(),
    check=check,
)
