"""The highest rate, or concurrency, that meets every target, in few measured points. Pure: it is
told the points. Over concurrency, `rate_per_s` and its like stand for requests in flight.

First a bracket: four times the rate until a target is missed. A server that cannot keep up shows
its capacity by the rate at which it completes, so one overloaded point replaces most of a
bisection: the next two lie just below and just above that capacity. Then a monotone curve (pool
adjacent violators) through the margins, log(value / limit) of the worst target, and the next point
where it crosses 0, until the bracket is at most 5 % wide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from gpuagent.load.report import CONFIDENCE, TargetResult, goodput, judge_target
from gpuagent.request_metrics import RequestMetrics, latency_samples, request_metrics, with_failed
from gpuagent.stats import steady
from gpuagent.stats.quantiles import nearest_rank
from gpuagent.wire.measure import RequestRecord
from gpuagent.wire.sla import SlaTarget

Over = Literal["rate", "concurrency"]
UNITS: dict[Over, str] = {"rate": "a second", "concurrency": "in flight"}
BRACKET_RATIO = 1.05
MOST_POINTS = 8
_GROWTH = 4.0
# Tried first, 4.6 % apart.
_AROUND_CAPACITY = (0.975, 1.02)
# The next point keeps this share of the bracket away from both ends, or the bracket hardly shrinks.
_EDGE_FRAC = 0.3
# Margins beyond a factor of ten say no more than "far over"; a rate that cannot be sustained misses
# its targets in a longer run even where this one was over in time.
_FAR = math.log(10.0)
_UNSUSTAINED = math.log(1.05)
_SATURATED_DRIFT_FRAC = 0.5
_SATURATED_BACKLOG_FRAC = 0.05


@dataclass(frozen=True, slots=True)
class Point:
    """One measured rate. margin: log(value / limit) of the worst target; at most 0 meets them all.

    saturated: the queue grew through the window. capacity_per_s: completions a second meanwhile,
    None where it kept up. client_bound: why the point says nothing about the server, or None.
    ranks_s: each target's percentile by nearest rank, None where it fell on a failed request.
    """

    rate_per_s: float
    requests: int
    margin: float
    saturated: bool
    capacity_per_s: float | None
    targets: tuple[TargetResult, ...]
    goodput_frac: float | None
    stopped_early: bool = False
    client_bound: str | None = None
    ranks_s: tuple[float | None, ...] = ()

    @property
    def meets(self) -> bool:
        return self.margin <= 0

    @property
    def proven(self) -> bool:
        return self.meets and all(target.verdict == "met" for target in self.targets)


@dataclass(frozen=True, slots=True)
class Boundary:
    """rate_per_s: where the fitted curve crosses the limit; None where no bracket was found.

    low, high: highest rate that meets the targets and lowest that does not, on the fitted curve.
    proven_per_s: highest rate at which every target is proven with `confidence`, None where none
    is. needed_requests: in one run at `low`, for that proof. reason: how the search ended.
    """

    rate_per_s: float | None
    low: float | None
    high: float | None
    proven_per_s: float | None
    needed_requests: int | None
    confidence: float
    reason: str
    points: tuple[Point, ...] = field(repr=False)
    over: Over = "rate"


def make_point(
    rate_per_s: float,
    records: Sequence[RequestRecord],
    targets: Sequence[SlaTarget],
    *,
    stopped_early: bool = False,
    client_bound: str | None = None,
    over: Over = "rate",
) -> Point:
    """The point that these records make. stopped_early: it was cut off as a certain miss."""
    metrics = request_metrics(records)
    # A closed loop cannot outrun the server.
    growing = over == "rate" and (_queue_grows(records) or stopped_early)
    ranks = [_by_rank(metrics, target) for target in targets]
    margins = [_margin(rank, target) for rank, target in zip(ranks, targets, strict=True)]
    if growing:
        margins.append(_FAR if stopped_early else _UNSUSTAINED)
    return Point(
        rate_per_s=rate_per_s,
        requests=metrics.sent,
        margin=max(margins),
        saturated=growing,
        capacity_per_s=_completions_per_s(records) if growing else None,
        targets=tuple(judge_target(metrics, target) for target in targets),
        goodput_frac=goodput(records, targets),
        stopped_early=stopped_early,
        client_bound=client_bound,
        ranks_s=tuple(r if r is not None and math.isfinite(r) else None for r in ranks),
    )


def find_boundary(
    measure: Callable[[float, int], Point],
    *,
    start_per_s: float = 1.0,
    most_points: int = MOST_POINTS,
    should_stop: Callable[[], bool] = lambda: False,
    over: Over = "rate",
) -> Boundary:
    """Search with `measure(rate, index)`; over concurrency with whole numbers only.

    Ends at a bracket of 5 %, after `most_points`, when the client was the bottleneck twice in a
    row, or when `should_stop` says so.
    """
    points: list[Point] = []
    rate: float | None = start_per_s
    while rate is not None and len(points) < most_points:
        point = measure(rate, len(points))
        if should_stop() and not point.stopped_early:
            break
        points.append(point)
        if point.client_bound is not None:
            # Another process may have disturbed it, so it gets a second run; not a third.
            if len(points) > 1 and points[-2].client_bound is not None:
                break
            continue
        rate = next_rate(points) if over == "rate" else next_concurrency(points)
    return _conclude(points, done=rate is None, over=over)


def next_rate(points: Sequence[Point]) -> float | None:
    """Where to measure next; None when the bracket is narrow enough."""
    low, high, crossing = _bracket(points)
    if low is None:
        usable = [p for p in points if p.client_bound is None]
        lowest = min(usable, key=lambda p: p.rate_per_s)
        capacity = lowest.capacity_per_s
        quarter = lowest.rate_per_s / _GROWTH
        return quarter if capacity is None else min(0.8 * lowest.rate_per_s, 0.9 * capacity)
    if high is None or crossing is None:
        return low * _GROWTH
    if high / low <= BRACKET_RATIO:
        return None
    capacities = [p.capacity_per_s for p in points if p.capacity_per_s]
    if capacities:
        for share in _AROUND_CAPACITY:
            near = share * min(capacities)
            if low * 1.01 < near < high / 1.01:
                return near
    width = math.log(high / low)
    nearest, farthest = math.log(low) + _EDGE_FRAC * width, math.log(high) - _EDGE_FRAC * width
    return math.exp(min(farthest, max(nearest, math.log(crossing))))


def next_concurrency(points: Sequence[Point]) -> float | None:
    """The same in whole numbers; None also where nothing lies between, or one is too many."""
    low, high, _ = _bracket(points)
    wanted = next_rate(points)
    if wanted is None:
        return None
    level = max(1, round(wanted))
    if low is not None:
        level = max(level, round(low) + 1)
    if high is not None:
        level = min(level, round(high) - 1)
    return float(level) if level > (low or 0) else None


def _bracket(points: Sequence[Point]) -> tuple[float | None, float | None, float | None]:
    """(highest rate that meets, lowest that does not, crossing) on the monotone curve."""
    usable = sorted((p for p in points if p.client_bound is None), key=lambda p: p.rate_per_s)
    fitted = pool_adjacent_violators([min(_FAR, max(-_FAR, p.margin)) for p in usable])
    low = high = None
    for index, (point, margin) in enumerate(zip(usable, fitted, strict=True)):
        if margin <= 0:
            low = point.rate_per_s
            continue
        high = point.rate_per_s
        if low is None:
            return None, high, None
        before = fitted[index - 1]
        share = -before / (margin - before)
        return low, high, math.exp(math.log(low) + share * math.log(high / low))
    return low, high, None


def pool_adjacent_violators(values: Sequence[float]) -> list[float]:
    """The non-decreasing sequence nearest to `values` in least squares."""
    blocks: list[tuple[float, int]] = []
    for value in values:
        mean, size = value, 1
        while blocks and blocks[-1][0] > mean:
            before, count = blocks.pop()
            mean, size = (before * count + mean * size) / (count + size), count + size
        blocks.append((mean, size))
    return [mean for mean, size in blocks for _ in range(size)]


def _conclude(points: Sequence[Point], *, done: bool, over: Over) -> Boundary:
    unit = UNITS[over]
    low, high, crossing = _bracket(points)
    usable = [p for p in points if p.client_bound is None]
    best = max((p for p in usable if p.meets), key=lambda p: p.rate_per_s, default=None)
    proven = [p.rate_per_s for p in usable if p.proven]
    needed = [t.needed_requests for t in best.targets if t.needed_requests] if best else []
    bound = points[-1] if points else None
    if bound is not None and bound.client_bound is not None:
        reason = f"at {bound.rate_per_s:.4g} {unit}: {bound.client_bound}"
    elif not points:
        reason = "nothing was measured"
    elif low is None:
        reason = f"missed already at {high:.4g} {unit}"
    elif high is None:
        reason = f"met at every measured {over}, up to {low:.4g} {unit}"
    elif done and over == "concurrency" and high - low <= 1:
        reason = "nothing lies between"
    elif done:
        reason = f"bracketed within {high / low - 1:.1%}"
    else:
        reason = f"ended with a bracket of {high / low - 1:.1%}"
    return Boundary(
        rate_per_s=crossing,
        low=low,
        high=high,
        proven_per_s=max(proven, default=None),
        needed_requests=max(needed, default=None),
        confidence=CONFIDENCE,
        reason=reason,
        points=tuple(points),
        over=over,
    )


def _by_rank(metrics: RequestMetrics, target: SlaTarget) -> float | None:
    """The percentile by nearest rank, failed requests as infinite; None without any sample."""
    found, labels, per_request = latency_samples(target.metric, metrics)
    values = np.sort(with_failed(found, labels, metrics.failed, per_request)[0])
    if values.size == 0:
        return None
    return float(values[nearest_rank(values.size, target.percentile or 0.5)])


def _margin(value: float | None, target: SlaTarget) -> float:
    """log(value / limit), at most a factor of ten to either side."""
    if value is None or not math.isfinite(value):
        return _FAR
    return min(_FAR, math.log(value / target.limit)) if value > 0 else -_FAR


def _queue_grows(records: Sequence[RequestRecord]) -> bool:
    """Whether time to first token rose through the window by more than half its mean, and more
    than 5 % of what was sent in the window's second half stayed behind in it."""
    good = [r for r in records if r.error is None and r.token_s]
    if not good:
        return False
    found = steady(
        [r.token_s[0] - r.intended_s for r in good], times_s=[r.intended_s for r in good]
    )
    if found.verdict != "drifting" or found.drift_frac is None or found.drift_low is None:
        return False
    rising = found.drift_frac > _SATURATED_DRIFT_FRAC and found.drift_low > 0
    return rising and _backlog_frac(good) > _SATURATED_BACKLOG_FRAC


def _backlog_frac(good: Sequence[RequestRecord]) -> float:
    """Growth of the requests in flight over the window's second half, per request sent in it."""
    sends = [r.intended_s for r in good]
    middle, last = (min(sends) + max(sends)) / 2, max(sends)

    def in_flight(at_s: float) -> int:
        return sum(r.intended_s <= at_s < r.token_s[-1] for r in good)

    sent = sum(at_s > middle for at_s in sends)
    return (in_flight(last) - in_flight(middle)) / sent if sent else 0.0


def _completions_per_s(records: Sequence[RequestRecord]) -> float | None:
    """Slope of the completions over time: what a batch finishes at once makes steps, and the two
    ends of a staircase would say too much."""
    ends = sorted(_ends(records))
    if len(ends) < 2 or ends[-1] <= ends[0]:
        return None
    return float(np.polyfit(ends, np.arange(len(ends)), 1)[0])


def _ends(records: Sequence[RequestRecord]) -> Iterator[float]:
    for record in records:
        if record.error is None and record.token_s:
            yield record.token_s[-1]
