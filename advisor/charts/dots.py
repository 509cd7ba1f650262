"""A dot chart by name with intervals: the form that several experiments share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from advisor import units
from advisor.charts import figure
from gpuagent.stats import quantile
from gpuagent.wire import Samples


@dataclass(frozen=True, slots=True)
class Dot:
    """One row, in the unit of the axis. low and high are None without an interval.

    symbol: as plotly names it. value_text: the value with its unit, for the pointer.
    """

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    colour: str = figure.BEST
    symbol: str = "circle"
    value_text: str = ""


def dots_figure(
    rows: Sequence[Dot], title: str, *, log: bool = False, names_px: int = 190
) -> figure.Figure:
    """First row on top. log: for values of several orders of magnitude; all must be positive.

    names_px: room for the names at the left.
    """
    traces = []
    for height, row in enumerate(reversed(rows)):
        low = row.value if row.low is None else row.low
        high = row.value if row.high is None else row.high
        traces.append(
            figure.points(
                [row.value],
                [height],
                name=row.name,
                colour=row.colour,
                symbol=row.symbol,
                hover=[f"{row.name}: {row.value_text or units.number(row.value)}"],
                x_range=([low], [high]),
            )
        )
    largest = max((r.high if r.high is not None else r.value) for r in rows)
    x_axis: dict[str, Any]
    if log:
        x_axis = figure.log_axis(f"{title}, log", min(r.value for r in rows) * 0.6, largest * 1.6)
    else:
        x_axis = figure.axis(title, range=[0, largest * 1.12 or 1.0])
    return {
        "data": traces,
        "layout": {
            "xaxis": x_axis,
            "yaxis": {
                "range": [-0.6, len(rows) - 0.4],
                "tickvals": list(range(len(rows))),
                "ticktext": [row.name[:30] for row in reversed(rows)],
            },
            "shapes": [],
            "annotations": [],
            "margin": {"l": names_px, "r": 16, "t": 28, "b": 44},
        },
    }


def median_interval(samples: Samples) -> tuple[float, float | None, float | None]:
    """(median, low, high) of at least one sample; ends are None where there are too few."""
    found = quantile(samples.values, 0.5)
    if found.value is None:
        ordered = sorted(samples.values)
        return ordered[len(ordered) // 2], None, None
    return found.value, found.low, found.high
