"""Pieces of plotly figures in the house style: series, bands, limits, labels, axes.

Kept to the subset that `svg.py` can draw too, so that reports and pages without JavaScript show
the same picture.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from advisor import units

Figure = dict[str, Any]
Numbers = Sequence[float]

INTERVALS = f"95{units.NBSP}% intervals"

CURRENT = "token:baseline"
BEST = "token:series-1"
SERIES = tuple(f"token:series-{n}" for n in range(1, 9))


def line(
    x: Numbers,
    y: Numbers,
    *,
    name: str,
    colour: str,
    hover: str,
    dashed: bool = False,
    markers: bool = True,
    shape: str = "linear",
) -> dict[str, Any]:
    """A series. Dashed with squares is the current configuration, solid with circles the other."""
    stroke: dict[str, Any] = {"color": colour, "width": 2 if dashed else 2.5}
    if dashed:
        stroke["dash"] = "6px,3px"
    if shape != "linear":
        stroke["shape"] = shape
    trace: dict[str, Any] = {
        "type": "scatter",
        "x": list(x),
        "y": list(y),
        "name": name,
        "mode": "lines+markers" if markers else "lines",
        "line": stroke,
        "hovertemplate": f"{hover}<extra></extra>",
    }
    if markers:
        trace["marker"] = {
            "size": 6 if dashed else 7,
            "symbol": "square" if dashed else "circle",
            "color": colour,
        }
    return trace


def band(x: Numbers, low: Numbers, high: Numbers, colour: str) -> list[dict[str, Any]]:
    """A 95 % interval along a line: series colour at 16 %, no outline."""
    edge = {"type": "scatter", "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
    return [
        {**edge, "x": list(x), "y": list(high)},
        {**edge, "x": list(x), "y": list(low), "fill": "tonexty", "fillcolor": f"{colour}/0.16"},
    ]


def points(
    x: Numbers,
    y: Numbers,
    *,
    name: str,
    colour: str,
    hover: Sequence[str],
    symbol: str = "circle",
    size: int = 9,
    x_range: tuple[Numbers, Numbers] | None = None,
) -> dict[str, Any]:
    """Points; x_range = (low, high) draws the interval of each as a horizontal bar."""
    trace: dict[str, Any] = {
        "type": "scatter",
        "x": list(x),
        "y": list(y),
        "name": name,
        "text": list(hover),
        "mode": "markers",
        "marker": {"size": size, "symbol": symbol, "color": colour},
        "hovertemplate": "%{text}<extra></extra>",
    }
    if x_range is not None:
        low, high = x_range
        trace["error_x"] = {
            "type": "data",
            "symmetric": False,
            "array": [b - v for v, b in zip(x, high, strict=True)],
            "arrayminus": [v - a for v, a in zip(x, low, strict=True)],
            "color": colour,
            "thickness": 1.5,
            "width": 3,
        }
    return trace


_LIMIT = {"color": "token:bad", "width": 1.5, "dash": "5px,4px"}


def limit_x(value: float) -> dict[str, Any]:
    """A vertical SLA line."""
    return {
        "type": "line",
        "x0": value,
        "x1": value,
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "line": dict(_LIMIT),
    }


def limit_y(value: float) -> dict[str, Any]:
    """A horizontal SLA line."""
    return {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": value,
        "y1": value,
        "line": dict(_LIMIT),
    }


def limit_label(text: str, x: float, right_edge: float) -> dict[str, Any]:
    """The SLA line's value, above the plot; x as on the axis (log10 on a log axis)."""
    return label(
        f"SLA limit {text}",
        colour="token:bad",
        size=11,
        x=x,
        yref="paper",
        y=1,
        yanchor="bottom",
        xanchor="right" if x > 0.85 * right_edge else "center",
    )


def label(
    text: str, *, colour: str = "token:ink-3", size: int = 12, **place: Any
) -> dict[str, Any]:
    """A direct label; `place` is plotly's own vocabulary (x, y, xref, xanchor, yshift …)."""
    return {
        "text": text,
        "showarrow": False,
        "font": {"size": size, "color": colour},
        **place,
    }


def axis(title: str, **options: Any) -> dict[str, Any]:
    """An axis with quantity and unit in its title ("log" said when it is)."""
    return {"title": {"text": title}, **options}


def log_axis(title: str, low: float, high: float) -> dict[str, Any]:
    """A log axis from `low` to `high` with ticks at 1, 2, 5 × 10^n; the title says "log"."""
    first, last = math.log10(low), math.log10(high)
    ticks = [m * 10.0**n for n in range(math.floor(first), math.ceil(last) + 1) for m in (1, 2, 5)]
    shown = [t for t in ticks if low <= t <= high]
    return axis(
        title,
        type="log",
        range=[first, last],
        tickvals=shown,
        ticktext=[f"{t:,.6g}" for t in shown],
    )


def time_scale(largest_s: float) -> tuple[float, str]:
    """(factor from seconds, unit) so that the largest value reads well."""
    if largest_s >= 2:
        return 1.0, "s"
    if largest_s >= 2e-3:
        return 1e3, "ms"
    return 1e6, "µs"


def byte_scale(largest: float) -> tuple[float, str]:
    """(factor from bytes, unit)."""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if largest >= 1024**power:
            return 1 / 1024**power, unit
    return 1.0, "B"
