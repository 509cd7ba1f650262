"""Latency, goodput and throughput over the rates that a search for the highest rate measured.

One line a trial, from the points of its own boundary; nothing is interpolated but the boundary
itself, which the search fitted. Points say where the queue grew, where the run was cut off and
where the client was the limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from advisor import units
from advisor.charts import figure
from advisor.charts.base import Chart, ChartInput, Column, empty, nothing_yet
from advisor.charts.rate_curve import Curve, Mark, curves, rate_text
from advisor.evidence import TrialEvidence
from advisor.knobs import change_text
from advisor.targets import limit_text
from gpuagent.wire.serving import PointTarget, RateBoundary, RatePoint
from gpuagent.wire.sla import LatencyMetric
from gpuagent.wire.trial import ServeResult

MOST = 4
_WHAT = "a rate of the search for the highest one"
_METRICS: tuple[LatencyMetric, ...] = ("ttft_s", "itl_s", "e2e_s")


@dataclass(frozen=True, slots=True)
class Line:
    """A trial with its boundary, as the chart names and draws it.

    differs: settings that differ from those of the first line, "" for the first.
    """

    trial: TrialEvidence
    found: RateBoundary
    name: str
    colour: str
    dashed: bool
    differs: str = ""


def boundary_of(trial: TrialEvidence) -> RateBoundary | None:
    """None where none was asked for, none was found, or no rate was measured."""
    result = trial.measured(ServeResult)
    found = result.boundary if result is not None else None
    return found if found is not None and found.points else None


def lines_of(named: Sequence[tuple[TrialEvidence, str, str, bool]]) -> tuple[Line, ...]:
    """(trial, name, colour, dashed) of each; those without a boundary are left out."""
    first = named[0][0].settings if named else None
    return tuple(
        Line(
            trial,
            found,
            name,
            colour,
            dashed,
            change_text(first, trial.settings) if first is not None else "",
        )
        for trial, name, colour, dashed in named
        if (found := boundary_of(trial)) is not None
    )


def with_doubt(title: str, best: RateBoundary, others: Iterable[RateBoundary]) -> str:
    """`title`, and where the brackets do not prove that `best` is higher, the word on that."""
    low = best.low if best.low is not None else best.rate_per_s
    ends = [b.high if b.high is not None else b.rate_per_s for b in others if b is not best]
    unproven = low is not None and any(high is not None and high >= low for high in ends)
    return f"{title}; the brackets overlap" if unproven else title


def study_lines(data: ChartInput) -> tuple[Line, ...]:
    """Current and best, then the trials with the highest rates, four in all."""
    usable = [t for t in data.evidence.trials if t.usable and boundary_of(t) is not None]
    others = sorted(usable, key=lambda t: -(_highest(t) or 0.0))
    pair = [t for t in data.pair if t in usable]
    chosen = [*pair, *(t for t in others if t not in pair)][:MOST]
    named = []
    spare = list(figure.SERIES[1:])
    for trial in chosen:
        current = data.is_current(trial)
        colour = figure.CURRENT if current else figure.BEST if data.is_best(trial) else spare.pop(0)
        named.append((trial, data.name(trial), colour, current))
    return lines_of(named)


def _highest(trial: TrialEvidence) -> float | None:
    found = boundary_of(trial)
    return found.rate_per_s if found is not None else None


def trial_charts(trial: TrialEvidence) -> tuple[Chart, ...]:
    """Every chart of one trial's boundary; () where it has none."""
    return all_charts(lines_of([(trial, f"Trial {trial.ordinal}", figure.BEST, False)]))


def all_charts(lines: Sequence[Line]) -> tuple[Chart, ...]:
    if not lines:
        return ()
    drawn = (*(latency(lines, metric) for metric in _METRICS), goodput(lines), throughput(lines))
    return tuple(chart for chart in drawn if chart is not None)


