"""Latency and goodput over the request rate, from trials with open-loop arrivals at several rates.

A study asks for one rate, so this is drawn where trials of studies at different rates stand side
by side. Nothing is interpolated: points show what was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from advisor import units
from advisor.charts import figure
from advisor.charts.base import Chart, Column
from advisor.charts.rate_curve import Curve, Mark, curves, rate_text
from advisor.charts.samples import latency_at
from advisor.evidence import TrialEvidence
from advisor.targets import limit_text, measured_at_rate, trial_metrics
from gpuagent.stats import summarise
from gpuagent.wire import EngineSettings, SlaTarget
from gpuagent.wire.sla import LatencyMetric, Statistic
from gpuagent.wire.trial import VerifyResult

_FALLBACK: Statistic = "p50"
_LEAST_BLOCKS = 5
_BLOCKS = 20


@dataclass(frozen=True, slots=True)
class RatePoint:
    """One trial at one rate; low and high are None without an interval."""

    trial: TrialEvidence
    rate_per_s: float
    value: float
    low: float | None
    high: float | None
    n: int


def latency(
    trials: Sequence[TrialEvidence], metric: LatencyMetric, target: SlaTarget | None
) -> Chart | None:
    """None unless two rates were measured."""
    statistic = target.statistic if target is not None else _FALLBACK
    points = []
    for trial, rate in _open_loop(trials):
        status = latency_at(trial, metric, statistic)
        if status.value is not None:
            points.append(RatePoint(trial, rate, status.value, status.low, status.high, status.n))
    if not _several(points):
        return None
    name = f"{units.METRIC_NAMES[metric]} {statistic}"
    first, last = _ends(points)
    within = f"; the limit is {limit_text(target)}" if target is not None else ""
    factor, unit = figure.time_scale(
        max([p.value for p in points] + ([target.limit] if target else []))
    )
    return _chart(
        f"{metric.removesuffix('_s')}-rate",
        f"{name} by rate",
        f"{name} is {units.seconds(first.value)} at {_rate(first)} and "
        f"{units.seconds(last.value)} at {_rate(last)}{within}",
        f"One point per trial with open-loop arrivals; bands are {figure.INTERVALS}.",
        points,
        name,
        f"{name} ({unit})",
        factor,
        units.seconds,
        limit=target.limit * factor if target is not None else None,
        limit_words=limit_text(target) if target is not None else "",
    )


def goodput(trials: Sequence[TrialEvidence], targets: Sequence[SlaTarget]) -> Chart | None:
    """Requests a second that kept every latency target of TTFT and E2E; None below two rates."""
    limits = {t.metric: t.limit for t in targets if t.metric in ("ttft_s", "e2e_s")}
    if not limits:
        return None
    points = [p for trial, rate in _open_loop(trials) if (p := _good(trial, rate, limits))]
    if not _several(points):
        return None
    best = max(points, key=lambda p: p.value)
    kept = " and ".join(
        f"{units.METRIC_NAMES[m]} within {units.metric(m, v)}" for m, v in limits.items()
    )
    return _chart(
        "goodput-rate",
        "Goodput by rate",
        f"Goodput is highest at {_rate(best)}: {units.number(best.value)} good req/s",
        f"Good: {kept}. One point per trial; bands are {figure.INTERVALS} over blocks of time.",
        points,
        "Goodput",
        "Goodput (req/s)",
        1.0,
        lambda value: f"{units.number(value)}{units.NBSP}req/s",
    )


def _open_loop(trials: Sequence[TrialEvidence]) -> list[tuple[TrialEvidence, float]]:
    found = []
    for trial in trials:
        rate = trial.spec.workload.request_rate_per_s
        if trial.measured(VerifyResult) is not None:
            # Its runs have clocks of their own, so they are no one load.
            continue
        if rate is not None and trial.usable and measured_at_rate(trial):
            found.append((trial, rate))
    return found


def _good(trial: TrialEvidence, rate: float, limits: dict[str, float]) -> RatePoint | None:
    metrics = trial_metrics(trial)
    if metrics is None or metrics.succeeded == 0:
        return None
    arrays = {"ttft_s": metrics.ttft_s, "e2e_s": metrics.e2e_s}
    good = np.ones(metrics.succeeded, dtype=bool)
    for metric, limit in limits.items():
        good &= arrays[metric] <= limit
    start = float(metrics.intended_s.min())
    ends = metrics.intended_s + metrics.e2e_s - start
    window_s = float(ends.max())
    if window_s <= 0:
        return None
    blocks = min(_BLOCKS, int(window_s / (2 * float(metrics.e2e_s.mean()))))
    low = high = None
    if blocks >= _LEAST_BLOCKS:
        counts, _ = np.histogram(ends[good], bins=blocks, range=(0.0, window_s))
        spread = summarise(counts * blocks / window_s)
        low, high = spread.mean_low, spread.mean_high
    value = float(good.sum()) / window_s
    return RatePoint(trial, rate, value, low, high, metrics.sent)


def _several(points: Sequence[RatePoint]) -> bool:
    return len({p.rate_per_s for p in points}) > 1


def _ends(points: Sequence[RatePoint]) -> tuple[RatePoint, RatePoint]:
    ordered = sorted(points, key=lambda p: p.rate_per_s)
    return ordered[0], ordered[-1]


def _rate(point: RatePoint) -> str:
    return rate_text(point.rate_per_s)


def _chart(
    chart_id: str,
    short: str,
    title: str,
    note: str,
    points: Sequence[RatePoint],
    name: str,
    y_title: str,
    factor: float,
    text: Callable[[float | None], str],
    *,
    limit: float | None = None,
    limit_words: str = "",
) -> Chart:
    """Trials of the same settings make one line."""
    series: dict[str, list[RatePoint]] = {}
    for point in sorted(points, key=lambda p: p.rate_per_s):
        series.setdefault(_settings(point.trial), []).append(point)
    drawn = [
        Curve(
            f"Trial {line[-1].trial.ordinal}",
            figure.CURRENT if n == 0 else figure.SERIES[n - 1],
            n == 0,
            tuple(
                Mark(
                    p.rate_per_s,
                    p.value * factor,
                    p.low * factor if p.low is not None else None,
                    p.high * factor if p.high is not None else None,
                )
                for p in line
            ),
        )
        for n, line in enumerate(list(series.values())[: len(figure.SERIES)])
    ]
    return Chart(
        id=chart_id,
        short=short,
        title=title,
        note=note,
        label=f"{name} of {len(points)} trials over the request rate",
        figure=curves(
            drawn,
            y_title,
            limit=limit,
            limit_words=limit_words,
            may_log=limit is not None,
        ),
        columns=(
            Column("Trial", False),
            Column("Rate (req/s)"),
            Column(name),
            Column("95 % interval"),
            Column("n"),
        ),
        rows=tuple(
            (
                f"{p.trial.ordinal} · {p.trial.title}",
                units.number(p.rate_per_s),
                text(p.value),
                units.DASH
                if p.low is None or p.high is None
                else f"{text(p.low)} to {text(p.high)}",
                f"{p.n:,}",
            )
            for p in sorted(points, key=lambda p: p.rate_per_s)
        ),
    )


def _settings(trial: TrialEvidence) -> str:
    settings: EngineSettings = trial.settings
    return settings.model_dump_json()
