"""The Compare page: values of a comparison in words, and the charts of its trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from advisor import units
from advisor.charts import Chart, boundary, rates
from advisor.charts.coordinates import Highlight, coordinates
from advisor.charts.figure import CURRENT, SERIES
from advisor.charts.latency_spread import Series, distribution
from advisor.charts.samples import latency_samples
from advisor.comparison import (
    MOST,
    Delta,
    DifferingLine,
    Pair,
    Side,
    TrialComparison,
    compare_trials,
    sentence,
)
from advisor.knobs import knob_name, knob_text
from advisor.targets import limit_text, target_name, target_statuses
from advisor.verification import signed_percent
from gpuagent.wire import SlaTarget
from gpuagent.wire.sla import LatencyMetric

_VERDICTS = {
    "better": ("good", "Better"),
    "worse": ("bad", "Worse"),
    "no_proven_difference": ("na", "No proven difference"),
    "no_claim": ("na", "No claim"),
}
_SPREADS: tuple[LatencyMetric, ...] = ("ttft_s", "itl_s")


@dataclass(frozen=True, slots=True)
class Chosen:
    """One of the compared trials. rest: the address without it."""

    trial_id: str
    name: str
    title: str
    study_id: str
    study: str
    key: str
    """Class of its colour in charts."""
    rest: str


@dataclass(frozen=True, slots=True)
class Line:
    """One differing setting or fact; cells: (text, differs from the first trial)."""

    name: str
    cells: tuple[tuple[str, bool], ...]


@dataclass(frozen=True, slots=True)
class TargetLine:
    """A target with its value in each trial: (text, interval, over the limit)."""

    name: str
    limit: str
    cells: tuple[tuple[str, str, bool], ...]


@dataclass(frozen=True, slots=True)
class Strip:
    """Positions in a box of 100: noise band, zero, interval and point of one change."""

    noise_x: float
    noise_width: float
    zero: float
    ci_x: float | None
    ci_width: float
    point: float
    far: bool


@dataclass(frozen=True, slots=True)
class DeltaLine:
    name: str
    before: str
    after: str
    change: str
    interval: str
    n: str
    floor: str
    kind: str
    word: str
    reason: str
    strip: Strip | None


@dataclass(frozen=True, slots=True)
class PairTable:
    """before, after: names of the two trials. how: how the pairs were made."""

    before: str
    after: str
    sentence: str
    how: str
    caveat: str
    evidence_trial_id: str
    scale: str
    lines: tuple[DeltaLine, ...]
    has_floor: bool


@dataclass(frozen=True, slots=True)
class ComparePage:
    title: str
    chosen: tuple[Chosen, ...]
    settings: tuple[Line, ...]
    settings_alike: int
    environment: tuple[Line, ...]
    environment_alike: int
    targets: tuple[TargetLine, ...]
    pairs: tuple[PairTable, ...]
    charts: tuple[tuple[Chart, ...], ...]
    wide: tuple[Chart, ...]
    """Charts over the whole width."""
    simulated: bool
    """Whether any of the numbers comes from the simulator."""
    imported: bool
    """Whether any of the numbers comes from another tool's file."""


def compare_page(sides: tuple[Side, ...]) -> ComparePage:
    """For two to four sides; see `compare_trials`."""
    found = compare_trials(sides)
    names = side_names(sides)
    pairs = tuple(_pair(pair, names) for pair in found.pairs)
    # An interleaved pair says most, then any pair with a proven change.
    ranked = sorted(
        zip(found.pairs, pairs, strict=True),
        key=lambda both: (
            bool(both[0].caveat),
            both[0].method != "interleaved",
            not any(d.verdict in ("better", "worse") for d in both[0].deltas),
        ),
    )
    return ComparePage(
        title=ranked[0][1].sentence,
        chosen=chosen_of(sides),
        settings=tuple(_setting(line) for line in found.settings),
        settings_alike=found.settings_alike,
        environment=tuple(_fact(line) for line in found.environment),
        environment_alike=found.environment_alike,
        targets=_targets(sides),
        pairs=pairs,
        charts=_charts(sides, names),
        wide=_wide(found, names),
        simulated=any(side.trial.spec.engine == "simulated" for side in sides),
        imported=any(side.trial.spec.engine == "imported" for side in sides),
    )


