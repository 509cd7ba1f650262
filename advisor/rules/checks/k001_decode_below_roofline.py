"""Decode takes much longer than reading the weights and the cache once per step must take."""

from __future__ import annotations

from dataclasses import dataclass

from advisor import units
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.measures import (
    DTYPE_BYTES,
    answer_ratio,
    baseline_of,
    baselines,
    cell_at,
    decode_ratio,
    dtype_of,
    median_s,
    times,
)
from advisor.recoverable import StepParts, step_parts
from advisor.rules.rule import Change, Effect, EvidenceItem, Finding, Rule, Verdict
from advisor.shapes import ModelShape
from advisor.thresholds import DECODE_MIN_EFFICIENCY, UNVERIFIED_NOISE
from gpuagent.wire.inside import KernelsResult, StepCosts
from gpuagent.wire.trial import BaselineResult, GridCell

ID = "decode-below-roofline"


@dataclass(frozen=True, slots=True)
class _Roofline:
    step_s: float
    floor_s: float
    step_bytes: float
    bandwidth_bytes_s: float
    n: int

    @property
    def efficiency(self) -> float:
        return self.floor_s / self.step_s


def check(evidence: StudyEvidence) -> list[Finding]:
    trial = evidence.current
    result = trial.measured(BaselineResult) if trial is not None and trial.usable else None
    if trial is None or result is None:
        return [_not_applicable("A valid baseline of the current settings")]
    if not evidence.spec.current.kv_cache:
        return [_not_applicable("A baseline with the KV cache on: without it a step is a prefill")]
    bandwidth, source = _bandwidth(evidence, result)
    if bandwidth is None:
        reason = result.read_bandwidth_bytes_s.reason or "not measured"
        return [_not_applicable(f"The read bandwidth of the device ({reason})")]
    cell = cell_at(result, batch=1)
    roofline = _roofline(result, cell, evidence.shape, bandwidth) if cell is not None else None
    if cell is None or roofline is None:
        return [_not_applicable("Decode steps at batch 1")]
    return [_finding(evidence, trial, cell, roofline, source)]


def _bandwidth(evidence: StudyEvidence, result: BaselineResult) -> tuple[float | None, str]:
    """(bytes per second, where it is from): the larger of this trial's and the calibration's.

    A ceiling is the best that was ever seen: the trial's own may have been read in a busy moment.
    """
    own = result.read_bandwidth_bytes_s.value
    ceilings = evidence.device.ceilings if evidence.device is not None else None
    calibrated = ceilings.rate("read") if ceilings is not None else None
    if calibrated is not None and calibrated > (own or 0.0):
        return calibrated, "calibrated"
    return own, "measured"


def _roofline(
    result: BaselineResult, cell: GridCell, shape: ModelShape | None, bandwidth: float
) -> _Roofline | None:
    step_s = median_s(cell.decode_step_s)
    weights = result.model.stored_weight_bytes
    if not step_s or not bandwidth or weights is None:
        return None
    step_bytes = weights * _read_share(shape)
    if shape is not None:
        itemsize = DTYPE_BYTES.get(result.model.dtype, 2)
        step_bytes += shape.kv_bytes_for(cell.input_tokens, itemsize)
    return _Roofline(step_s, step_bytes / bandwidth, step_bytes, bandwidth, cell.decode_step_s.n)


def _read_share(shape: ModelShape | None) -> float:
    """Share of the stored weights that one token at batch 1 reads.

    Experts that are not chosen stay unread, and so does an embedding table of its own: one row.
    """
    if shape is None or not shape.params_total:
        return 1.0
    unread = 0 if shape.tied else shape.params_embedding
    return (shape.params_active - unread - shape.params_vision) / shape.params_total


def _finding(
    evidence: StudyEvidence,
    trial: TrialEvidence,
    cell: GridCell,
    roofline: _Roofline,
    source: str,
) -> Finding:
    result = baseline_of(trial)
    share = units.percent(roofline.efficiency)
    items = [
        EvidenceItem(
            text=f"A decode step at batch 1 takes {units.seconds(roofline.step_s)} (median, "
            f"n = {roofline.n}); reading {units.memory(roofline.step_bytes)} at "
            f"{units.bandwidth(roofline.bandwidth_bytes_s)} takes "
            f"{units.seconds(roofline.floor_s)}: {share} of the {source} bandwidth",
            value=roofline.efficiency,
            unit="share",
            n=roofline.n,
            trial_id=trial.trial_id,
            chart="decode-grid",
        ),
        *_batch_item(result, cell, trial),
    ]
    parts, parts_item = _parts(evidence, trial)
    if parts_item is not None:
        items.append(parts_item)
    if roofline.efficiency >= DECODE_MIN_EFFICIENCY.value:
        note = " (part of the model stays in the processor's cache)"
        return Finding(
            rule_id=ID,
            verdict=Verdict.PASS,
            title=f"Decode runs at {share} of the memory bandwidth"
            + (note if roofline.efficiency > 1 else ""),
            evidence=tuple(items),
        )
    slower = roofline.step_s / roofline.floor_s
    # At the threshold the step would take floor / threshold; all of it would be the floor itself.
    reachable = roofline.floor_s / DECODE_MIN_EFFICIENCY.value / roofline.step_s - 1
    return Finding(
        rule_id=ID,
        verdict=Verdict.FAIL,
        title=f"Close the gap to memory bandwidth: a decode step takes {times(slower)} the time "
        "that reading the model needs",
        summary="At batch 1 a decode step reads every weight once and computes little, so the time "
        "above that read is lost to slow kernels, launch overhead or idle cores.",
        evidence=tuple(items),
        change=_change(evidence, trial, parts),
        effect=Effect(
            metric="itl_s",
            change_frac=reachable,
            low=roofline.efficiency - 1,
            high=0.0,
            basis="modelled",
            better=True,
            from_trial=trial.trial_id,
        ),
        confidence="medium",
        confidence_reason="the floor is a bound from measured bandwidth, the way to it is not "
        "measured"
        if parts is None
        else "the floor is a bound from measured bandwidth; where the rest goes is measured, how "
        "much of it can be won is not",
    )


