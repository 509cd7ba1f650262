"""What the agent sampled beside a trial, over its time, with the moments of lowered clocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from advisor import units
from advisor.charts import figure
from advisor.charts.base import Chart, Column
from gpuagent.wire import GpuSample, HostSample

_MAX_POINTS = 400


@dataclass(frozen=True, slots=True)
class _Quantity:
    id: str
    short: str
    axis: str
    scale: float
    unit: str
    read: Callable[[HostSample, GpuSample | None], float | None]


_QUANTITIES = (
    _Quantity("gpu-power", "Power", "Power (W)", 1.0, "W", lambda _, g: g.power_w if g else None),
    _Quantity(
        "gpu-clock", "SM clock", "SM clock (MHz)", 1e-6, "MHz",
        lambda _, g: g.sm_clock_hz if g else None,
    ),
    _Quantity(
        "gpu-temperature", "Temperature", "Temperature (°C)", 1.0, "°C",
        lambda _, g: g.temperature_c if g else None,
    ),
    _Quantity(
        "gpu-busy", "GPU busy", "GPU busy (%)", 100.0, "%",
        lambda _, g: g.util_frac if g else None,
    ),
    _Quantity("cpu-busy", "CPU busy", "CPU busy (%)", 100.0, "%", lambda h, _: h.cpu_frac),
    _Quantity(
        "trial-memory", "Trial memory", "Memory of the trial (GiB)", 1 / 1024**3, "GiB",
        lambda h, _: float(h.child_rss_bytes) if h.child_rss_bytes is not None else None,
    ),
)  # fmt: skip
IDLE = frozenset({"gpu_idle", "idle", "none"})
"""Reasons that lower clocks without costing a busy GPU anything."""


def charts(samples: Sequence[HostSample], gpu: int = 0) -> tuple[Chart, ...]:
    """One chart per quantity that was sampled at least twice; they share a box."""
    if len(samples) < 2:
        return ()
    return tuple(c for q in _QUANTITIES if (c := _chart(q, samples, gpu)) is not None)


def _gpu(sample: HostSample, index: int) -> GpuSample | None:
    return next((g for g in sample.gpus if g.index == index), None)


def _chart(quantity: _Quantity, samples: Sequence[HostSample], gpu: int) -> Chart | None:
    start = samples[0].at_s
    read = [(s.at_s - start, quantity.read(s, _gpu(s, gpu))) for s in samples]
    known = [(at, value * quantity.scale) for at, value in read if value is not None]
    if len(known) < 2:
        return None
    spans = _throttled(samples, gpu)
    values = sorted(value for _, value in known)
    middle = values[len(values) // 2]
    shown = known[:: max(1, len(known) // _MAX_POINTS)]
    x, y = [at for at, _ in shown], [value for _, value in shown]
    top = max(values)
    lowered = sum(b - a for a, b, _ in spans)
    reasons = sorted({reason for *_, reason in spans})
    title = (
        f"{quantity.short} is {_text(middle, quantity)} at the median and "
        f"{_text(top, quantity)} at most"
    )
    if spans:
        title += f"; clocks were lowered for {units.seconds(lowered, 2)}"
    device = f"GPU {gpu}" if quantity.id.startswith("gpu") else "host"
    return Chart(
        id=quantity.id,
        short=quantity.short,
        title=title,
        note=(
            f"{len(known):,} samples of the {device}, about one a second; raw, nothing smoothed."
            + (f" Red along the bottom: lowered clocks ({', '.join(reasons)})." if spans else "")
        ),
        label=f"{quantity.short} over the time of the trial",
        figure=_figure(quantity, x, y, top, spans),
        columns=(Column("Time"), Column(quantity.axis), Column("Clocks lowered by", False)),
        rows=tuple(
            (units.seconds(at, 2) if at else "0", units.number(value), _reason_at(spans, at))
            for at, value in shown[:: max(1, len(shown) // 60)]
        ),
    )


def _text(value: float, quantity: _Quantity) -> str:
    return f"{units.number(value)}{units.NBSP}{quantity.unit}"


def _throttled(samples: Sequence[HostSample], gpu: int) -> list[tuple[float, float, str]]:
    """(from, to, reasons) in seconds since the first sample."""
    start = samples[0].at_s
    spans: list[tuple[float, float, str]] = []
    for sample, after in zip(samples, [*samples[1:], samples[-1]], strict=True):
        found = _gpu(sample, gpu)
        reasons = sorted(set(found.throttle_reasons) - IDLE) if found is not None else []
        if not reasons:
            continue
        text = ", ".join(reasons)
        first, last = sample.at_s - start, after.at_s - start
        if spans and spans[-1][2] == text and abs(spans[-1][1] - first) < 1e-6:
            spans[-1] = (spans[-1][0], last, text)
        else:
            spans.append((first, last, text))
    return spans


def _reason_at(spans: Sequence[tuple[float, float, str]], at: float) -> str:
    return next((text for a, b, text in spans if a <= at <= b), units.DASH)


def _figure(
    quantity: _Quantity,
    x: list[float],
    y: list[float],
    top: float,
    spans: Sequence[tuple[float, float, str]],
) -> figure.Figure:
    line = figure.line(
        x,
        y,
        name=quantity.short,
        colour=figure.BEST,
        hover=f"%{{x:.0f}} s: %{{y:.4g}} {quantity.unit}",
        markers=False,
    )
    line["line"]["width"] = 1.5
    marks = [
        {
            "type": "line",
            "x0": a,
            "x1": max(b, a + x[-1] / 400),
            "yref": "paper",
            "y0": 0.01,
            "y1": 0.01,
            "line": {"color": "token:bad", "width": 5},
        }
        for a, b, _ in spans
    ]
    return {
        "data": [line],
        "layout": {
            "xaxis": figure.axis("Time since the start (s)", range=[0, x[-1] or 1.0]),
            "yaxis": figure.axis(quantity.axis, range=[0, top * 1.12 or 1.0]),
            "shapes": marks,
            "annotations": [],
            "margin": {"l": 60, "r": 16, "t": 16, "b": 44},
        },
    }
