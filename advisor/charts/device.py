"""What the device can do at most, and where a step of the model falls short of it."""

from __future__ import annotations

from advisor import units
from advisor.charts import figure
from advisor.charts.base import Chart, ChartInput, Column, empty, nothing_yet
from advisor.charts.dots import Dot, dots_figure
from advisor.evidence import Measurement, TrialEvidence
from advisor.recoverable import largest_losses
from advisor.rules.checks.v003_device_slower import ceiling_name, rate_text
from gpuagent.wire.inside import CalibrateResult, KernelsResult


def in_focus(data: ChartInput, kind: type[Measurement]) -> tuple[TrialEvidence, Measurement] | None:
    """The trial in focus where it has this kind of result, the study's latest one otherwise."""
    candidates = [*data.evidence.succeeded(kind)]
    if data.best is not None and data.best.measured(kind) is not None:
        candidates.append(data.best)
    for trial in reversed(candidates):
        result = trial.measured(kind)
        if result is not None:
            return trial, result
    return None


def ceilings(data: ChartInput) -> Chart:
    """Matrix rates by dtype; bandwidths and launch latency stand in the table."""
    found = in_focus(data, CalibrateResult)
    if found is None:
        reason = nothing_yet(data, "the device's ceilings")
        return empty("ceilings", "Ceilings", "Ceilings of the device", reason)
    trial, result = found
    measured = [e for e in result.ceilings.entries if e.rate.value is not None]
    rates = sorted(
        ((e.variant, e.rate.value / 1e12) for e in measured if e.kind == "gemm" and e.rate.value),
        key=lambda pair: -pair[1],
    )
    if not rates:
        reason = "No matrix rate was measured on this device."
        return empty("ceilings", "Ceilings", "Ceilings of the device", reason)
    read = result.ceilings.rate("read")
    best = f"{units.number(rates[0][1])}{units.NBSP}TFLOP/s in {rates[0][0]}"
    bandwidth = f" and reads {units.bandwidth(read)}" if read else ""
    return Chart(
        id="ceilings",
        short="Ceilings",
        title=f"The device multiplies at {best}{bandwidth}",
        note=(
            f"Best of {max(e.seconds.n for e in measured)} runs each in trial {trial.ordinal}: "
            "noise only slows. A ceiling is a bound, so it has no interval."
        ),
        label="Dot chart of matrix rates by data type",
        figure=dots_figure([Dot(*pair) for pair in rates], "Matrix rate (TFLOP/s)", log=True),
        columns=(Column("Ceiling", False), Column("Rate"), Column("n"), Column("Note", False)),
        rows=tuple(
            (
                ceiling_name(e),
                rate_text(e) if e.rate.value is not None else units.DASH,
                f"{e.seconds.n}",
                e.rate.reason or "",
            )
            for e in result.ceilings.entries
        ),
    )


def recoverable(data: ChartInput) -> Chart:
    """The five largest recoverable times of a step."""
    found = in_focus(data, KernelsResult)
    title = "Recoverable time inside a step"
    if found is None:
        return empty("recoverable", "Step", title, nothing_yet(data, "what a step could save"))
    trial, result = found
    losses = largest_losses(result)
    if not losses:
        return empty("recoverable", "Step", title, "Every product runs at its ceiling.")
    factor, unit = figure.time_scale(losses[0].recoverable_s)
    colours = {"decode": figure.BEST, "prefill": figure.SERIES[1]}
    rows = [
        Dot(loss.name, loss.recoverable_s * factor, colour=colours[loss.step]) for loss in losses
    ]
    return Chart(
        id="recoverable",
        short="Step",
        title=f"Most is lost in {losses[0].name}: {units.seconds(losses[0].recoverable_s)}",
        note=(
            f"Trial {trial.ordinal}, per decode step or prefill: median time minus the ceiling of "
            "this device, or minus a faster form that was really run."
        ),
        label="Dot chart of the five largest recoverable times",
        figure=dots_figure(rows, f"Recoverable ({unit})"),
        columns=(
            Column("Where", False),
            Column("Recoverable"),
            Column("Basis", False),
            Column("n"),
            Column("What was compared", False),
        ),
        rows=tuple(
            (loss.name, units.seconds(loss.recoverable_s), loss.basis, f"{loss.n}", loss.text)
            for loss in losses
        ),
    )