def _batch_item(result: BaselineResult, one: GridCell, trial: TrialEvidence) -> list[EvidenceItem]:
    """A larger batch for nearly the same step time says that compute is not the limit."""
    others = [c for c in result.cells if c.batch > 1 and c.input_tokens == one.input_tokens]
    base = median_s(one.decode_step_s)
    if not others or not base:
        return []
    other = max(others, key=lambda c: c.batch)
    step = median_s(other.decode_step_s)
    if not step:
        return []
    return [
        EvidenceItem(
            text=f"Batch {other.batch} takes {times(step / base)} the step of batch 1, so "
            f"{times(other.batch * base / step)} the tokens per second",
            value=step / base,
            unit="×",
            n=other.decode_step_s.n,
            trial_id=trial.trial_id,
            chart="decode-grid",
        )
    ]


def _parts(
    evidence: StudyEvidence, trial: TrialEvidence
) -> tuple[StepParts, EvidenceItem] | tuple[None, None]:
    """Where a step of these weights goes, from the latest kernels trial in the same dtype."""
    for other in reversed(evidence.succeeded(KernelsResult)):
        result = other.measured(KernelsResult)
        if result is None or not other.usable or result.model.dtype != dtype_of(trial):
            continue
        parts = step_parts(result)
        if parts is None:
            continue
        text = (
            f"Of a step of {units.seconds(parts.step_s)} in trial {other.ordinal}, "
            f"{units.seconds(parts.floor_s)} are its matrix products at their ceilings, "
            f"{units.seconds(parts.products_s)} what they take above them "
            f"({units.percent(parts.floor_share)} of the ceiling), "
            f"{units.seconds(parts.between_s)} lie between them{_counts(result.costs)}"
        )
        item = EvidenceItem(
            text=text,
            value=parts.between_s / parts.step_s,
            unit="share",
            n=parts.n,
            trial_id=other.trial_id,
            chart="recoverable",
        )
        return parts, item
    return None, None


def _counts(costs: StepCosts) -> str:
    operators, allocations = costs.operators.value, costs.allocations.value
    if operators is None or allocations is None:
        return ""
    return f" ({operators:,.0f} operators, {allocations:,.0f} allocations)"


def _change(evidence: StudyEvidence, trial: TrialEvidence, parts: StepParts | None) -> Change:
    environment = trial.result.environment if trial.result is not None else None
    if evidence.device is not None and evidence.device.kind == "gpu":
        return Change(
            text="Remove launch overhead: compile the decode step or serve with an engine that "
            "captures it as a CUDA graph; raise the batch where latency allows."
        )
    host = environment.host if environment is not None else None
    cores = host.physical_cores if host is not None else None
    threads = environment.threads if environment is not None else None
    if cores is not None and threads is not None and threads != cores:
        return Change(
            text=f"Use one thread per physical core: {cores} instead of {threads}.",
            settings={"threads": cores},
        )
    if dtype_of(trial) != "float32" and not _no_faster_in_float32(evidence, trial):
        return Change(
            text="Serve or measure in float32: processors without 16-bit matrix instructions "
            "convert every weight at every step.",
            settings={"dtype": "float32"},
        )
    if parts is None:
        return Change(
            text="Profile a decode step: the time is in kernels or between them, not in reading."
        )
    if parts.between_s > parts.products_s:
        return Change(
            text="Compile the decode step, or serve with an engine that fuses it: most of the gap "
            "lies between the matrix products."
        )
    return Change(
        text="Use weights of fewer bytes or a larger batch: most of the gap is in the products' "
        "own kernels, which settings do not change."
    )


def _no_faster_in_float32(evidence: StudyEvidence, trial: TrialEvidence) -> bool:
    """Whether float32 has been measured and brought nothing."""
    for other in baselines(evidence):
        differing = set(trial.settings.differences(other.settings))
        if differing == {"dtype"} and dtype_of(other) == "float32":
            ratio = answer_ratio(trial, other) or decode_ratio(trial, other)
            return ratio is not None and not ratio.below(UNVERIFIED_NOISE.value)
    return False


def _not_applicable(missing: str) -> Finding:
    return Finding(
        rule_id=ID,
        verdict=Verdict.NOT_APPLICABLE,
        title="Decode speed cannot be compared with memory bandwidth",
        missing=missing,
    )


RULE = Rule(
    id=ID,
    code="k001",
    group="kernels",
    title="Decode keeps up with memory bandwidth",
    failing_title="Close the gap to memory bandwidth",
    why="At small batch every output token reads the whole model once. That read sets a floor that "
    "no setting goes below; the distance to it is what tuning can win.",
    how_measured="Stored weight bytes plus KV bytes of the context, divided by the read bandwidth "
    "measured on the same device in the same trial, against the median decode step at batch 1.",
    threshold=f"Fails below {DECODE_MIN_EFFICIENCY.value * 100:.0f} % of the measured bandwidth.",
    source=DECODE_MIN_EFFICIENCY.source,
    when_not="When only throughput at large batch counts: there the step is bound by compute, and "
    "this floor says nothing.",
    needs=("a valid baseline of the current settings with its read bandwidth",),
    knobs=("threads", "dtype"),
    check=check,
)
