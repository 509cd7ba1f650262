"""Cumulative distribution of TTFT or ITL: current against best, with the SLA line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """One curve. name: label at the curve; place: where it holds, inside a sentence."""

    name: str
    place: str
    colour: str
    dashed: bool
    trial: TrialEvidence
    samples: LatencySamples


def ttft(data: ChartInput) -> Chart:
    return _chart(data, "ttft_s")


def itl(data: ChartInput) -> Chart:
    return _chart(data, "itl_s")


def _chart(data: ChartInput, metric: LatencyMetric) -> Chart:
    found = []
    for trial in data.pair:
        samples = latency_samples(trial, metric)
        if samples is not None:
            current = data.is_current(trial)
            colour = figure.CURRENT if current else figure.BEST
            name, place = data.name(trial), data.place(trial)
            found.append(Series(name, place, colour, current, trial, samples))
    if not found:
        word = units.METRIC_NAMES[metric]
        return empty(chart_id(metric), word, f"Spread of {word}", nothing_yet(data, word))
    return distribution(metric, found, data.target(metric))


def chart_id(metric: LatencyMetric) -> str:
    return f"{metric.removesuffix('_s')}-spread"


def distribution(metric: LatencyMetric, found: Sequence[Series], target: SlaTarget | None) -> Chart:
    """The empirical distributions of one metric over each other; the title speaks of the last."""
    word = units.METRIC_NAMES[metric]
    return Chart(
        id=chart_id(metric),
        short=word,
        title=_title(found[-1], target),
        note=_note(metric, found),
        label=f"Cumulative share of {_things(metric)} by {word} for "
        + " and ".join(one.name.lower() for one in found),
        figure=_figure(metric, found, target),
        columns=(Column("Trial", False), *(Column(p) for p in _SHOWN), Column("n")),
        rows=tuple(_row(one) for one in found),
    )


def _things(metric: str) -> str:
    return "token gaps" if metric == "itl_s" else "requests"


def _title(series: Series, target: SlaTarget | None) -> str:
    samples = series.samples
    things = _things(samples.metric)
    if target is None:
        median = float(np.median(samples.values))
        return f"Half of all {things} stay below {units.seconds(median)} in {series.place}"
    within = int((samples.values <= target.limit).sum())
    word = units.METRIC_NAMES[samples.metric]
    share = _share(within / samples.n)
    return f"{share} of {things} keep {word} within {limit_text(target)} in {series.place}"


def _share(share: float) -> str:
    """Never rounded up to all or down to none: 99.97 % stays below 100 %."""
    percent = share * 100
    if percent in (0, 100):
        return f"{percent:.0f}{units.NBSP}%"
    return f"{min(max(percent, 0.1), 99.9):.1f}{units.NBSP}%"


def _note(metric: str, found: Sequence[Series]) -> str:
    counts = ", ".join(f"{one.name.lower()} {one.samples.n:,}" for one in found)
    failed = sum(one.samples.failed for one in found)
    tail = f" {failed:,} requests failed and count as over any limit." if failed else ""
    return f"{_things(metric).capitalize()}: {counts}. Raw samples, nothing smoothed.{tail}"


def _figure(metric: str, found: Sequence[Series], target: SlaTarget | None) -> figure.Figure:
    limit_s = target.limit if target else 0.0
    smallest = min(float(one.samples.values[0]) for one in found)
    largest = max([limit_s, *(float(one.samples.values[-1]) for one in found)])
    factor, unit = figure.time_scale(largest)
    log = smallest > 0 and largest / smallest > 20
    low, high = smallest * factor, largest * factor
    limits = [math.log10(low * 0.85), math.log10(high * 1.25)] if log else [0, high * 1.12]
    word = units.METRIC_NAMES[metric]
    labels = [_series_label(one, factor, log, n) for n, one in enumerate(found)]
    if target:
        at = math.log10(limit_s * factor) if log else limit_s * factor
        labels.append(figure.limit_label(limit_text(target), at, limits[1]))
    return {
        "data": [_series(one, factor, unit) for one in found],
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


def _series(series: Series, factor: float, unit: str) -> dict[str, object]:
    x, y = _steps(series.samples)
    return figure.line(
        [value * factor for value in x],
        y,
        name=series.name,
        colour=series.colour,
        hover=f"{series.name}: %{{y:.1f}} % within %{{x:.4g}} {unit}",
        dashed=series.dashed,
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


def _series_label(series: Series, factor: float, log: bool, index: int) -> dict[str, object]:
    share = 0.35 + 0.2 * index
    value = float(np.quantile(series.samples.values, share)) * factor
    return figure.label(
        series.name,
        colour=series.colour,
        x=math.log10(value) if log and value > 0 else value,
        y=share * 100,
        xanchor="left",
        xshift=8,
        yshift=-8,
    )


def _row(series: Series) -> tuple[str, ...]:
    trial, metric = series.trial, series.samples.metric
    cells = [units.seconds(latency_at(trial, metric, p).value) for p in _SHOWN]
    return f"{trial.ordinal} · {trial.title}", *cells, f"{series.samples.n:,}"