def side_names(sides: Sequence[Side]) -> dict[str, str]:
    """Trial id -> "Trial 3", with its study where they are of several."""
    several = len({side.evidence.study_id for side in sides}) > 1
    return {
        side.trial.trial_id: f"Trial {side.trial.ordinal} of study {side.evidence.number}"
        if several
        else f"Trial {side.trial.ordinal}"
        for side in sides
    }


def chosen_of(sides: Sequence[Side]) -> tuple[Chosen, ...]:
    names = side_names(sides)
    ids = [side.trial.trial_id for side in sides]
    return tuple(
        Chosen(
            trial_id=trial_id,
            name=names[trial_id],
            title=side.trial.title,
            study_id=side.evidence.study_id,
            study=side.evidence.name,
            key="kb" if n == 0 else f"k{n}",
            rest="?trials=" + ",".join(other for other in ids if other != trial_id),
        )
        for n, (side, trial_id) in enumerate(zip(sides, ids, strict=True))
    )


def others(sides: Sequence[Side]) -> list[tuple[str, str]]:
    """(id, name) of trials of the same studies that could be added; none beyond the limit."""
    if len(sides) >= MOST:
        return []
    taken = {side.trial.trial_id for side in sides}
    studies = {side.evidence.study_id: side.evidence for side in sides}
    several = len(studies) > 1
    return [
        (
            trial.trial_id,
            f"{f'Study {evidence.number}, ' if several else ''}{trial.ordinal} · {trial.title}",
        )
        for evidence in studies.values()
        for trial in evidence.trials
        if trial.trial_id not in taken and trial.result is not None
    ]


def _setting(line: DifferingLine) -> Line:
    cells = tuple((knob_text(v), v != line.values[0]) for v in line.values)
    return Line(knob_name(line.name), cells)


def _fact(line: DifferingLine) -> Line:
    cells = tuple((units.DASH if v is None else str(v), v != line.values[0]) for v in line.values)
    return Line(line.name, cells)


def _targets(sides: Sequence[Side]) -> tuple[TargetLine, ...]:
    """The targets of the first trial's study, judged for every trial with that study's limits."""
    spec = sides[0].evidence.spec
    columns = [target_statuses(side.trial, spec) for side in sides]
    lines = []
    for n, target in enumerate(spec.targets):
        cells = []
        for column in columns:
            status = column[n]
            interval = ""
            if status.low is not None and status.high is not None:
                low, high = (units.metric(target.metric, v) for v in (status.low, status.high))
                interval = f"{low} to {high}"
            value = units.metric(target.metric, status.value)
            cells.append((value, interval, status.verdict == "missed"))
        sign = "≥" if target.higher_is_better else "≤"
        lines.append(TargetLine(target_name(target), f"{sign} {limit_text(target)}", tuple(cells)))
    return tuple(lines)


# --- pairs --------------------------------------------------------------------------------------


def _pair(pair: Pair, names: dict[str, str]) -> PairTable:
    before, after = (names[side.trial.trial_id] for side in (pair.before, pair.after))
    ends = [
        abs(v)
        for d in pair.deltas
        for v in (d.change_frac, d.low_frac, d.high_frac, d.noise_frac)
        if v is not None
    ]
    reach = min(max([0.1, *ends]) * 1.05, 2.0)
    return PairTable(
        before=before,
        after=after,
        sentence=sentence(pair, before.lower(), after.lower()),
        how=pair.how,
        caveat=pair.caveat,
        evidence_trial_id=pair.evidence_trial_id or "",
        scale=f"−{units.percent(reach)} to +{units.percent(reach)}",
        lines=tuple(_delta(delta, reach) for delta in pair.deltas),
        has_floor=any(d.noise_floor_frac is not None for d in pair.deltas),
    )


