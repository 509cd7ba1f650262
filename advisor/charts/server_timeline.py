"""The server's own gauges and the client's requests on one clock, in stacked panels. Pure.

The client knows when it sent a request and when the tokens came; the server says what ran, what
waited and how full its cache was. Where a scrape has no answer the line has a gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor import units
from advisor.charts import figure
from advisor.charts.base import Chart, ChartInput, Column, empty
from advisor.evidence import TrialEvidence
from gpuagent.wire.measure import RequestRecord
from gpuagent.wire.serving import ServerTimeline
from gpuagent.wire.trial import ServeResult

_ID, _SHORT, _NAME = "server-timeline", "Server over time", "The server over time"
_MAX_POINTS = 600
_MAX_ROWS = 120
_GAP = 0.05


@dataclass(frozen=True, slots=True)
class _Series:
    """One line of a panel; None is a gap. steps: holds until the next point."""

    name: str
    colour: str
    x: Sequence[float]
    y: Sequence[float | None]
    steps: bool = False
    dots: bool = False
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class _Panel:
    title: str
    series: tuple[_Series, ...]
    top: float | None = None


def timeline(data: ChartInput) -> Chart:
    """Of the trial in focus; empty with the reason where its server told nothing."""
    trial = data.best
    result = trial.measured(ServeResult) if trial is not None else None
    if trial is None or result is None:
        return empty(_ID, _SHORT, _NAME, "No server was measured in this trial.")
    seen = result.served.timeline
    if seen is None or not seen.at_s:
        why = result.served.timeline_reason or "the server showed no gauges while requests ran"
        return empty(_ID, _SHORT, _NAME, f"{why[:1].upper()}{why[1:]}.")
    return _chart(trial, result, seen)


def _chart(trial: TrialEvidence, result: ServeResult, seen: ServerTimeline) -> Chart:
    at, in_flight = _in_flight(result.requests)
    sent, ttft = _first_tokens(result.requests)
    end = max([*seen.at_s, *at, *sent])
    start = min([0.0, *seen.at_s])
    panels = _panels(seen, at, in_flight, sent, ttft)
    missing = sum(value is None for value in seen.running)
    note = (
        f"Gauges of the simulated server, {len(seen.at_s):,} readings, one a second of its time"
        if trial.spec.engine == "simulated"
        else f"Gauges of the server, {len(seen.at_s):,} readings about one a second"
    )
    note += (
        (f", {missing:,} of them without an answer (gaps)" if missing else "")
        + f"; {len(sent):,} requests of the client on the same clock"
        + (f", every {-(-len(sent) // _MAX_POINTS)}th drawn" if len(sent) > _MAX_POINTS else "")
        + "."
    )
    return Chart(
        id=_ID,
        short=_SHORT,
        title=_title(seen),
        note=note,
        label=f"{len(panels)} panels over the time of the load: "
        + ", ".join(panel.title for panel in panels),
        figure=_figure(panels, start, end),
        columns=tuple(Column(name) for name in _COLUMNS),
        rows=_rows(seen, at, in_flight),
        tall=True,
    )


_COLUMNS = ("Time", "In flight at the client", "Running", "Waiting", "KV cache used", "Preemptions")


def _title(seen: ServerTimeline) -> str:
    known = [
        (r or 0.0, w) for r, w in zip(seen.running, seen.waiting, strict=True) if w is not None
    ]
    cache = [value for value in seen.kv_frac if value is not None]
    full = f"the KV cache was at most {units.percent(max(cache))} full" if cache else ""
    evicted = [value for value in seen.preemptions if value is not None]
    if evicted and max(evicted) > 0:
        full += f"{', with ' if full else ''}{max(evicted):,.0f} preemptions"
    if not known:
        text = "The server did not say what ran and what waited"
    else:
        ran, queued = max(r for r, _ in known), [w for _, w in known if w > 0]
        if queued:
            text = (
                f"Requests waited in {len(queued)} of {len(known)} readings, up to "
                f"{max(queued):,.0f} at once beside {ran:,.0f} running"
            )
        else:
            text = f"No request waited at the server; at most {ran:,.0f} ran at once"
    return f"{text}; {full}" if full else text


def _panels(
    seen: ServerTimeline,
    at: Sequence[float],
    in_flight: Sequence[float],
    sent: Sequence[float],
    ttft: Sequence[float],
) -> list[_Panel]:
    panels = []
    if sent:
        step = -(-len(sent) // _MAX_POINTS)
        factor, unit = figure.time_scale(max(ttft))
        scaled = [value * factor for value in ttft[::step]]
        dots = _Series("TTFT", figure.SERIES[0], sent[::step], scaled, dots=True)
        panels.append(_Panel(f"TTFT ({unit})", (dots,)))
    step = -(-len(at) // _MAX_POINTS) or 1
    server = (
        _Series("Running", figure.SERIES[0], seen.at_s, seen.running),
        _Series("Waiting", figure.SERIES[2], seen.at_s, seen.waiting),
    )
    client = _Series("In flight", figure.CURRENT, at[::step], in_flight[::step], True, dashed=True)
    panels.append(_Panel("Requests", (*([client] if at else []), *server)))
    if any(value is not None for value in seen.kv_frac):
        percent = [None if v is None else v * 100 for v in seen.kv_frac]
        used = _Series("KV cache", figure.SERIES[0], seen.at_s, percent)
        panels.append(_Panel("KV cache (%)", (used,), top=105.0))
    if any(value is not None for value in seen.preemptions):
        count = _Series("Preemptions", figure.SERIES[0], seen.at_s, seen.preemptions, steps=True)
        panels.append(_Panel("Preempted", (count,)))
    return panels


def _in_flight(requests: Sequence[RequestRecord]) -> tuple[list[float], list[float]]:
    """(time, requests in flight from then on) at every send and every end that is known."""
    changes = [
        change for r in requests if r.token_s for change in ((r.sent_s, 1), (r.token_s[-1], -1))
    ]
    changes.sort()
    times = [at for at, _ in changes]
    return times, [float(n) for n in np.cumsum([step for _, step in changes])]


def _first_tokens(requests: Sequence[RequestRecord]) -> tuple[list[float], list[float]]:
    """(sent, TTFT) of the requests that gave a token, by the time they were sent."""
    found = sorted((r.sent_s, r.token_s[0] - r.intended_s) for r in requests if r.token_s)
    return [at for at, _ in found], [value for _, value in found]


def _figure(panels: Sequence[_Panel], start: float, end: float) -> figure.Figure:
    height = (1 - _GAP * (len(panels) - 1)) / len(panels)
    traces, labels = [], []
    layout: figure.Figure = {
        "xaxis": figure.axis(
            "Time since the start (s)",
            range=[start, end or 1.0],
            anchor="y" if len(panels) == 1 else f"y{len(panels)}",
        ),
        "shapes": [],
        "margin": {"l": 64, "r": 16, "t": 16, "b": 44},
    }
    for n, panel in enumerate(panels):
        key = "y" if n == 0 else f"y{n + 1}"
        above = 1 - n * (height + _GAP)
        values = [v for s in panel.series for v in s.y if v is not None]
        top = panel.top or max(values, default=0.0) * 1.15 or 1.0
        # Axes count from the top panel down.
        layout[key.replace("y", "yaxis")] = figure.axis(
            panel.title, range=[0, top], domain=[max(0.0, above - height), above], nticks=4
        )
        several = len(panel.series) > 1
        for place, series in enumerate(panel.series):
            traces += [{**trace, "yaxis": key} for trace in _traces(series)]
            if several:
                labels.append(
                    figure.label(
                        series.name,
                        colour=series.colour,
                        size=11,
                        xref="paper",
                        yref="paper",
                        x=0.99 - 0.25 * (len(panel.series) - 1 - place),
                        y=above,
                        xanchor="right",
                        yanchor="top",
                    )
                )
    return {"data": traces, "layout": {**layout, "annotations": labels}}


def _traces(series: _Series) -> list[figure.Figure]:
    """One trace for each unbroken run."""
    hover = f"{series.name}: %{{y:.4g}} at %{{x:.4g}} s"
    runs: list[list[tuple[float, float]]] = [[]]
    for x, y in zip(series.x, series.y, strict=True):
        if y is None:
            runs.append([])
        else:
            runs[-1].append((x, y))
    traces = []
    for run in filter(None, runs):
        xs, ys = [x for x, _ in run], [y for _, y in run]
        if series.dots:
            hovers = [f"{series.name} {units.number(y)} at {units.number(x)} s" for x, y in run]
            traces.append(
                figure.points(xs, ys, name=series.name, colour=series.colour, hover=hovers, size=4)
            )
            continue
        line = figure.line(
            xs,
            ys,
            name=series.name,
            colour=series.colour,
            hover=hover,
            dashed=series.dashed,
            # A run of one reading is a point, not a line.
            markers=len(run) == 1,
            shape="hv" if series.steps else "linear",
        )
        line["line"]["width"] = 1.5
        traces.append(line)
    return traces


def _rows(
    seen: ServerTimeline, at: Sequence[float], in_flight: Sequence[float]
) -> tuple[tuple[str, ...], ...]:
    step = -(-len(seen.at_s) // _MAX_ROWS)
    preempted = seen.preemptions or (None,) * len(seen.at_s)
    rows = []
    for n in range(0, len(seen.at_s), step):
        now = seen.at_s[n]
        index = int(np.searchsorted(at, now, side="right"))
        flying = f"{in_flight[index - 1]:,.0f}" if index else ("0" if at else units.DASH)
        cells = (seen.running[n], seen.waiting[n])
        rows.append(
            (
                f"{now:.1f}{units.NBSP}s",
                flying,
                *(units.DASH if v is None else f"{v:,.0f}" for v in cells),
                units.percent(seen.kv_frac[n]),
                units.DASH if preempted[n] is None else f"{preempted[n]:,.0f}",
            )
        )
    return tuple(rows)
