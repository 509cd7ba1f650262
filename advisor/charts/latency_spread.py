"""Cumulative distribution of TTFT or ITL: current against best, with the SLA line."""

from __future__ import annotations

import math

import numpy as np

from advisor import units
from advisor.charts import figure
from advisor.charts.base import Chart, ChartInput, Column, empty, nothing_yet
from advisor.charts.samples import LatencySamples, latency_at, latency_samples
from advisor.evidence import TrialEvidence
from advisor.targets import limit_text
from gpuagent.wire import SlaTarget
from gpuagent.wire.sla import LatencyMetric, Statistic

_MAX_POINTS = 160
_TAIL_POINTS = 30
_SHOWN: tuple[Statistic, ...] = ("p50", "p90", "p95", "p99")
_Found = list[tuple[TrialEvidence, LatencySamples]]


def ttft(data: ChartInput) -> Chart:
    return _chart(data, "ttft_s")


def itl(data: ChartInput) -> Chart:
    return _chart(data, "itl_s")


def _chart(data: ChartInput, metric: LatencyMetric) -> Chart:
    word = units.METRIC_NAMES[metric]
    chart_id = f"{metric.removesuffix('_s')}-spread"
    found = [(t, s) for t in data.pair if (s := latency_samples(t, metric))]
    if not found:
        return empty(chart_id, word, f"Spread of {word}", nothing_yet(data, word))
    target = data.target(metric)
    return Chart(
        id=chart_id,
        short=word,
        title=_title(data, *found[-1], target),
        note=_note(data, metric, found),
        label=f"Cumulative share of {_things(metric)} by {word} for "
        + " and ".join(data.name(t).lower() for t, _ in found),
        figure=_figure(data, metric, found, target),
        columns=(Column("Trial", False), *(Column(p) for p in _SHOWN), Column("n")),
        rows=tuple(_row(t, s) for t, s in found),
    )


def _things(metric: str) -> str:
    return "token gaps" if metric == "itl_s" else "requests"


def _title(
    data: ChartInput, trial: TrialEvidence, samples: LatencySamples, target: SlaTarget | None
) -> str:
    things, where = _things(samples.metric), data.place(trial)
    if target is None:
        median = float(np.median(samples.values))
        return f"Half of all {things} stay below {units.seconds(median)} in {where}"
    within = int((samples.values <= target.limit).sum())
    word = units.METRIC_NAMES[samples.metric]
    share = _share(within / samples.n)
    return f"{share} of {things} keep {word} within {limit_text(target)} in {where}"


def _share(share: float) -> str:
    """Never rounded up to all or down to none: 99.97 % stays below 100 %."""
    percent = share * 100
    if percent in (0, 100):
        return f"{percent:.0f}{units.NBSP}%"
    return f"{min(max(percent, 0.1), 99.9):.1f}{units.NBSP}%"


def _note(data: ChartInput, metric: str, found: _Found) -> str:
    counts = ", ".join(f"{data.name(t).lower()} {s.n:,}" for t, s in found)
    failed = sum(s.failed for _, s in found)
    tail = f" {failed:,} requests failed and count as over any limit." if failed else ""
    return f"{_things(metric).capitalize()}: {counts}. Raw samples, nothing smoothed.{tail}"


def _figure(
    data: ChartInput, metric: str, found: _Found, target: SlaTarget | None
) -> figure.Figure:
    limit_s = target.limit if target else 0.0
    smallest = min(float(s.values[0]) for _, s in found)
    largest = max([limit_s, *(float(s.values[-1]) for _, s in found)])
    factor, unit = figure.time_scale(largest)
    log = smallest > 0 and largest / smallest > 20
    low, high = smallest * factor, largest * factor
    limits = [math.log10(low * 0.85), math.log10(high * 1.25)] if log else [0, high * 1.12]
    word = units.METRIC_NAMES[metric]
    labels = [_series_label(data, t, s, factor, log, n) for n, (t, s) in enumerate(found)]
    if target:
        at = math.log10(limit_s * factor) if log else limit_s * factor
        labels.append(figure.limit_label(limit_text(target), at, limits[1]))
    return {
        "data": [_series(data, t, s, factor, unit) for t, s in found],
        "layout": {
            "xaxis": figure.log_axis(f"{word} ({unit}, log)", low * 0.85, high * 1.25)
            if log
            else figure.axis(f"{word} ({unit})", range=limits),
            "yaxis": figure.axis(f"Share of {_things(metric)} (%)", range=[0, 103], dtick=20),
            "shapes": [figure.limit_x(limit_s * factor)] if target else [],
            "annotations": labels,
            "margin": {"l": 56, "r": 16, "t": 28, "b": 44},
        },
    }


def _series(
    data: ChartInput, trial: TrialEvidence, samples: LatencySamples, factor: float, unit: str
) -> dict[str, object]:
    x, y = _steps(samples)
    current = data.is_current(trial)
    return figure.line(
        [value * factor for value in x],
        y,
        name=data.name(trial),
        colour=figure.CURRENT if current else figure.BEST,
        hover=f"{data.name(trial)}: %{{y:.1f}} % within %{{x:.4g}} {unit}",
        dashed=current,
        markers=False,
        shape="hv",
    )


def _steps(samples: LatencySamples) -> tuple[list[float], list[float]]:
    """The empirical distribution in percent, thinned so that the upper tail stays whole."""
    size = samples.values.size
    ranks = np.arange(size)
    if size > _MAX_POINTS:
        body = np.linspace(0, size - 1, _MAX_POINTS - _TAIL_POINTS)
        tail = size - np.geomspace(1, size, _TAIL_POINTS)
        ranks = np.unique(np.concatenate([body, tail]).astype(int))
    shares = (ranks + 1) / samples.n * 100
    return samples.values[ranks].tolist(), shares.tolist()


def _series_label(
    data: ChartInput,
    trial: TrialEvidence,
    samples: LatencySamples,
    factor: float,
    log: bool,
    index: int,
) -> dict[str, object]:
    share = 0.35 + 0.25 * index
    value = float(np.quantile(samples.values, share)) * factor
    return figure.label(
        data.name(trial),
        colour=figure.CURRENT if data.is_current(trial) else figure.BEST,
        x=math.log10(value) if log and value > 0 else value,
        y=share * 100,
        xanchor="left",
        xshift=8,
        yshift=-8,
    )


def _row(trial: TrialEvidence, samples: LatencySamples) -> tuple[str, ...]:
    cells = [units.seconds(latency_at(trial, samples.metric, p).value) for p in _SHOWN]
    return f"{trial.ordinal} · {trial.title}", *cells, f"{samples.n:,}"
