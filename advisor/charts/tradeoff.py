"""Latency against cost, or against throughput where nobody names a price: the Pareto front."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from advisor import units
from advisor.charts import figure
from advisor.charts.base import Chart, ChartInput, Column, empty, nothing_yet
from advisor.charts.samples import latency_at
from advisor.costs import gpu_price, gpus_of
from advisor.evidence import TrialEvidence
from advisor.measures import baselines
from advisor.targets import limit_text, trial_metrics
from gpuagent.request_metrics import throughput
from gpuagent.wire.sla import LatencyMetric, Statistic

_ID, _SHORT, _NAME = "tradeoff", "Trade-off", "Latency against cost"
_LEAST = 3
# Labels of points that are closer than this share of the axis would touch.
_LABEL_FRAC = 0.12
_LATENCIES: tuple[LatencyMetric, ...] = ("itl_s", "ttft_s", "e2e_s")


@dataclass(frozen=True, slots=True)
class _Point:
    """y: USD per million output tokens of all GPUs that the trial took, or tok/s."""

    trial: TrialEvidence
    x_s: float
    low_s: float
    high_s: float
    y: float
    y_low: float | None
    y_high: float | None
    n: int
    gpus: int


def pareto(data: ChartInput) -> Chart:
    """Every valid baseline; the front joins those that no other beats in both."""
    metric, statistic = _latency(data)
    basis = gpu_price(data.evidence)
    price = basis.usd_per_gpu_hour if basis is not None else None
    found = [
        point
        for trial in baselines(data.evidence)
        if (point := _point(data, trial, metric, statistic, price))
    ]
    if len(found) < _LEAST:
        reason = nothing_yet(data, "latency and throughput of three configurations")
        return empty(_ID, _SHORT, _NAME, reason)
    front = _front(found, cheaper=price is not None)
    name = f"{units.METRIC_NAMES[metric]} {statistic}"
    what = "cost" if price is not None else "throughput"
    ends = (front[0], front[-1])
    title = f"{_trial(data, ends[0])} is best in {name} and in {what}"
    if len(front) > 1:
        title = (
            f"{len(front)} of {len(found)} configurations are worth a choice, from "
            f"{units.seconds(ends[0].x_s)} at {_y(ends[0].y, price)} to "
            f"{units.seconds(ends[1].x_s)} at {_y(ends[1].y, price)}"
        )
    counts = {p.gpus for p in found}
    per = "per GPU and hour" if counts != {1} else "per hour"
    source = "no price is known"
    if basis is not None:
        source = f"at ${units.number(basis.usd_per_gpu_hour)} {per}: {basis.basis}"
    return Chart(
        id=_ID,
        short=_SHORT,
        title=title,
        note=(
            f"One point per configuration, each measured once ({source}); bars are "
            f"{figure.INTERVALS} of {name}. The line joins those that no other beats in both."
        ),
        label=f"{name} against {what} of {len(found)} configurations",
        figure=_figure(data, found, front, metric, statistic, price),
        columns=(
            Column("Trial", False),
            Column(name),
            Column("95 % interval"),
            Column("Cost ($ per M tokens)" if price is not None else "Throughput"),
            Column("95 % interval"),
            Column("n"),
            Column("On the front", False),
        ),
        rows=tuple(
            (
                f"{p.trial.ordinal} · {p.trial.title}",
                units.seconds(p.x_s),
                f"{units.seconds(p.low_s)} to {units.seconds(p.high_s)}",
                _y(p.y, price),
                units.DASH
                if p.y_low is None or p.y_high is None
                else f"{_y(p.y_low, price)} to {_y(p.y_high, price)}",
                f"{p.n:,}",
                "yes" if p in front else "no",
            )
            for p in found
        ),
    )


def _latency(data: ChartInput) -> tuple[LatencyMetric, Statistic]:
    """The first latency target whose statistic some trial can show, else the ITL median."""
    for target in data.evidence.spec.targets:
        for metric in _LATENCIES:
            if target.metric == metric and any(
                latency_at(t, metric, target.statistic).value is not None
                for t in baselines(data.evidence)
            ):
                return metric, target.statistic
    return "itl_s", "p50"


def _point(
    data: ChartInput,
    trial: TrialEvidence,
    metric: LatencyMetric,
    statistic: Statistic,
    price: float | None,
) -> _Point | None:
    """price: USD per GPU and hour."""
    metrics, status = trial_metrics(trial), latency_at(trial, metric, statistic)
    if metrics is None or status.value is None:
        return None
    rate = throughput(metrics)
    if not rate.value_tok_s:
        return None
    y, y_low, y_high = rate.value_tok_s, rate.low, rate.high
    gpus = gpus_of(data.evidence, trial)
    if price is not None:
        price *= gpus
        # Less throughput costs more: the ends change places.
        y = _usd(price, y)
        y_low = _usd(price, rate.high) if rate.high else None
        y_high = _usd(price, rate.low) if rate.low else None
    low = status.low if status.low is not None else status.value
    high = status.high if status.high is not None else status.value
    return _Point(trial, status.value, low, high, y, y_low, y_high, status.n, gpus)


def _usd(price: float, rate_tok_s: float) -> float:
    return price / 3600 / rate_tok_s * 1e6


def _y(value: float, price: float | None) -> str:
    return units.rate(value) if price is None else f"${units.number(value)}"


def _front(found: list[_Point], *, cheaper: bool) -> list[_Point]:
    """By latency; each next one must be better in the other quantity than all before it."""
    best: list[_Point] = []
    for point in sorted(found, key=lambda p: (p.x_s, p.y if cheaper else -p.y)):
        if not best or (point.y < best[-1].y if cheaper else point.y > best[-1].y):
            best.append(point)
    return best


def _trial(data: ChartInput, point: _Point) -> str:
    place = data.place(point.trial)
    return place[:1].upper() + place[1:]


def _figure(
    data: ChartInput,
    found: list[_Point],
    front: list[_Point],
    metric: LatencyMetric,
    statistic: Statistic,
    price: float | None,
) -> figure.Figure:
    target = next(
        (t for t in data.evidence.spec.targets if t.metric == metric and t.statistic == statistic),
        None,
    )
    limit = target.limit if target else 0.0
    largest = max([limit, *(p.high_s for p in found)])
    smallest = min([*(p.low_s for p in found), limit or largest])
    factor, unit = figure.time_scale(largest)
    log = largest / smallest > 20
    name = f"{units.METRIC_NAMES[metric]} {statistic}"
    line = figure.line(
        [p.x_s * factor for p in front],
        [p.y for p in front],
        name="Front",
        colour="token:ink-3",
        hover="Front",
        markers=False,
    )
    line["line"]["width"] = 1.5
    traces = [line]
    labels: list[dict[str, Any]] = []
    right = largest * factor * 1.12
    top = max(p.y for p in found)
    for point in found:
        current, best = data.is_current(point.trial), data.is_best(point.trial)
        colour = figure.CURRENT if current else figure.BEST if best else figure.SERIES[1]
        hover = f"{data.name(point.trial)}: {units.seconds(point.x_s)}, {_y(point.y, price)}"
        traces.append(
            figure.points(
                [point.x_s * factor],
                [point.y],
                name=data.name(point.trial),
                colour=colour,
                symbol="square" if current else "circle",
                hover=[hover],
                x_range=([point.low_s * factor], [point.high_s * factor]),
            )
        )
        if current or best:
            x = point.x_s * factor
            near = any(abs(n["y"] - point.y) < _LABEL_FRAC * top for n in labels)
            labels.append(
                figure.label(
                    data.name(point.trial),
                    colour=colour,
                    x=math.log10(x) if log else x,
                    y=point.y,
                    # Two at most; where their points lie at one height the second stands below.
                    yshift=-14 if near else 14,
                )
            )
    shapes = []
    if target is not None:
        shapes.append(figure.limit_x(limit * factor))
        at = math.log10(limit * factor) if log else limit * factor
        labels.append(
            figure.limit_label(limit_text(target), at, math.log10(right) if log else right)
        )
    y_title = "Cost ($ per M output tokens)" if price is not None else "Throughput (tok/s)"
    return {
        "data": traces,
        "layout": {
            "xaxis": figure.log_axis(f"{name} ({unit}, log)", smallest * factor * 0.7, right * 1.2)
            if log
            else figure.axis(f"{name} ({unit})", range=[0, right]),
            "yaxis": figure.axis(y_title, range=[0, top * 1.15]),
            "shapes": shapes,
            "annotations": labels,
            "margin": {"l": 60, "r": 16, "t": 28, "b": 44},
        },
    }
