"""TTFT, ITL or E2E of every trial at the target's statistic, against the SLA line."""

from __future__ import annotations

from advisor import units
from advisor.charts import figure
from advisor.charts.base import Chart, ChartInput, Column, empty, nothing_yet
from advisor.charts.samples import latency_at
from advisor.evidence import TrialEvidence
from advisor.targets import TargetStatus, limit_text, trial_metrics
from gpuagent.wire import SlaTarget
from gpuagent.wire.sla import LatencyMetric, Statistic

SHORT = {"ttft_s": "TTFT", "itl_s": "ITL", "e2e_s": "E2E"}
_FALLBACK: Statistic = "p50"
_Row = tuple[TrialEvidence, TargetStatus]


def ttft(data: ChartInput) -> Chart:
    return _chart(data, "ttft_s")


def itl(data: ChartInput) -> Chart:
    return _chart(data, "itl_s")


def e2e(data: ChartInput) -> Chart:
    return _chart(data, "e2e_s")


def _chart(data: ChartInput, metric: LatencyMetric) -> Chart:
    word = units.METRIC_NAMES[metric]
    chart_id = f"{metric.removesuffix('_s')}-trials"
    trials = [t for t in data.evidence.trials if (m := trial_metrics(t)) and m.sent]
    if not trials:
        return empty(chart_id, word, f"{word} by trial", nothing_yet(data, word))
    target = data.target(metric)
    statistic, rows = _statistic(target, metric, trials)
    name = f"{word} {statistic}"
    if all(status.value is None for _, status in rows):
        reason = f"{name} is not shown: {rows[0][1].reason}."
        return empty(chart_id, word, f"{name} by trial", reason)
    judged = target if target and target.statistic == statistic else None
    return Chart(
        id=chart_id,
        short=f"{SHORT[metric]} {statistic}",
        title=_title(data, name, rows, judged),
        note=_note(metric, target, statistic),
        label=f"Dot chart of {name} by trial with 95 % intervals"
        + (f" and the SLA limit {limit_text(judged)}" if judged else ""),
        figure=_figure(data, name, rows, judged),
        columns=(Column("Trial", False), Column(name), Column("95 % interval"), Column("n")),
        rows=tuple(_row(trial, status) for trial, status in rows),
    )


def _statistic(
    target: SlaTarget | None, metric: LatencyMetric, trials: list[TrialEvidence]
) -> tuple[Statistic, list[_Row]]:
    """The target's statistic where any trial can show it, the median otherwise."""
    if target is not None:
        rows = [(t, latency_at(t, metric, target.statistic, target.limit)) for t in trials]
        if any(status.value is not None for _, status in rows):
            return target.statistic, rows
    return _FALLBACK, [(t, latency_at(t, metric, _FALLBACK)) for t in trials]


def _title(data: ChartInput, name: str, rows: list[_Row], target: SlaTarget | None) -> str:
    tail = f"; the limit is {limit_text(target)}" if target else ""
    values = {t.trial_id: s.value for t, s in rows if s.value is not None}
    current = values.get(data.current.trial_id) if data.current else None
    best = values.get(data.best.trial_id) if data.best else None
    if current is not None and best is not None and data.best and len(data.pair) == 2:
        verb = "falls" if best < current else "rises"
        span = f"from {units.seconds(current)} to {units.seconds(best)}"
        return f"{name} {verb} {span} in trial {data.best.ordinal}{tail}"
    for trial in (data.best, data.current, *data.evidence.trials):
        if trial is not None and trial.trial_id in values:
            return f"{name} is {units.seconds(values[trial.trial_id])} in {data.place(trial)}{tail}"
    return name


def _note(metric: str, target: SlaTarget | None, statistic: str) -> str:
    parts = [f"{units.METRIC_NAMES[metric]} = {units.METRIC_DEFINITIONS[metric]}."]
    parts.append(f"Bars are {figure.INTERVALS}.")
    if target and target.statistic != statistic:
        parts.append(f"{target.statistic} needs more requests, so the median is shown.")
    return " ".join(parts)


def _figure(
    data: ChartInput, name: str, rows: list[_Row], target: SlaTarget | None
) -> figure.Figure:
    drawn = [(t, s, s.value) for t, s in rows if s.value is not None]
    limit_s = target.limit if target else 0.0
    largest = max([limit_s, *(s.high if s.high is not None else v for _, s, v in drawn)])
    factor, unit = figure.time_scale(largest)
    traces = []
    for height, (trial, status, value) in enumerate(reversed(drawn)):
        low = status.low if status.low is not None else value
        high = status.high if status.high is not None else value
        traces.append(
            figure.points(
                [value * factor],
                [height],
                name=data.name(trial),
                colour=_colour(data, trial),
                symbol="square" if data.is_current(trial) else "circle",
                hover=[f"{data.name(trial)}: {units.seconds(value)}"],
                x_range=([low * factor], [high * factor]),
            )
        )
    top = largest * factor * 1.12
    layout = {
        "xaxis": figure.axis(f"{name} ({unit})", range=[0, top]),
        "yaxis": {
            "range": [-0.6, len(drawn) - 0.4],
            "tickvals": list(range(len(drawn))),
            "ticktext": [_tick(data, trial) for trial, _, _ in reversed(drawn)],
        },
        "shapes": [figure.limit_x(limit_s * factor)] if target else [],
        "annotations": [figure.limit_label(limit_text(target), limit_s * factor, top)]
        if target
        else [],
        "margin": {"l": 116, "r": 16, "t": 28, "b": 44},
    }
    return {"data": traces, "layout": layout}


def _colour(data: ChartInput, trial: TrialEvidence) -> str:
    if data.is_current(trial):
        return figure.CURRENT
    return figure.BEST if data.is_best(trial) else figure.SERIES[1]


def _tick(data: ChartInput, trial: TrialEvidence) -> str:
    if trial.spec.engine == "imported":
        return f"{trial.ordinal} imported"
    if data.is_current(trial):
        return f"{trial.ordinal} current"
    if trial.role == "verification":
        return f"{trial.ordinal} A/B"
    return f"{trial.ordinal} best" if data.is_best(trial) else f"Trial {trial.ordinal}"


def _row(trial: TrialEvidence, status: TargetStatus) -> tuple[str, ...]:
    title = f"{trial.ordinal} · {trial.title}"
    if status.value is None:
        return title, units.DASH, status.reason, f"{status.n:,}"
    low, high = status.low, status.high
    interval = f"{units.seconds(low)} to {units.seconds(high)}" if low is not None else units.DASH
    return title, units.seconds(status.value), interval, f"{status.n:,}"