def latency(lines: Sequence[Line], metric: LatencyMetric) -> Chart | None:
    """The first target on `metric` at every rate; None where no line has it."""
    target = next(
        (p.target for one in lines for p in _first(one) if p.target.metric == metric), None
    )
    if target is None:
        return None

    def value(point: RatePoint) -> _Value | None:
        found = next((t for t in point.targets if t.target.key == target.key), None)
        if found is None:
            return None
        if found.value is None or not math.isfinite(found.value):
            return _ranked(found)
        return _Value(found.value, _finite(found.low), _finite(found.high), found.n)

    known = [v for one in lines for p in one.found.points if (v := value(p)) is not None]
    if not known:
        return None
    factor, unit = figure.time_scale(max(target.limit, *(v.y for v in known)))
    name = f"{units.METRIC_NAMES[metric]} {target.statistic}"
    return _chart(
        f"{metric.removesuffix('_s')}-by-rate",
        name,
        lines,
        value,
        f"{name} ({unit})",
        units.seconds,
        factor=factor,
        limit=target.limit,
        limit_words=limit_text(target),
        note=f"Bands are {figure.INTERVALS}; a point without one had too few requests for it.",
    )


def goodput(lines: Sequence[Line]) -> Chart | None:
    """Share of the requests that kept every target."""

    def value(point: RatePoint) -> _Value | None:
        if point.goodput_frac is None:
            return None
        return _Value(point.goodput_frac, None, None, point.requests)

    return _chart(
        "goodput-by-rate",
        "Goodput",
        lines,
        value,
        "Requests within every limit (%)",
        units.percent,
        factor=100.0,
        top=105.0,
        note="Share of each rate's requests; without intervals, since requests of one run depend "
        "on each other.",
    )


def throughput(lines: Sequence[Line]) -> Chart | None:
    def value(point: RatePoint) -> _Value | None:
        found = point.output_tok_s.value
        return None if found is None else _Value(found, None, None, point.requests)

    return _chart(
        "throughput-by-rate",
        "Throughput",
        lines,
        value,
        "Output (tok/s)",
        units.rate,
        note="Output tokens a second at each rate, one run each.",
    )


@dataclass(frozen=True, slots=True)
class _Value:
    """y in SI; n requests or gaps stand behind it."""

    y: float
    low: float | None
    high: float | None
    n: int


def _ranked(found: PointTarget) -> _Value | None:
    if found.rank_value is None:
        return None
    return _Value(found.rank_value, None, None, found.n)


def _first(line: Line) -> tuple[PointTarget, ...]:
    return line.found.points[0].targets


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _chart(
    chart_id: str,
    short: str,
    lines: Sequence[Line],
    value: Callable[[RatePoint], _Value | None],
    y_title: str,
    text: Callable[[float | None], str],
    *,
    note: str,
    factor: float = 1.0,
    limit: float | None = None,
    limit_words: str = "",
    top: float | None = None,
) -> Chart | None:
    drawn = [_curve(line, value, factor) for line in lines]
    drawn = [curve for curve in drawn if curve.marks]
    if not drawn:
        return None
    several = len(lines) > 1
    rates = sum(len(line.found.points) for line in lines)
    return Chart(
        id=chart_id,
        short=short,
        title=_title(lines, short),
        note=f"{_how(lines)} {note}",
        label=f"{short} over {rates} request rates of {len(lines)} trial{'s' if several else ''}",
        figure=curves(
            drawn,
            y_title,
            limit=limit * factor if limit is not None else None,
            limit_words=limit_words,
            top=top,
            may_log=limit is not None,
        ),
        columns=(
            Column("Trial", False),
            Column("Rate (req/s)"),
            Column(short),
            Column("95 % interval"),
            Column("n"),
            Column("At this rate", False),
        ),
        rows=tuple(
            _row(line, point, value(point), text) for line in lines for point in line.found.points
        ),
    )


def _curve(line: Line, value: Callable[[RatePoint], _Value | None], factor: float) -> Curve:
    marks = []
    for point in line.found.points:
        found = value(point)
        if found is None:
            continue
        marks.append(
            Mark(
                point.rate_per_s,
                found.y * factor,
                found.low * factor if found.low is not None else None,
                found.high * factor if found.high is not None else None,
                _special(point),
                point.client_bound is None,
            )
        )
    found_rate = line.found
    highest = None
    if found_rate.rate_per_s is not None:
        rate = found_rate.rate_per_s
        low = found_rate.low if found_rate.low is not None else rate
        high = found_rate.high if found_rate.high is not None else rate
        highest = (rate, low, high)
    return Curve(line.name, line.colour, line.dashed, tuple(marks), highest)


