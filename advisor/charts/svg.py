"""Draws a figure as static SVG: for reports that open offline and for pages without JavaScript.

Understands what `figure.py` builds (lines, points, bands, error bars, limit lines, labels; linear
and log axes) and nothing more. Token names become CSS variables, so the picture follows the style
sheet's light, dark and print schemes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Any

WIDTH, HEIGHT, TALL = 640, 300, 440
_MARGIN = {"l": 56, "r": 16, "t": 16, "b": 44}
_NO_PLOTLY_MARKUP = re.compile(r"<[^>]*>")


@dataclass(frozen=True, slots=True)
class _Scale:
    """Data value -> pixel. low and high are log10 values on a log axis, as in plotly's `range`."""

    low: float
    high: float
    first_px: float
    last_px: float
    log: bool

    def __call__(self, value: float) -> float:
        at = math.log10(value) if self.log else value
        return self.at(at)

    def at(self, position: float) -> float:
        share = (position - self.low) / ((self.high - self.low) or 1.0)
        return self.first_px + share * (self.last_px - self.first_px)


def figure_svg(figure: dict[str, Any], label: str, height: int = HEIGHT) -> str:
    """The figure as one `<svg>` element with `label` as its accessible name."""
    layout = figure["layout"]
    margin = {**_MARGIN, **layout.get("margin", {})}
    x = _scale(layout["xaxis"], figure, "x", margin["l"], WIDTH - margin["r"])
    panels = {
        key.replace("axis", ""): _panel(axis, figure, margin, height)
        for key, axis in layout.items()
        if key.startswith("yaxis")
    }
    y = panels["y"]
    parts = [
        f'<svg class="figure-svg" viewBox="0 0 {WIDTH} {height}" role="img"'
        f' aria-label="{escape(label, quote=True)}">'
    ]
    parts += _grid(layout, x, panels, margin, height)
    parts += [_shape(shape, x, y, margin, height) for shape in layout.get("shapes", ())]
    parts += _traces(figure["data"], x, panels)
    parts += [
        _label(note, x, y, margin, height)
        for note in layout.get("annotations", ())
        if note.get("name") != "narrow"
    ]
    return "".join([*parts, "</svg>"])


# --- axes --------------------------------------------------------------------------------------


def _scale(
    axis: dict[str, Any], figure: dict[str, Any], key: str, first: float, last: float
) -> _Scale:
    log = axis.get("type") == "log"
    if "range" in axis:
        low, high = axis["range"]
    else:
        values = [v for trace in figure["data"] for v in trace.get(key, ()) if v is not None]
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        low, high = (math.log10(low), math.log10(high)) if log else (min(low, 0.0), high)
    return _Scale(float(low), float(high), first, last, log)


def _panel(
    axis: dict[str, Any], figure: dict[str, Any], margin: dict[str, float], height: int
) -> _Scale:
    """A y axis over its share of the height, counted from the bottom as in plotly's `domain`."""
    low, high = axis.get("domain", (0.0, 1.0))
    bottom, top = height - margin["b"], margin["t"]
    return _scale(axis, figure, "y", bottom - low * (bottom - top), bottom - high * (bottom - top))


