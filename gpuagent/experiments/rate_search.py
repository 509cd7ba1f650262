"""The search for the highest rate as every experiment on a server does it, whoever sends the load.

Known here: where it begins, which seeds its points get, and what of it travels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuagent.load.boundary import Boundary, Point, find_boundary, make_point
from gpuagent.request_metrics import request_metrics, throughput
from gpuagent.wire import Quantity, SlaTarget, TrialSpec
from gpuagent.wire.measure import RequestRecord
from gpuagent.wire.serving import PointTarget, RateBoundary, RatePoint, ServeConfig

_SEED_STEP = 7919
# A first rate below what the closed loop completed.
_START_FRAC = 0.7


@dataclass(frozen=True, slots=True)
class PlannedPoint:
    """One rate to be sent: `count` requests at `rate_per_s`, drawn with a seed of their own."""

    rate_per_s: float
    count: int
    seed: int
    targets: tuple[SlaTarget, ...]


@dataclass(frozen=True, slots=True)
class SentPoint:
    """What came of it. stopped_early, client_bound: see `gpuagent.load.boundary.Point`."""

    records: Sequence[RequestRecord]
    stopped_early: bool = False
    client_bound: str | None = None


def search_rate(
    spec: TrialSpec,
    config: ServeConfig,
    records: Sequence[RequestRecord],
    send: Callable[[PlannedPoint], SentPoint],
    *,
    out_of_time: Callable[[], bool],
    on_point: Callable[[int, str], None],
    most_requests: int | None = None,
) -> tuple[RateBoundary | None, str | None]:
    """(boundary, None), or (None, why there is none).

    records: of the workload's own requests. most_requests: what shortens the points at high rates.
    """
    targets = tuple(t for t in config.targets if t.percentile is not None)
    if not targets:
        return None, "none of the targets is a latency at a percentile"
    start = _start_rate(spec.workload.request_rate_per_s, records)
    if start is None:
        return None, "no request succeeded that a first rate could follow from"
    rates: list[Quantity] = []

    def measure(rate_per_s: float, index: int) -> Point:
        seed = (spec.seed + _SEED_STEP * (index + 1)) % 2**31
        count = max(4, round(rate_per_s * config.point_s))
        if most_requests is not None:
            count = min(count, most_requests)
        sent = send(PlannedPoint(rate_per_s, count, seed, targets))
        point = make_point(
            rate_per_s,
            sent.records,
            targets,
            stopped_early=sent.stopped_early,
            client_bound=sent.client_bound,
        )
        rates.append(_throughput(sent.records))
        verdict = "meets the targets" if point.meets else "does not meet the targets"
        on_point(index + 1, f"{rate_per_s:.3g} requests a second {verdict}")
        return point

    if out_of_time():
        return None, "no time was left for it within the trial's time limit"
    found = find_boundary(
        measure,
        start_per_s=start,
        most_points=config.boundary_points,
        should_stop=out_of_time,
    )
    if not found.points:
        return None, "no rate was measured within the trial's time limit"
    return _to_wire(found, config.point_s, targets, rates), None


def _start_rate(asked_per_s: float | None, records: Sequence[RequestRecord]) -> float | None:
    if asked_per_s is not None:
        return asked_per_s
    ends = [r.token_s[-1] for r in records if r.error is None and r.token_s]
    if not ends or max(ends) <= 0:
        return None
    return _START_FRAC * len(ends) / max(ends)


def _throughput(records: Sequence[RequestRecord]) -> Quantity:
    rate = throughput(request_metrics(records))
    if rate.value_tok_s is None:
        return Quantity(reason=rate.reason or "nothing was generated")
    return Quantity(value=rate.value_tok_s)


def _to_wire(
    found: Boundary, point_s: float, targets: Sequence[SlaTarget], rates: Sequence[Quantity]
) -> RateBoundary:
    points = [
        RatePoint(
            rate_per_s=point.rate_per_s,
            requests=point.requests,
            meets=point.meets,
            saturated=point.saturated,
            stopped_early=point.stopped_early,
            goodput_frac=point.goodput_frac,
            output_tok_s=rate,
            targets=tuple(
                PointTarget(
                    target=target,
                    verdict=result.verdict,
                    value=result.value,
                    low=result.low,
                    high=result.high,
                    n=result.n,
                    rank_value=rank,
                )
                for target, result, rank in zip(targets, point.targets, point.ranks_s, strict=True)
            ),
            client_bound=point.client_bound,
        )
        for point, rate in zip(found.points, rates, strict=False)
    ]
    return RateBoundary(
        rate_per_s=found.rate_per_s,
        low=found.low,
        high=found.high,
        proven_per_s=found.proven_per_s,
        needed_requests=found.needed_requests,
        confidence=found.confidence,
        reason=found.reason,
        point_s=point_s,
        points=tuple(sorted(points, key=lambda p: p.rate_per_s)),
    )
