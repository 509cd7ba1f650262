"""Roofline of the device with the model's own matrix products as points."""

from __future__ import annotations

from collections import Counter

import numpy as np

from advisor import units
from advisor.charts import figure
from advisor.charts.base import Chart, ChartInput, Column, empty, nothing_yet
from advisor.charts.device import in_focus
from gpuagent.wire.inside import GemmShape, KernelsResult

_ID, _SHORT, _NAME = "roofline", "Roofline", "Matrix products against the roofline"
_TERA = 1e12


def points(data: ChartInput) -> Chart:
    """Reached rate over arithmetic intensity, in the data type most of the model's products have.

    Decode products have as many rows as sequences in the batch, prefill products one per token.
    """
    found = in_focus(data, KernelsResult)
    if found is None:
        return empty(_ID, _SHORT, _NAME, nothing_yet(data, "the model's matrix products"))
    trial, result = found
    measured = [g for g in result.gemms if g.seconds.n and min(g.seconds.values) > 0]
    dtypes = Counter(g.dtype for g in measured)
    wanted = result.model.dtype
    dtype = wanted if dtypes[wanted] else next(iter(dtypes), "")
    shown = [g for g in measured if g.dtype == dtype]
    read, peak = result.ceilings.rate("read"), result.ceilings.rate("gemm", dtype)
    if not shown or read is None or peak is None:
        reason = "Not drawn: the product rates, the read bandwidth or the matrix rate are missing."
        return empty(_ID, _SHORT, _NAME, reason)
    ridge = peak / read
    bound = [g for g in shown if g.flops / g.bytes < ridge]
    worst = min(shown, key=lambda g: _rate(g) / _roof(g, read, peak))
    share = units.percent(_rate(worst) / _roof(worst, read, peak))
    return Chart(
        id=_ID,
        short=_SHORT,
        title=f"{len(bound)} of {len(shown)} products are bound by memory; {worst.name} with "
        f"{worst.rows:,} rows reaches {share} of its roof",
        note=(
            f"Trial {trial.ordinal}, {dtype}: median of {shown[0].seconds.n} runs each, least and "
            f"greatest in the table. The roof is measured: {units.bandwidth(read)} and "
            f"{units.number(peak / _TERA)}{units.NBSP}TFLOP/s, which meet at "
            f"{units.number(ridge)} FLOP/byte."
        ),
        label=f"Roofline with {len(shown)} matrix products of the model in {dtype}",
        figure=_figure(shown, read, peak),
        columns=(
            Column("Product", False),
            Column("Rows"),
            Column("FLOP/byte"),
            Column("TFLOP/s"),
            Column("From"),
            Column("To"),
            Column("Of the roof"),
            Column("n"),
        ),
        rows=tuple(_row(g, read, peak) for g in shown),
    )


def _rate(gemm: GemmShape) -> float:
    return gemm.flops / float(np.median(gemm.seconds.values))


def _roof(gemm: GemmShape, read: float, peak: float) -> float:
    return min(peak, read * gemm.flops / gemm.bytes)


def _row(gemm: GemmShape, read: float, peak: float) -> tuple[str, ...]:
    slow, fast = (gemm.flops / f(gemm.seconds.values) / _TERA for f in (max, min))
    return (
        gemm.name,
        f"{gemm.rows:,}",
        units.number(gemm.flops / gemm.bytes),
        units.number(_rate(gemm) / _TERA),
        units.number(slow),
        units.number(fast),
        units.percent(_rate(gemm) / _roof(gemm, read, peak)),
        f"{gemm.seconds.n}",
    )


def _figure(shown: list[GemmShape], read: float, peak: float) -> figure.Figure:
    ridge = peak / read
    at = [g.flops / g.bytes for g in shown]
    low, high = min([*at, ridge]) / 2, max([*at, ridge]) * 3
    roof_x = [low, ridge, high]
    roof_y = [read * low / _TERA, peak / _TERA, peak / _TERA]
    bottom = min([*(_rate(g) / _TERA for g in shown), roof_y[0]]) / 1.5
    roof = figure.line(
        roof_x, roof_y, name="Roof", colour="token:ink-2", hover="Roof", markers=False
    )
    groups = {
        rows: [g for g in shown if g.rows == rows] for rows in sorted({g.rows for g in shown})
    }
    traces, labels = [roof], []
    for n, (rows, gemms) in enumerate(groups.items()):
        colour = figure.SERIES[n % 6]
        x = [g.flops / g.bytes for g in gemms]
        y = [_rate(g) / _TERA for g in gemms]
        hover = [f"{g.name}: {units.number(_rate(g) / _TERA)} TFLOP/s" for g in gemms]
        traces.append(figure.points(x, y, name=f"{rows:,} rows", colour=colour, hover=hover))
        labels.append(
            figure.label(
                f"{rows:,} row{'s' if rows > 1 else ''}",
                colour=colour,
                x=float(np.log10(max(x))),
                y=float(np.log10(max(y))),
                xanchor="left",
                xshift=8,
            )
        )
    labels.append(
        figure.label(
            f"{units.number(peak / _TERA)} TFLOP/s",
            size=11,
            x=float(np.log10(high)),
            y=float(np.log10(peak / _TERA)),
            xanchor="right",
            yanchor="bottom",
        )
    )
    return {
        "data": traces,
        "layout": {
            "xaxis": figure.log_axis("Arithmetic intensity (FLOP/byte, log)", low, high),
            "yaxis": figure.log_axis("Rate (TFLOP/s, log)", bottom, peak / _TERA * 1.8),
            "shapes": [],
            "annotations": labels,
            "margin": {"l": 60, "r": 16, "t": 20, "b": 44},
        },
    }