def nice_ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Round numbers (1, 2, 2.5, 5 × 10^n) between low and high, at most `most` of them."""
    span = high - low
    if span <= 0 or not math.isfinite(span):
        return [low]
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(power * m for m in (1, 2, 2.5, 5, 10, 20) if span / (power * m) <= most)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(n * step, 12) for n in range(first, last + 1)]


def _ticks(axis: dict[str, Any], scale: _Scale) -> list[tuple[float, str]]:
    if "tickvals" in axis:
        values = [float(v) for v in axis["tickvals"]]
        names = axis.get("ticktext") or [_number(v) for v in values]
        return list(zip(values, (str(name) for name in names), strict=True))
    if "dtick" in axis:
        step = float(axis["dtick"])
        count = math.floor((scale.high - scale.low) / step + 1e-9)
        values = [scale.low + n * step for n in range(count + 1)]
    else:
        values = nice_ticks(scale.low, scale.high, axis.get("nticks", 7))
    return [(v, _number(v)) for v in values]


def _number(value: float) -> str:
    text = f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"
    return text.replace("-", "−")


def _grid(
    layout: dict[str, Any],
    x: _Scale,
    panels: dict[str, _Scale],
    margin: dict[str, float],
    height: int,
) -> list[str]:
    left, right = margin["l"], WIDTH - margin["r"]
    top, bottom = margin["t"], height - margin["b"]
    parts = []
    for value, name in _ticks(layout["xaxis"], x):
        px = x(value)
        parts.append(_line(px, top, px, bottom, "token:chart-grid"))
        parts.append(_text(px, bottom + 18, name, anchor="middle", size=11))
    for key, y in panels.items():
        parts += _y_grid(layout[key.replace("y", "yaxis")], y, left, right)
    x_title = layout["xaxis"].get("title", {}).get("text", "")
    parts.append(
        _text((left + right) / 2, height - 8, x_title, anchor="middle", colour="token:ink-2")
    )
    return parts


def _y_grid(axis: dict[str, Any], y: _Scale, left: float, right: float) -> list[str]:
    parts = []
    for value, name in _ticks(axis, y):
        py = y(value)
        parts.append(_line(left, py, right, py, "token:chart-grid"))
        parts.append(_text(left - 8, py + 4, name, anchor="end", size=11))
    parts.append(_line(left, y.first_px, right, y.first_px, "token:chart-axis"))
    parts.append(_line(left, y.last_px, left, y.first_px, "token:chart-axis"))
    middle = (y.first_px + y.last_px) / 2
    turned = f'transform="rotate(-90 14 {middle:.1f})"'
    title = axis.get("title", {}).get("text", "")
    parts.append(_text(14, middle, title, anchor="middle", colour="token:ink-2", extra=turned))
    return parts


# --- marks -------------------------------------------------------------------------------------


def _traces(traces: Sequence[dict[str, Any]], x: _Scale, panels: dict[str, _Scale]) -> list[str]:
    parts = []
    for index, trace in enumerate(traces):
        y = panels[trace.get("yaxis", "y")]
        pixels = [(x(a), y(b)) for a, b in zip(trace["x"], trace["y"], strict=True)]
        if trace.get("fill") == "tonexty" and index:
            before = traces[index - 1]
            edge = [(x(a), y(b)) for a, b in zip(before["x"], before["y"], strict=True)]
            parts.append(_polygon([*edge, *reversed(pixels)], trace["fillcolor"]))
        parts += _series(trace, pixels)
        parts += _error_bars(trace, pixels, x)
    return parts


def _series(trace: dict[str, Any], pixels: list[tuple[float, float]]) -> list[str]:
    parts = []
    stroke = trace.get("line", {})
    if "lines" in trace["mode"] and stroke.get("width", 2) > 0:
        path = _stairs(pixels) if stroke.get("shape") == "hv" else pixels
        dots = " ".join(f"{a:.1f},{b:.1f}" for a, b in path)
        dash = f' stroke-dasharray="{_dash(stroke["dash"])}"' if "dash" in stroke else ""
        parts.append(
            f'<polyline points="{dots}" fill="none" stroke="{_colour(stroke["color"])}"'
            f' stroke-width="{stroke.get("width", 2)}"{dash}/>'
        )
    if "markers" in trace["mode"]:
        parts += [_marker(a, b, trace["marker"]) for a, b in pixels]
    return parts


def _stairs(pixels: list[tuple[float, float]]) -> list[tuple[float, float]]:
    path = pixels[:1]
    for (_, before), (a, b) in pairwise(pixels):
        path += [(a, before), (a, b)]
    return path


def _error_bars(trace: dict[str, Any], pixels: list[tuple[float, float]], x: _Scale) -> list[str]:
    bar = trace.get("error_x")
    if not bar:
        return []
    parts = []
    for (_, py), at, more, less in zip(
        pixels, trace["x"], bar["array"], bar["arrayminus"], strict=True
    ):
        low, high = x(at - less), x(at + more)
        parts.append(_line(low, py, high, py, bar["color"], width=bar["thickness"]))
        for end in (low, high):
            parts.append(_line(end, py - 3, end, py + 3, bar["color"], width=bar["thickness"]))
    return parts


def _marker(a: float, b: float, marker: dict[str, Any]) -> str:
    half = marker["size"] / 2
    fill = _colour(marker["color"])
    if marker.get("symbol", "circle").startswith("square"):
        return (
            f'<rect x="{a - half:.1f}" y="{b - half:.1f}" width="{2 * half:g}"'
            f' height="{2 * half:g}" fill="{fill}"/>'
        )
    if marker.get("symbol") == "circle-open":
        return (
            f'<circle cx="{a:.1f}" cy="{b:.1f}" r="{half:g}" fill="none" stroke="{fill}"'
            ' stroke-width="1.5"/>'
        )
    return f'<circle cx="{a:.1f}" cy="{b:.1f}" r="{half:g}" fill="{fill}"/>'


def _polygon(pixels: list[tuple[float, float]], colour: str) -> str:
    name, _, alpha = colour.partition("/")
    dots = " ".join(f"{a:.1f},{b:.1f}" for a, b in pixels)
    return f'<polygon points="{dots}" fill="{_colour(name)}" fill-opacity="{alpha or 1}"/>'


def _shape(
    shape: dict[str, Any], x: _Scale, y: _Scale, margin: dict[str, float], height: int
) -> str:
    left, right = margin["l"], WIDTH - margin["r"]
    top, bottom = margin["t"], height - margin["b"]
    paper_x, paper_y = shape.get("xref") == "paper", shape.get("yref") == "paper"
    x0 = left if paper_x else x(shape["x0"])
    x1 = right if paper_x else x(shape["x1"])
    y0 = bottom if paper_y else y(shape["y0"])
    y1 = top if paper_y else y(shape["y1"])
    stroke = shape["line"]
    return _line(x0, y0, x1, y1, stroke["color"], width=stroke["width"], dash=stroke.get("dash"))


def _label(
    note: dict[str, Any], x: _Scale, y: _Scale, margin: dict[str, float], height: int
) -> str:
    left, right = margin["l"], WIDTH - margin["r"]
    top, bottom = margin["t"], height - margin["b"]
    # Labels on a log axis carry log10 values, as plotly wants them.
    px = left + note["x"] * (right - left) if note.get("xref") == "paper" else x.at(note["x"])
    py = bottom - note["y"] * (bottom - top) if note.get("yref") == "paper" else y.at(note["y"])
    px += note.get("xshift", 0)
    py -= note.get("yshift", 0)
    drop = {"bottom": -4.0, "top": 12.0}.get(note.get("yanchor", ""), 4.0)
    anchor = {"left": "start", "right": "end"}.get(note.get("xanchor", ""), "middle")
    text = _NO_PLOTLY_MARKUP.sub("", note["text"])
    return _text(
        px, py + drop, text, anchor=anchor, size=note["font"]["size"], colour=note["font"]["color"]
    )


# --- elements ----------------------------------------------------------------------------------


def _line(
    x0: float,
    y0: float,
    x1: float,
    y1: float,
    colour: str,
    *,
    width: float = 1,
    dash: str | None = None,
) -> str:
    dashes = f' stroke-dasharray="{_dash(dash)}"' if dash else ""
    return (
        f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}"'
        f' stroke="{_colour(colour)}" stroke-width="{width:g}"{dashes}/>'
    )


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str,
    size: int = 12,
    colour: str = "token:ink-3",
    extra: str = "",
) -> str:
    if not text:
        return ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
        f' fill="{_colour(colour)}" {extra}>{escape(text)}</text>'
    )


def _colour(name: str) -> str:
    return f"var(--{name[6:]})" if name.startswith("token:") else escape(name, quote=True)


def _dash(dash: str) -> str:
    return dash.replace("px", "")
