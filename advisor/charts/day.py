"""A day's request rate and the capacity of the replicas that follow it."""

from __future__ import annotations

from collections.abc import Sequence

from advisor import units
from advisor.boundaries import boundary_for
from advisor.charts import figure
from advisor.charts.base import Chart, ChartInput, Column, empty, nothing_yet
from advisor.estimates.cost import replicas_for_rate
from advisor.thresholds import REPLICA_HEADROOM


def study(data: ChartInput) -> Chart:
    """The day that was given with a study, and the highest rate that its settings were measured
    to keep."""
    name, day = "Replicas through a day", data.evidence.spec.day_req_s
    now = data.current if data.current is not None and data.current.usable else None
    boundary = boundary_for(now, data.evidence.spec) if now is not None else None
    rate = boundary.rate_per_s if boundary is not None else None
    built = (
        load(day, rate, REPLICA_HEADROOM.value, measured=True)
        if day is not None and rate is not None
        else None
    )
    if built is None:
        return empty("day-load", "Day", name, nothing_yet(data, "a highest rate of today"))
    return built


def load(
    curve_req_s: Sequence[float],
    capacity_req_s: float,
    headroom: float,
    *,
    measured: bool = False,
) -> Chart | None:
    """curve_req_s: one rate per equal slice of 24 h. None without a curve or a capacity."""
    if len(curve_req_s) < 2 or capacity_req_s <= 0:
        return None
    counts = [
        replicas_for_rate(
            rate_req_s=rate, capacity_req_s=capacity_req_s, headroom=headroom
        ).replicas
        for rate in curve_req_s
    ]
    hours = 24.0 / len(counts)
    edges = [n * hours for n in range(len(counts) + 1)]
    offered = [count * capacity_req_s for count in counts]
    peak, least = max(counts), min(counts)
    used = sum(curve_req_s) / (peak * capacity_req_s * len(counts))
    top = max(offered) * 1.15
    return Chart(
        id="day-load",
        short="Day",
        title=f"{least} to {peak} replicas follow the day; {peak} all day would be "
        f"{units.percent(used)} busy",
        note=(
            f"Measured: one replica keeps the targets up to {units.number(capacity_req_s)}"
            f"{units.NBSP}req/s and is loaded to {units.percent(1 - headroom)} of it. The rates "
            "are those that were entered."
            if measured
            else f"Predicted: one replica serves {units.number(capacity_req_s)}{units.NBSP}req/s "
            f"and is loaded to {units.percent(1 - headroom)} of it. The rates are those that were "
            "entered."
        ),
        label="Request rate of a day and the capacity of the replicas that follow it",
        figure={
            "data": [
                figure.line(
                    edges,
                    [*offered, offered[-1]],
                    name="Capacity",
                    colour=figure.BEST,
                    hover="%{x:.1f} h: %{y:.4g} req/s can be served",
                    markers=False,
                    shape="hv",
                ),
                figure.line(
                    edges,
                    [*curve_req_s, curve_req_s[-1]],
                    name="Load",
                    colour=figure.CURRENT,
                    hover="%{x:.1f} h: %{y:.4g} req/s arrive",
                    dashed=True,
                    markers=False,
                    shape="hv",
                ),
            ],
            "layout": {
                "xaxis": figure.axis("Hour of the day", range=[0, 24], dtick=4),
                "yaxis": figure.axis("Requests a second", range=[0, top]),
                "shapes": [],
                "annotations": [
                    figure.label(
                        "Capacity",
                        colour=figure.BEST,
                        x=0.2,
                        y=offered[0],
                        xanchor="left",
                        yshift=10,
                    ),
                    figure.label(
                        "Load",
                        colour=figure.CURRENT,
                        x=0.2,
                        y=curve_req_s[0],
                        xanchor="left",
                        yshift=10,
                    ),
                ],
                "margin": {"l": 60, "r": 16, "t": 16, "b": 44},
            },
        },
        columns=(
            Column("From hour"),
            Column("Load (req/s)"),
            Column("Replicas"),
            Column("Capacity (req/s)"),
        ),
        rows=tuple(
            (units.number(at), units.number(rate), f"{count}", units.number(can))
            for at, rate, count, can in zip(edges, curve_req_s, counts, offered, strict=False)
        ),
    )
