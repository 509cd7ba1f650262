"""The highest rate that a running server sustains within the latency targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpuagent.experiments.base import RunContext
from gpuagent.experiments.server_load import Server, Traffic, send
from gpuagent.load.boundary import Boundary, Point, find_boundary, make_point
from gpuagent.load.boundary_run import client_bound, overdue_limits
from gpuagent.request_metrics import request_metrics, throughput
from gpuagent.wire import Quantity, SlaTarget
from gpuagent.wire.measure import RequestRecord
from gpuagent.wire.serving import PointTarget, RateBoundary, RatePoint, ServeConfig

_SEED_STEP = 7919
_SPARE_S = 10.0
# A first rate below what the closed loop completed.
_START_FRAC = 0.7


def find_rate(
    context: RunContext,
    config: ServeConfig,
    server: Server,
    traffic: Traffic,
    records: Sequence[RequestRecord],
    *,
    on_point: Callable[[int, str], None],
) -> tuple[RateBoundary | None, str | None]:
    """(boundary, None), or (None, why there is none). Stops where the trial's time ends."""
    targets = [t for t in config.targets if t.percentile is not None]
    if not targets:
        return None, "none of the targets is a latency at a percentile"
    start = _start_rate(context, records)
    if start is None:
        return None, "no request succeeded that a first rate could follow from"
    rates: list[Quantity] = []

    def out_of_time() -> bool:
        return context.remaining_s() < config.point_s + _SPARE_S

    def measure(rate_per_s: float, index: int) -> Point:
        seed = (context.spec.seed + _SEED_STEP * (index + 1)) % 2**31
        count = max(4, round(rate_per_s * config.point_s))
        planned = traffic.plan(count=count, seed=seed, rate_per_s=rate_per_s)
        run = send(
            server,
            planned,
            tick=context.tick,
            streams=None,
            overdue=overdue_limits(targets, len(planned)),
        )
        point = make_point(
            rate_per_s,
            run.records,
            targets,
            stopped_early=run.cut_off,
            client_bound=client_bound(run),
        )
        rates.append(_throughput(run.records))
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


def _start_rate(context: RunContext, records: Sequence[RequestRecord]) -> float | None:
    asked = context.spec.workload.request_rate_per_s
    if asked is not None:
        return asked
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
