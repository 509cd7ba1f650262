"""Curves over the request rate: what every chart of rates draws alike. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from advisor import units
from advisor.charts import figure

_LOG_FROM = 20.0
_LOG_RATES_FROM = 12.0
# Of the plot as it is drawn on a page, for names that must not lie on each other.
_HEIGHT_PX = 240.0
_LINE_PX = 14.0
_NAME_FRAC = 0.15
_FOOT_FRAC = 0.12


@dataclass(frozen=True, slots=True)
class Mark:
    """One measured rate. low, high: None without an interval. y as on the axis.

    word: what is special about the point, "" for nothing. joined: part of the line; a point that
    says nothing about the server is not.
    """

    rate_per_s: float
    y: float
    low: float | None = None
    high: float | None = None
    word: str = ""
    joined: bool = True


@dataclass(frozen=True, slots=True)
class Curve:
    """One line. highest: (rate, low, high) of a fitted boundary, None where there is none."""

    name: str
    colour: str
    dashed: bool
    marks: tuple[Mark, ...]
    highest: tuple[float, float, float] | None = None


def rate_text(rate_per_s: float) -> str:
    return f"{units.number(rate_per_s)}{units.NBSP}req/s"


def curves(
    lines: Sequence[Curve],
    y_title: str,
    *,
    limit: float | None = None,
    limit_words: str = "",
    top: float | None = None,
    may_log: bool = True,
) -> figure.Figure:
    """Lines with bands, the limit and each line's highest rate. At least one mark.

    top: the axis' end where the quantity has one. may_log: False for a quantity that can be 0.
    """
    marks = [mark for line in lines for mark in line.marks]
    rates = [m.rate_per_s for m in marks] + [r for c in lines if c.highest for r in c.highest]
    x = _Axis(rates, log=max(rates) > _LOG_RATES_FROM * min(rates))
    ys = [v for m in marks for v in (m.y, m.low, m.high) if v is not None]
    ys += [limit] if limit is not None else []
    y = _Axis(ys, log=may_log and min(ys) > 0 and max(ys) > _LOG_FROM * min(ys), top=top)
    traces, shapes, labels = [], [], []
    lifts = _lifts(lines, x, y)
    for n, line in enumerate(lines):
        traces += _line(line)
        if line.highest is not None:
            traces += _bar(line, y, n)
            shapes.append(_upright(line))
        labels += _labels(line, x, y, n, lifts)
    if limit is not None:
        shapes.append(figure.limit_y(limit))
        place = {"xref": "paper", "x": 0, "y": y.at(limit), "xanchor": "left", "yanchor": "bottom"}
        words = f"SLA limit {limit_words}"
        labels.append(figure.label(words, colour="token:bad", size=11, **place))
    return {
        "data": traces,
        "layout": {
            "xaxis": x.axis("Request rate (req/s)"),
            "yaxis": y.axis(y_title),
            "shapes": shapes,
            "annotations": labels,
            "margin": {"l": 60, "r": 16, "t": 24, "b": 44},
        },
    }


class _Axis:
    """From 0, or in logarithms where the values span too much."""

    def __init__(self, values: Sequence[float], *, log: bool, top: float | None = None) -> None:
        self.log = log
        self.low = min(values) / 1.3 if log else 0.0
        self.high = top or max(values) * (1.5 if log else 1.15) or 1.0

    def at(self, value: float) -> float:
        """A label's place: plotly wants logarithms there."""
        return math.log10(value) if self.log else value

    def share(self, share: float) -> float:
        """The value at this share of the axis."""
        if self.log:
            return float(self.low * (self.high / self.low) ** share)
        return self.high * share

    def place(self, value: float) -> float:
        """The share of the axis at this value."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return value / self.high

    def axis(self, title: str) -> figure.Figure:
        if self.log:
            return figure.log_axis(title.replace(")", ", log)"), self.low, self.high)
        return figure.axis(title, range=[0, self.high])


def _line(curve: Curve) -> list[figure.Figure]:
    joined = [m for m in curve.marks if m.joined]
    traces = []
    for whole, run in groupby(joined, key=lambda m: m.low is not None and m.high is not None):
        part = list(run)
        if whole and len(part) > 1:
            x = [m.rate_per_s for m in part]
            low, high = [m.low or 0.0 for m in part], [m.high or 0.0 for m in part]
            traces += figure.band(x, low, high, curve.colour)
    if joined:
        traces.append(
            figure.line(
                [m.rate_per_s for m in joined],
                [m.y for m in joined],
                name=curve.name,
                colour=curve.colour,
                hover=f"{curve.name}: %{{y:.4g}} at %{{x:.4g}} req/s",
                dashed=curve.dashed,
            )
        )
    special = [m for m in curve.marks if m.word]
    if special:
        traces.append(
            figure.points(
                [m.rate_per_s for m in special],
                [m.y for m in special],
                name=curve.name,
                colour=curve.colour,
                hover=[f"{curve.name} at {rate_text(m.rate_per_s)}: {m.word}" for m in special],
                symbol="circle-open",
                size=15,
            )
        )
    return traces


def _upright(curve: Curve) -> figure.Figure:
    rate = curve.highest[0] if curve.highest else 0.0
    line = {"color": curve.colour, "width": 1.5, "dash": "2px,3px"}
    return {"type": "line", "x0": rate, "x1": rate, "yref": "paper", "y0": 0, "y1": 1, "line": line}


def _bar(curve: Curve, y: _Axis, place: int) -> list[figure.Figure]:
    """Between the highest rate that kept the targets and the lowest that did not."""
    _, low, high = curve.highest or (0.0, 0.0, 0.0)
    height = y.share(0.03 + 0.035 * place)
    bar = figure.line(
        [low, high],
        [height, height],
        name=curve.name,
        colour=curve.colour,
        hover=f"{curve.name}: holds at {rate_text(low)}, not at {rate_text(high)}",
        markers=False,
    )
    bar["line"]["width"] = 5
    return [bar]


def _lifts(lines: Sequence[Curve], x: _Axis, y: _Axis) -> dict[int, float]:
    """Pixels by which the name at the end of each line gives way to one below; {} for one line."""
    ends = [
        (y.place(last.y) * _HEIGHT_PX, x.place(last.rate_per_s), n)
        for n, curve in enumerate(lines)
        if len(lines) > 1 and (last := _last(curve)) is not None
    ]
    taken: list[tuple[float, float]] = []
    lifts = {}
    for height, side, n in sorted(ends):
        at = height
        for below, beside in taken:
            if abs(side - beside) < _NAME_FRAC:
                at = max(at, below + _LINE_PX)
        taken.append((at, side))
        lifts[n] = at - height
    return lifts


def _last(curve: Curve) -> Mark | None:
    return next((m for m in reversed(curve.marks) if m.joined), None)


def _labels(
    curve: Curve, x: _Axis, y: _Axis, n: int, lifts: dict[int, float]
) -> list[figure.Figure]:
    labels: list[figure.Figure] = []
    at: figure.Figure
    last = _last(curve)
    if n in lifts and last is not None:
        at = {"x": x.at(last.rate_per_s), "y": y.at(last.y), "yshift": 14 + lifts[n]}
        labels.append(figure.label(curve.name, colour=curve.colour, xanchor="right", **at))
    if curve.highest is not None:
        rate = curve.highest[0]
        on_left = x.at(rate) > x.at(x.share(0.6))
        labels.append(
            figure.label(
                rate_text(rate),
                colour=curve.colour,
                size=11,
                x=x.at(rate),
                yref="paper",
                y=1,
                yanchor="bottom",
                xanchor="right" if on_left else "left",
                yshift=-14 * n,
                xshift=-4 if on_left else 4,
            )
        )
    for before, mark in zip((None, *curve.marks), curve.marks, strict=False):
        if mark.word and not lifts:
            # Beside the line that leads to the point, and not on the axis.
            rising = before is not None and before.y < mark.y
            up = rising or y.place(mark.y) < _FOOT_FRAC
            at = {"x": x.at(mark.rate_per_s), "y": y.at(mark.y), "yshift": 18 if up else -18}
            anchor = "center"
            if x.place(mark.rate_per_s) > 0.6:
                anchor = "left" if up and not rising else "right"
            labels.append(figure.label(mark.word, size=11, name="wide", xanchor=anchor, **at))
    return labels
