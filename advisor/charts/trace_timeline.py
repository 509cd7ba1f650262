"""The busiest 50 ms of a trace: one lane per GPU stream and host thread, zoomable. Pure."""

from __future__ import annotations

from html import escape
from typing import Any

from advisor import units
from advisor.charts.figure import Figure, axis

HOST_COLOURS = {
    "launch": ("ki1", "token:idle-launch"),
    "graph_launch": ("ki1", "token:idle-launch"),
    "sync": ("ki2", "token:idle-sync"),
    "memcpy": ("ki4", "token:idle-transfer"),
    "memcpy_sync": ("ki4", "token:idle-transfer"),
}
_HOST_REST = ("ki6", "token:idle-allocation")
_DRAWN_LANES = 7
_STATIC_BARS = 400


def lanes_of(timeline: dict[str, Any]) -> list[str]:
    """Lanes in the order in which they are drawn: host threads above, then GPU streams."""
    found = dict.fromkeys(
        bar["lane"] for side in ("host", "gpu") for bar in timeline["bars"] if bar["side"] == side
    )
    return list(found)[: 2 * _DRAWN_LANES]


def timeline_figure(
    timeline: dict[str, Any], class_keys: dict[str, str], labels: dict[str, str]
) -> Figure:
    """A plotly figure of horizontal bars, one trace per class; drag to zoom in time.

    timeline: of the report. class_keys: kernel class -> "k1".."k8". labels: class -> word.
    """
    scale, unit = (1e-6, "ms") if timeline["length_s"] >= 1e-3 else (1e-3, "µs")
    lanes = lanes_of(timeline)
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for bar in timeline["bars"]:
        if bar["lane"] in lanes:
            groups.setdefault((bar["side"], bar["class"]), []).append(bar)
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": labels.get(name, name.replace("_", " ")),
            "y": [bar["lane"] for bar in bars],
            "x": [round((bar["end_ns"] - bar["start_ns"]) * scale, 6) for bar in bars],
            "base": [round(bar["start_ns"] * scale, 6) for bar in bars],
            "text": [_hover(bar) for bar in bars],
            "textposition": "none",
            "width": 0.7,
            "marker": {"color": _colour(side, name, class_keys), "line": {"width": 0}},
            "hovertemplate": "%{text}<extra></extra>",
        }
        for (side, name), bars in groups.items()
    ]
    return {
        "data": traces,
        "layout": {
            "barmode": "overlay",
            "bargap": 0.2,
            "dragmode": "zoom",
            "margin": {"l": 56, "r": 12, "t": 8, "b": 44},
            "xaxis": axis(
                f"Time ({unit})",
                fixedrange=False,
                range=[0, round(timeline["length_s"] * 1e9 * scale, 6)],
            ),
            "yaxis": axis(
                "",
                type="category",
                categoryorder="array",
                categoryarray=list(reversed(lanes)),
                showgrid=False,
            ),
        },
    }


def timeline_svg(timeline: dict[str, Any], class_keys: dict[str, str], label: str) -> str:
    """The same without a script, coarser: lanes of at most a few hundred bars each."""
    length_ns = max(1.0, timeline["length_s"] * 1e9)
    parts = []
    for lane in lanes_of(timeline)[:_DRAWN_LANES]:
        bars = [bar for bar in timeline["bars"] if bar["lane"] == lane]
        name = escape(lane, quote=True)
        rects = "".join(
            f'<rect class="{key}" x="{100 * start / length_ns:.2f}" y="3"'
            f' width="{max(0.05, 100 * (end - start) / length_ns):.2f}" height="20"/>'
            for key, start, end in _merged(bars, class_keys, length_ns / _STATIC_BARS)
        )
        parts.append(
            f'<span>{name}</span><svg class="lane" viewBox="0 0 100 26" role="img"'
            f' preserveAspectRatio="none" aria-label="{name}">{rects}</svg>'
        )
    ends = f"<span>0</span><span>{escape(units.seconds(timeline['length_s']))}</span>"
    axis_row = f'<div class="lanes__axis">{ends}</div>'
    aria = escape(label, quote=True)
    body = "".join(parts)
    return f'<div class="lanes figure-svg" role="group" aria-label="{aria}">{body}{axis_row}</div>'


def _merged(
    bars: list[dict[str, Any]], class_keys: dict[str, str], gap_ns: float
) -> list[tuple[str, float, float]]:
    found: list[tuple[str, float, float]] = []
    for bar in sorted(bars, key=lambda row: row["start_ns"]):
        key = _key(bar["side"], bar["class"], class_keys)
        last = found[-1] if found else None
        if last is not None and last[0] == key and bar["start_ns"] - last[2] < gap_ns:
            found[-1] = (key, last[1], max(last[2], bar["end_ns"]))
        else:
            found.append((key, bar["start_ns"], bar["end_ns"]))
    return found


def _hover(bar: dict[str, Any]) -> str:
    """Plotly reads a little markup in texts, and names come from a file: they are escaped."""
    time = units.seconds((bar["end_ns"] - bar["start_ns"]) * 1e-9)
    times = f" ({bar['count']:,} calls)" if bar["count"] > 1 else ""
    return f"{escape(bar['name'])}<br>{time}{times}"


def _key(side: str, name: str, class_keys: dict[str, str]) -> str:
    if side == "host":
        return HOST_COLOURS.get(name, _HOST_REST)[0]
    return class_keys.get(name, "k8")


def _colour(side: str, name: str, class_keys: dict[str, str]) -> str:
    if side == "host":
        return HOST_COLOURS.get(name, _HOST_REST)[1]
    return f"token:series-{class_keys.get(name, 'k8')[1:]}"
