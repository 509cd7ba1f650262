"""The highest rate that a running server sustains within the latency targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpuagent.experiments.base import RunContext
from gpuagent.experiments.rate_search import PlannedPoint, SentPoint, search_rate
from gpuagent.experiments.server_load import Server, Traffic, send
from gpuagent.load.boundary_run import client_bound, overdue_limits
from gpuagent.wire.measure import RequestRecord
from gpuagent.wire.serving import RateBoundary, ServeConfig

_SPARE_S = 10.0


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

    def send_point(asked: PlannedPoint) -> SentPoint:
        planned = traffic.plan(count=asked.count, seed=asked.seed, rate_per_s=asked.rate_per_s)
        run = send(
            server,
            planned,
            tick=context.tick,
            streams=None,
            overdue=overdue_limits(asked.targets, len(planned)),
        )
        return SentPoint(run.records, run.cut_off, client_bound(run))

    return search_rate(
        context.spec,
        config,
        records,
        send_point,
        out_of_time=lambda: context.remaining_s() < config.point_s + _SPARE_S,
        on_point=on_point,
    )