def _special(point: RatePoint) -> str:
    if point.client_bound is not None:
        return "client was the limit"
    if point.stopped_early:
        return "stopped early"
    return "queue grew" if point.saturated else ""


def _row(
    line: Line, point: RatePoint, found: _Value | None, text: Callable[[float | None], str]
) -> tuple[str, ...]:
    interval = units.DASH
    if found is not None and found.low is not None and found.high is not None:
        interval = f"{text(found.low)} to {text(found.high)}"
    state = "keeps the targets" if point.meets else "misses the targets"
    if point.client_bound is not None:
        state = f"says nothing: {point.client_bound}"
    elif _special(point):
        state += f", {_special(point)}"
    return (
        f"{line.trial.ordinal} · {line.differs or line.trial.title}",
        units.number(point.rate_per_s),
        text(found.y) if found is not None else units.DASH,
        interval,
        f"{found.n if found is not None else point.requests:,}",
        state,
    )


# --- words -------------------------------------------------------------------------------------


def _title(lines: Sequence[Line], short: str) -> str:
    """The takeaway: the highest rate of the line in focus, beside the first one's."""
    best = max(lines, key=lambda line: line.found.rate_per_s or 0.0)
    first = lines[0]
    text = f"{short}: {_outcome(best, named=len(lines) > 1)}"
    rate, before = best.found.rate_per_s, first.found.rate_per_s
    if best is not first and rate is not None and before is not None:
        name = "the current settings" if first.dashed else first.name.lower()
        text += f" instead of {rate_text(before)} with {name}"
        text = with_doubt(text, best.found, (first.found,))
    return text


def _outcome(line: Line, *, named: bool) -> str:
    found = line.found
    who = f"{line.name[:1].lower()}{line.name[1:]} keeps" if named else "this trial keeps"
    if found.rate_per_s is not None:
        return f"{who} all targets up to {rate_text(found.rate_per_s)}"
    points = [p for p in found.points if p.client_bound is None]
    if not points:
        return f"the client was the limit at all {len(found.points)} rates"
    if points[0].meets:
        met = max(p.rate_per_s for p in points if p.meets)
        return f"{who} all targets at {rate_text(met)}, and no higher rate was found to miss them"
    return f"the targets are missed already at {rate_text(points[0].rate_per_s)}"


def _how(lines: Sequence[Line]) -> str:
    spans = sorted({line.found.point_s for line in lines})
    each = " or ".join(units.seconds(s, 2) for s in spans)
    text = f"Open-loop arrivals, {each} at each rate."
    if any(line.trial.spec.engine == "simulated" for line in lines):
        text = f"Simulated: open-loop arrivals, up to {each} of simulated time at each rate."
    if any(line.found.rate_per_s is not None for line in lines):
        text += (
            " Dotted: where the fitted curve crosses a limit; the bar below spans the highest rate "
            "that kept all targets to the lowest that did not."
        )
    if any(_special(p) for line in lines for p in line.found.points):
        text += " Ringed points are named."
    differing = [f"{line.name}: {line.differs}" for line in lines[1:] if line.differs]
    if differing:
        text += f" {'; '.join(differing)}."
    return text


# --- of a study --------------------------------------------------------------------------------


def _of_study(
    data: ChartInput, chart_id: str, short: str, build: Callable[[Sequence[Line]], Chart | None]
) -> Chart:
    lines = study_lines(data)
    if not lines:
        return empty(chart_id, short, f"{short} by rate", nothing_yet(data, _WHAT))
    few = f"None of the measured rates had enough requests to show {short}, or no target is on it."
    return build(lines) or empty(chart_id, short, f"{short} by rate", few)


def ttft(data: ChartInput) -> Chart:
    return _of_study(data, "ttft-by-rate", "TTFT", lambda lines: latency(lines, "ttft_s"))


def itl(data: ChartInput) -> Chart:
    return _of_study(data, "itl-by-rate", "ITL", lambda lines: latency(lines, "itl_s"))


def e2e(data: ChartInput) -> Chart:
    return _of_study(data, "e2e-by-rate", "E2E", lambda lines: latency(lines, "e2e_s"))


def good(data: ChartInput) -> Chart:
    return _of_study(data, "goodput-by-rate", "Goodput", goodput)


def output(data: ChartInput) -> Chart:
    return _of_study(data, "throughput-by-rate", "Throughput", throughput)
