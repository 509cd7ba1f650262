"""Parallel coordinates: one line per trial over the settings that differ and what was measured.

Drawn as plain lines on shared, scaled axes rather than with plotly's parcoords, which compiles its
shaders with `Function` and so needs a looser content policy, and which neither prints nor works
without scripts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from advisor import units
from advisor.charts import figure
from advisor.charts.base import Chart, ChartInput, Column, empty
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.knobs import knob_name, knob_text
from advisor.measures import BASELINE_ROLES
from advisor.targets import limit_text, target_name, target_statuses, trial_metrics
from gpuagent.request_metrics import throughput
from gpuagent.wire import SlaTarget
from gpuagent.wire.trial import BaselineResult

_ID, _SHORT = "coordinates", "All trials"
_NAME = "Settings and results of all trials"
_MAX_SETTINGS, _MAX_METRICS = 4, 4
_LEAST_TRIALS = 3


@dataclass(frozen=True, slots=True)
class Highlight:
    """A trial that stands out from the thin lines."""

    trial_id: str
    name: str
    colour: str
    dashed: bool


@dataclass(frozen=True, slots=True)
class _Axis:
    """heights: 0 at the bottom to 1 on top for each trial, None where it has no value."""

    title: str
    top: str
    bottom: str
    heights: tuple[float | None, ...]
    cells: tuple[str, ...]
    limit: tuple[float, str] | None = None


def trials(data: ChartInput) -> Chart:
    """The study's baselines; current and best stand out."""
    marked = [
        Highlight(
            trial.trial_id,
            data.name(trial),
            figure.CURRENT if data.is_current(trial) else figure.BEST,
            data.is_current(trial),
        )
        for trial in data.pair
    ]
    return coordinates(data.evidence, marked)


def coordinates(evidence: StudyEvidence, marked: Sequence[Highlight]) -> Chart:
    """Empty below three measured trials or without a setting in which they differ."""
    shown = [
        t
        for t in evidence.trials
        if t.role in BASELINE_ROLES and t.usable and t.measured(BaselineResult) is not None
    ]
    if len(shown) < _LEAST_TRIALS:
        return empty(_ID, _SHORT, _NAME, f"Drawn from {_LEAST_TRIALS} valid trials on.")
    settings, metrics = _settings(shown), _metrics(evidence, shown)
    if not settings or not metrics:
        return empty(_ID, _SHORT, _NAME, "The trials do not differ in any setting.")
    axes = [*settings, *metrics]
    return Chart(
        id=_ID,
        short=_SHORT,
        title=_title(settings, metrics),
        note=(
            f"One line per trial, {len(shown)} valid trials; means and target statistics, each"
            f" measured once. From {metrics[0].title} to the right, up is better; red ticks are"
            " the limits. Of the settings, the most varied are shown."
        ),
        label=f"Parallel coordinates of {len(shown)} trials over "
        + ", ".join(axis.title for axis in axes),
        figure=_figure(shown, axes, {m.trial_id: m for m in marked}),
        columns=(
            Column("Trial", False),
            *(Column(axis.title, numeric=n >= len(settings)) for n, axis in enumerate(axes)),
        ),
        rows=tuple(
            (f"{t.ordinal} · {t.title}", *(axis.cells[n] for axis in axes))
            for n, t in enumerate(shown)
        ),
    )


def _settings(shown: Sequence[TrialEvidence]) -> list[_Axis]:
    values = [trial.settings.model_dump() for trial in shown]
    found = []
    for knob in values[0]:
        column = [v[knob] for v in values]
        distinct = sorted(set(column), key=lambda v: (v is not None, _order(v)))
        if len(distinct) < 2:
            continue
        heights = tuple(distinct.index(v) / (len(distinct) - 1) for v in column)
        cells = tuple(knob_text(v) for v in column)
        axis = _Axis(
            knob_name(knob), knob_text(distinct[-1]), knob_text(distinct[0]), heights, cells
        )
        found.append((len(distinct), axis))
    found.sort(key=lambda pair: -pair[0])
    return [axis for _, axis in found[:_MAX_SETTINGS]]


def _order(value: Any) -> tuple[int, float, str]:
    number = isinstance(value, int | float)
    return (0, float(value), "") if number else (1, 0.0, str(value))


def _metrics(evidence: StudyEvidence, shown: Sequence[TrialEvidence]) -> list[_Axis]:
    """The targets' own statistics; without any, mean latencies and throughput."""
    targets = evidence.spec.targets[:_MAX_METRICS]
    columns: list[_Axis] = []
    statuses = [target_statuses(trial, evidence.spec) for trial in shown]
    for n, target in enumerate(targets):
        values = [status[n].value for status in statuses]
        axis = _axis(target_name(target), target.metric, values, target.higher_is_better)
        if axis is not None:
            columns.append(_with_limit(axis, values, target))
    if columns:
        return columns
    for metric in ("ttft_s", "itl_s", "output_tok_s"):
        name = f"{units.METRIC_NAMES[metric]} mean" if metric != "output_tok_s" else "Throughput"
        axis = _axis(name, metric, [_mean(t, metric) for t in shown], metric == "output_tok_s")
        if axis is not None:
            columns.append(axis)
    return columns


def _mean(trial: TrialEvidence, metric: str) -> float | None:
    found = trial_metrics(trial)
    if found is None or found.succeeded == 0:
        return None
    if metric == "output_tok_s":
        return throughput(found).value_tok_s
    values = found.ttft_s if metric == "ttft_s" else found.itl_s
    return float(values.mean()) if values.size else None