def _delta(delta: Delta, reach: float) -> DeltaLine:
    kind, word = _VERDICTS[delta.verdict]
    mean = "" if delta.metric in ("memory_bytes", "joules_per_token", "output_tok_s") else " mean"
    interval = ""
    if delta.low_frac is not None and delta.high_frac is not None:
        interval = f"{signed_percent(delta.low_frac)} to {signed_percent(delta.high_frac)}"
    each = delta.n[0] if delta.n[0] == delta.n[1] else f"{delta.n[0]:,} and {delta.n[1]:,}"
    return DeltaLine(
        name=f"{units.METRIC_NAMES[delta.metric]}{mean}",
        before=units.metric(delta.metric, delta.before),
        after=units.metric(delta.metric, delta.after),
        change=units.DASH if delta.change_frac is None else signed_percent(delta.change_frac),
        interval=interval,
        n=f"{each} {delta.unit_of_n}{'' if delta.n == (1, 1) else 's'}"
        if delta.verdict != "no_claim"
        else "",
        floor=units.DASH
        if delta.noise_floor_frac is None
        else f"± {units.percent(delta.noise_floor_frac)}",
        kind=kind,
        word=word,
        reason=delta.reason,
        strip=_strip(delta, reach),
    )


def _strip(delta: Delta, reach: float) -> Strip | None:
    if delta.change_frac is None:
        return None

    def at(value: float) -> float:
        return round(50 + max(-1.0, min(1.0, value / reach)) * 50, 2)

    noise = delta.noise_frac or 0.0
    ci_x, ci_width = None, 0.0
    if delta.low_frac is not None and delta.high_frac is not None:
        ci_x = at(delta.low_frac)
        ci_width = round(max(0.6, at(delta.high_frac) - ci_x), 2)
    return Strip(
        noise_x=at(-noise),
        noise_width=round(at(noise) - at(-noise), 2),
        zero=at(0.0),
        ci_x=ci_x,
        ci_width=ci_width,
        point=at(delta.change_frac),
        far=delta.verdict in ("better", "worse"),
    )


# --- charts -------------------------------------------------------------------------------------


def _colour(index: int) -> str:
    return CURRENT if index == 0 else SERIES[index - 1]


def _charts(sides: Sequence[Side], names: dict[str, str]) -> tuple[tuple[Chart, ...], ...]:
    spec = sides[0].evidence.spec
    drawn = []
    for metric in _SPREADS:
        series = []
        for n, side in enumerate(sides):
            samples = latency_samples(side.trial, metric)
            if samples is not None:
                name = names[side.trial.trial_id]
                series.append(Series(name, name.lower(), _colour(n), n == 0, side.trial, samples))
        target = _target(spec.targets, metric)
        if len(series) > 1:
            drawn.append((distribution(metric, series, target),))
    trials = [side.trial for side in sides]
    named = [(t, names[t.trial_id], _colour(n), n == 0) for n, t in enumerate(trials)]
    by_rate = boundary.all_charts(boundary.lines_of(named))
    if by_rate:
        drawn.insert(0, by_rate)
    for chart in (
        *(rates.latency(trials, m, _target(spec.targets, m)) for m in _SPREADS),
        rates.goodput(trials, spec.targets),
    ):
        if chart is not None:
            drawn.append((chart,))
    return tuple(drawn)


def _target(targets: Sequence[SlaTarget], metric: str) -> SlaTarget | None:
    return next((t for t in targets if t.metric == metric), None)


def _wide(found: TrialComparison, names: dict[str, str]) -> tuple[Chart, ...]:
    """Parallel coordinates where all are trials of one study."""
    studies = {side.evidence.study_id for side in found.sides}
    if len(studies) > 1:
        return ()
    marked = [
        Highlight(side.trial.trial_id, names[side.trial.trial_id], _colour(n), n == 0)
        for n, side in enumerate(found.sides)
    ]
    chart = coordinates(found.sides[0].evidence, marked)
    return () if chart.is_empty else (chart,)
