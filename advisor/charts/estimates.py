"""Predicted latency over the number of requests in flight, with its 90 % band."""

from __future__ import annotations

from collections.abc import Sequence

from advisor import units
from advisor.charts import figure
from advisor.charts.base import Chart, Column, empty
from advisor.estimates.service import Estimate
from advisor.estimates.serving import Interval

_Points = list[tuple[int, Interval, bool]]
"""(requests in flight, time, whether the point lies among the measured ones)"""

_WORDS = {
    "tpot": ("TPOT", "Time per output token", "One token takes"),
    "ttft": ("TTFT", "Time to first token", "The first token comes after"),
}


def latency(metric: str, loads: Sequence[int], estimates: Sequence[Estimate], asked: int) -> Chart:
    """TPOT or TTFT ("tpot", "ttft") at each of `loads`; the asked load is marked."""
    short, word, verb = _WORDS[metric]
    points: _Points = []
    for load, found in zip(loads, estimates, strict=True):
        value = found.tpot_s if metric == "tpot" else found.ttft_s
        if value is not None:
            points.append((load, value, found.in_domain))
    if len(points) < 2:
        reason = "The model does not fit, so no time can be predicted."
        return empty(f"predicted-{metric}", short, word, reason)
    (first, one, _), (last, most, _) = points[0], points[-1]
    return Chart(
        id=f"predicted-{metric}",
        short=short,
        title=f"{verb} {units.seconds(one.value, 2)} with {first} in flight and "
        f"{units.seconds(most.value, 2)} with {last}",
        note=_note(points),
        label=f"Line chart of predicted {word.lower()} against requests in flight",
        figure=_figure(word, points, asked),
        columns=(
            Column("In flight"),
            Column("Predicted"),
            Column("90 % from"),
            Column("to"),
            Column("Among measured points", numeric=False),
        ),
        rows=tuple(
            (
                f"{load:,}",
                units.seconds(value.value),
                units.seconds(value.low),
                units.seconds(value.high),
                "yes" if inside else "no",
            )
            for load, value, inside in points
        ),
    )


def _note(points: _Points) -> str:
    inside = sum(1 for *_, known in points if known)
    if inside == len(points):
        where = "All points lie among measured ones."
    elif inside:
        where = f"{inside} of {len(points)} points lie among measured ones."
    else:
        where = "No point lies among measured ones."
    return f"Closed loop, predicted; the band is the 90{units.NBSP}% interval. {where}"


def _figure(word: str, points: _Points, asked: int) -> figure.Figure:
    top = max(value.high for _, value, _ in points)
    scale, unit = (1e3, "ms") if top < 2 else (1.0, "s")
    x = [float(load) for load, *_ in points]
    y = [value.value * scale for _, value, _ in points]
    low = [value.low * scale for _, value, _ in points]
    high = [value.high * scale for _, value, _ in points]
    hover = f"%{{x}} in flight: %{{y:.3g}} {unit}"
    marks = [
        {
            "type": "line",
            "x0": asked,
            "x1": asked,
            "yref": "paper",
            "y0": 0,
            "y1": 1,
            "line": {"color": "token:ink-3", "width": 1, "dash": "2px,3px"},
        }
    ]
    shown = marks if points[0][0] <= asked <= points[-1][0] else []
    return {
        "data": [
            *figure.band(x, low, high, figure.BEST),
            figure.line(x, y, name="Predicted", colour=figure.BEST, hover=hover),
        ],
        "layout": {
            "xaxis": figure.axis(
                "Requests in flight (log)",
                type="log",
                tickvals=x,
                ticktext=[f"{value:.0f}" for value in x],
            ),
            "yaxis": figure.axis(f"{word} ({unit})", rangemode="tozero"),
            "shapes": shown,
            "margin": {"l": 56, "r": 16, "t": 12, "b": 44},
        },
    }