def _scaled(value: float, known: Sequence[float], higher: bool) -> float:
    """On a log scale where values span more than a factor of ten: 0 worst, 1 best."""
    low, high = min(known), max(known)
    if low > 0 and high / low > 10:
        value, low, high = (float(np.log(v)) for v in (max(value, 1e-12), low, high))
    share = (value - low) / (high - low)
    return share if higher else 1 - share


def _axis(title: str, metric: str, values: Sequence[float | None], higher: bool) -> _Axis | None:
    known = [v for v in values if v is not None]
    if len(known) < _LEAST_TRIALS or min(known) == max(known):
        return None
    heights = tuple(None if v is None else _scaled(v, known, higher) for v in values)
    best, worst = (max(known), min(known)) if higher else (min(known), max(known))
    cells = tuple(units.metric(metric, v) for v in values)
    log = ", log" if min(known) > 0 and max(known) / min(known) > 10 else ""
    return _Axis(
        f"{title}{log}", units.metric(metric, best), units.metric(metric, worst), heights, cells
    )


def _with_limit(axis: _Axis, values: Sequence[float | None], target: SlaTarget) -> _Axis:
    known = [v for v in values if v is not None]
    if not min(known) <= target.limit <= max(known):
        return axis
    at = _scaled(target.limit, known, target.higher_is_better)
    return replace(axis, limit=(at, limit_text(target)))


def _title(settings: Sequence[_Axis], metrics: Sequence[_Axis]) -> str:
    """Which shown setting goes along with the first metric most, as a rank correlation."""
    first = metrics[0]
    best_name, best = "", 0.0
    for axis in settings:
        pairs = [
            (a, b)
            for a, b in zip(axis.heights, first.heights, strict=True)
            if a is not None and b is not None
        ]
        if len(pairs) < 5:
            continue
        ranks = np.argsort(np.argsort(np.array(pairs), axis=0), axis=0)
        if np.ptp([a for a, _ in pairs]) == 0:
            continue
        found = abs(float(np.corrcoef(ranks[:, 0], ranks[:, 1])[0, 1]))
        if found > best:
            best_name, best = axis.title, found
    span = f"{first.title.removesuffix(', log')} ranges from {first.top} to {first.bottom}"
    if best < 0.6:
        return f"{span}; no single setting decides it"
    return f"{span}; it goes along with {best_name[:1].lower() + best_name[1:]} most"


def _figure(
    shown: Sequence[TrialEvidence], axes: Sequence[_Axis], marked: dict[str, Highlight]
) -> figure.Figure:
    thin, thick, labels = [], [], []
    for n, trial in enumerate(shown):
        points = [(x, h) for x, axis in enumerate(axes) if (h := axis.heights[n]) is not None]
        x, y = [float(a) for a, _ in points], [b for _, b in points]
        highlight = marked.get(trial.trial_id)
        name = f"Trial {trial.ordinal}"
        if highlight is None:
            line = figure.line(
                x, y, name=name, colour="token:line-strong", hover=name, markers=False
            )
            line["line"]["width"] = 1
            thin.append(line)
            continue
        thick.append(
            figure.line(
                x,
                y,
                name=highlight.name,
                colour=highlight.colour,
                hover=highlight.name,
                dashed=highlight.dashed,
            )
        )
        at = len(thick) % max(1, len(points) - 1)
        labels.append(
            figure.label(
                highlight.name,
                colour=highlight.colour,
                x=(points[at][0] + points[at + 1][0]) / 2 if len(points) > 1 else x[0],
                y=(points[at][1] + points[at + 1][1]) / 2 if len(points) > 1 else y[0],
                yshift=10,
            )
        )
    shapes: list[dict[str, Any]] = []
    for x_at, axis in enumerate(axes):
        shapes.append(_rule(x_at, x_at, 0, 1, "token:chart-axis", 1))
        ends = ((axis.top, 1.0, 10), (axis.bottom, 0.0, -12))
        labels += [
            figure.label(text, size=11, x=x_at, y=y, yshift=shift, name="wide")
            for text, y, shift in ends
        ]
        if axis.limit is not None:
            at, text = axis.limit
            shapes.append(_rule(x_at - 0.07, x_at + 0.07, at, at, "token:bad", 2))
            labels.append(
                figure.label(
                    text,
                    colour="token:bad",
                    size=11,
                    x=x_at + 0.09,
                    y=at,
                    xanchor="left",
                    name="wide",
                )
            )
    names = [axis.title for axis in axes]
    return {
        "data": [*thin, *thick],
        "layout": {
            "xaxis": {
                "range": [-0.35, len(axes) - 0.55],
                "tickvals": list(range(len(axes))),
                "ticktext": names,
                "showgrid": False,
            },
            "yaxis": {"range": [-0.1, 1.1], "tickvals": [], "showline": False},
            "shapes": shapes,
            "annotations": labels,
            "margin": {"l": 16, "r": 16, "t": 16, "b": 40},
        },
    }


def _rule(x0: float, x1: float, y0: float, y1: float, colour: str, width: int) -> dict[str, Any]:
    return {
        "type": "line",
        "x0": x0,
        "x1": x1,
        "y0": y0,
        "y1": y1,
        "line": {"color": colour, "width": width},
    }
