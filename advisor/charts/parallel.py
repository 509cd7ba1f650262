"""What splitting the model over GPUs gives: measured where a host has several, or predicted."""

from __future__ import annotations

from advisor import units
from advisor.charts import figure
from advisor.charts.base import Chart, ChartInput, Column, empty
from advisor.charts.device import in_focus
from advisor.charts.dots import Dot, dots_figure, median_interval
from advisor.estimates.memory import tp_problem
from advisor.estimates.service import Estimate
from advisor.evidence import TrialEvidence
from advisor.rules.support import longest_tokens, predict
from advisor.shapes import ModelShape
from gpuagent.wire.parallel import TensorParallelPoint, TensorParallelResult

SIZES = (1, 2, 4, 8)
_ID, _SHORT, _TITLE = "tensor-parallel", "Tensor parallel", "Tensor parallelism, predicted"


def sizes(data: ChartInput) -> Chart:
    """Time per output token and memory of each GPU at tensor parallel sizes 1, 2, 4 and 8."""
    measured = in_focus(data, TensorParallelResult)
    if measured is not None:
        return _measured(*measured)
    device, shape = data.evidence.device, data.evidence.shape
    if device is None:
        return empty(_ID, _SHORT, _TITLE, "Predicted as soon as the device is known.")
    if device.kind != "gpu":
        reason = (
            "Not predicted: tensor parallelism splits a model over GPUs, and this study ran on a "
            "processor. The Model page predicts it for a GPU of your choice."
        )
        return empty(_ID, _SHORT, _TITLE, reason)
    found = [(size, _estimate(data, size)) for size in SIZES]
    known = [(size, estimate) for size, estimate in found if estimate is not None]
    if shape is None or not known:
        reason = f"Not predicted: {device.name} or the model's shape is not in the catalogue."
        return empty(_ID, _SHORT, _TITLE, reason)
    times = [(size, e.tpot_s) for size, e in known if e.tpot_s is not None]
    if not times:
        reason = f"Not predicted: the model does not fit {SIZES[-1]} of {device.name}."
        return empty(_ID, _SHORT, _TITLE, reason)
    best, least = min(times, key=lambda pair: pair[1].value)
    first, base = times[0]
    title = f"Predicted: one GPU is the fastest, {units.seconds(least.value, 2)} per output token"
    if best != 1:
        title = (
            f"Predicted: {best} GPUs take {units.seconds(least.value, 2)} per output token, "
            f"{_gpus(first)} {units.seconds(base.value, 2)}"
        )
    return Chart(
        id=_ID,
        short=_SHORT,
        title=title,
        note=(
            f"Predicted, not measured: one request at a time on {device.name}; the bars are 90"
            f"{units.NBSP}% intervals. Where they overlap, the order is not known."
        ),
        label="Dot chart of predicted time per output token by number of GPUs",
        figure=dots_figure(
            [Dot(_gpus(size), t.value * 1e3, t.low * 1e3, t.high * 1e3) for size, t in times],
            "Predicted time per output token (ms)",
        ),
        columns=(
            Column("GPUs"),
            Column("Time per output token"),
            Column("90 % from"),
            Column("to"),
            Column("Time to first token"),
            Column("Memory of each GPU"),
            Column("Basis", False),
            Column("Note", False),
        ),
        rows=tuple(_row(size, estimate, shape) for size, estimate in known),
    )


def _measured(trial: TrialEvidence, result: TensorParallelResult) -> Chart:
    """Decode steps and bytes of each size that ran; the others with their reason."""
    ran = [(p, median_interval(p.decode_step_s)) for p in result.points if p.decode_step_s.n]
    fastest, (best_s, _, _) = min(ran, key=lambda pair: pair[1][0])
    first, (base_s, _, _) = ran[0]
    title = f"{_parts(result, first.size)} fastest: {units.seconds(base_s, 3)} a decode step"
    if fastest is not first:
        title = (
            f"{_parts(result, fastest.size)} take {units.seconds(best_s, 3)} a decode step, "
            f"{_parts(result, first.size)} {units.seconds(base_s, 3)}"
        )
    scale, unit = figure.time_scale(max(span[0] for _, span in ran))
    where = (
        "one GPU each, over NCCL"
        if result.backend == "nccl"
        else "which share one processor: this tries the plan, and says nothing about devices"
    )
    return Chart(
        id=_ID,
        short=_SHORT,
        title=title,
        note=(
            f"Median decode step of one sequence at {result.input_tokens:,} tokens in trial "
            f"{trial.ordinal}, in groups of processes, {where}; bars are {figure.INTERVALS}."
        ),
        label="Dot chart of measured decode step time by number of processes",
        figure=dots_figure(
            [
                Dot(
                    _parts(result, point.size),
                    middle * scale,
                    low * scale if low is not None else None,
                    high * scale if high is not None else None,
                )
                for point, (middle, low, high) in ran
            ],
            f"Decode step ({unit})",
        ),
        columns=(
            Column("Size"),
            Column("Decode step"),
            Column("95 % interval"),
            Column("n"),
            Column("Prefill"),
            Column("Weights of each"),
            Column("Peak memory of each"),
            Column("Same answer"),
            Column("Note", False),
        ),
        rows=tuple(_measured_row(point) for point in result.points),
    )


def _parts(result: TensorParallelResult, size: int) -> str:
    if result.backend == "nccl":
        return _gpus(size)
    return "1 process" if size == 1 else f"{size} processes"


def _measured_row(point: TensorParallelPoint) -> tuple[str, ...]:
    steps, prefill = point.decode_step_s, point.prefill_s
    middle, low, high = median_interval(steps) if steps.n else (None, None, None)
    span = f"{units.seconds(low)} to {units.seconds(high)}" if low is not None else units.DASH
    return (
        str(point.size),
        units.seconds(middle),
        span,
        f"{steps.n}",
        units.seconds(median_interval(prefill)[0] if prefill.n else None),
        units.memory(point.weight_bytes.value),
        units.memory(point.peak_memory_bytes.value),
        units.DASH
        if point.same_tokens is None
        else f"{point.same_tokens} of {point.answer_tokens}",
        point.reason or point.peak_memory_bytes.reason or "",
    )


def _estimate(data: ChartInput, size: int) -> Estimate | None:
    return predict(data.evidence, tp=size, context=longest_tokens(data.evidence.spec.workload))


def _gpus(size: int) -> str:
    return "1 GPU" if size == 1 else f"{size} GPUs"


def _row(size: int, found: Estimate, shape: ModelShape) -> tuple[str, ...]:
    time, first = found.tpot_s, found.ttft_s
    problem = tp_problem(shape, size)
    note = problem or ("" if found.fits else found.memory.reason)
    return (
        str(size),
        units.seconds(time.value if time else None),
        units.seconds(time.low if time else None),
        units.seconds(time.high if time else None),
        units.seconds(first.value if first else None),
        units.memory(found.memory.total),
        "predicted from the roofline" if found.basis == "roofline" else "predicted, calibrated",
        note,
    )
