"""A GPU computes in float32 although 16 bit halves what every step reads."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.measures import baselines, dtype_of
from advisor.rules.rule import Change, Effect, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import (
    current_baseline,
    device_spec,
    modelled_gain,
    not_applicable,
    plain,
)

ID = "float32-on-gpu"
# Compute capability from which tensor cores take bfloat16.
_AMPERE = 8.0


def check(evidence: StudyEvidence) -> list[Finding]:
    found, device = current_baseline(evidence), evidence.device
    if found is None or device is None or device.kind != "gpu":
        return not_applicable(ID, "No GPU is measured", "A valid baseline on a GPU")
    trial, result = found
    model = result.model
    if model.dtype != "float32":
        return plain(ID, Verdict.PASS, f"The GPU computes in {model.dtype}")
    if any(dtype_of(other) != "float32" for other in baselines(evidence)):
        missing = "Nothing: 16 bit was measured (dtype-slower)"
        return not_applicable(ID, "float32 is in use and compared by measurement", missing)
    weights = model.stored_weight_bytes
    if weights is None:
        return not_applicable(ID, "The size of the weights is not known", "A model loaded here")
    half = "bfloat16" if _takes_bfloat16(evidence) else "float16"
    items = [
        EvidenceItem(
            text=f"{units.memory(weights)} of weights in float32 are read per "
            f"step; {half} has {units.memory(weights / 2)}",
            value=weights,
            unit="B",
            trial_id=trial.trial_id,
        )
    ]
    rates = device.ceilings
    full, narrow = (
        (rates.rate("gemm", "float32"), rates.rate("gemm", half)) if rates else (None,) * 2
    )
    if full and narrow:
        items.append(
            EvidenceItem(
                text=f"Matrix products reach {units.number(narrow / 1e12)} TFLOP/s in {half} and "
                f"{units.number(full / 1e12)} in float32 (calibrated)",
                value=narrow / full,
                unit="×",
            )
        )
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Load the model in {half}: float32 doubles what every step reads",
            evidence=tuple(items),
            change=Change(text=f"Load the model in {half}.", settings={"dtype": half}),
            effect=Effect(
                metric="itl_s", change_frac=-0.5, low=-0.5, high=0.0, basis="modelled", better=True
            ),
            confidence="medium",
            confidence_reason="half is the most that reading alone can save; not measured here",
            gain=modelled_gain(evidence, {"itl_s": -0.5}),
        )
    ]


def _takes_bfloat16(evidence: StudyEvidence) -> bool:
    spec = device_spec(evidence)
    version = spec.compute_capability if spec is not None else None
    try:
        return version is None or float(version) >= _AMPERE
    except ValueError:
        return True


RULE = Rule(
    id=ID,
    code="p004",
    group="precision",
    title="The GPU computes in 16 bit",
    failing_title="Load the model in 16 bit",
    why="Decode reads every weight once per step, and tensor cores take 16 bit. float32 costs "
    "twice the bytes and a multiple of the arithmetic.",
    how_measured="The dtype that the engine reports after loading, bytes of the loaded tensors, "
    "and the calibrated rates of matrix products where there are some.",
    threshold="Fails when a GPU runs float32 and no baseline in 16 bit was measured.",
    source="half the bytes per weight; data sheets of tensor cores",
    when_not="Models whose authors publish float32 only and that lose quality in 16 bit.",
    needs=("a valid baseline on a GPU",),
    knobs=("dtype",),
    check=check,
)
