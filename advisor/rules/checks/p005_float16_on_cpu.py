"""A processor computes in float16, for which most have no instructions."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.measures import baselines, dtype_of
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import current_baseline, not_applicable, plain
from advisor.thresholds import UNVERIFIED_NOISE

ID = "float16-on-cpu"


def check(evidence: StudyEvidence) -> list[Finding]:
    found, device = current_baseline(evidence), evidence.device
    if found is None or device is None or device.kind != "cpu":
        return not_applicable(ID, "No processor is measured", "A valid baseline on a processor")
    trial, result = found
    if result.model.dtype != "float16":
        return plain(ID, Verdict.PASS, f"The processor computes in {result.model.dtype}")
    if any(dtype_of(other) != "float16" for other in baselines(evidence)):
        missing = "Nothing: another format was measured (dtype-slower)"
        return not_applicable(ID, "float16 is in use and compared by measurement", missing)
    items = [EvidenceItem(text="The engine loaded float16", trial_id=trial.trial_id)]
    rates = device.ceilings
    wide, half = (
        (rates.rate("gemm", "float32"), rates.rate("gemm", "float16")) if rates else (None,) * 2
    )
    if wide and half:
        items.append(
            EvidenceItem(
                text=f"Matrix products reach {units.number(half / 1e9)} GFLOP/s in float16 and "
                f"{units.number(wide / 1e9)} in float32 (calibrated)",
                value=half / wide,
                unit="×",
            )
        )
        if half >= wide * (1 - UNVERIFIED_NOISE.value):
            return plain(ID, Verdict.PASS, "This processor computes float16 at full rate", *items)
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title="Load the model in float32: processors convert every float16 number",
            summary="bfloat16 is worth a try where the processor has instructions for it.",
            evidence=tuple(items),
            change=Change(text="Load the model in float32.", settings={"dtype": "float32"}),
            confidence="high" if len(items) > 1 else "medium",
            confidence_reason="rates measured on this device"
            if len(items) > 1
            else "not measured here",
        )
    ]


RULE = Rule(
    id=ID,
    code="p005",
    group="precision",
    title="The processor computes in a format it has",
    failing_title="Load the model in float32",
    why="Without instructions for float16 each number is converted before and after every "
    "product: half the bytes, and a fraction of the speed.",
    how_measured="The dtype that the engine reports, and the calibrated rates of matrix products "
    "in both formats where there are some.",
    threshold="Fails when a processor runs float16, no other format was measured, and its rate is "
    "not shown to be that of float32.",
    source="own calibration of a processor with AVX-512: 2.6 GFLOP/s in float16, 195 in float32",
    when_not="Processors with AVX512-FP16 or an equivalent.",
    needs=("a valid baseline on a processor",),
    knobs=("dtype",),
    check=check,
)
