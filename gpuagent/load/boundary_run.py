"""Measures the points of a boundary search on a real server, each with prompts of its own."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from gpuagent.errors import ConfigError
from gpuagent.load.boundary import (
    MOST_POINTS,
    Boundary,
    Over,
    Point,
    find_boundary,
    make_point,
)
from gpuagent.load.client import Endpoint
from gpuagent.load.driver import LoadRun, Overdue, run_load
from gpuagent.load.plan import Planner
from gpuagent.load.selfcheck import check_client
from gpuagent.load.traffic import open_times, without_warmup
from gpuagent.load.workload import make_planner
from gpuagent.wire.sla import SlaTarget

# Six independent blocks of 10 s, which a proof needs, and a rest for the last requests.
DEFAULT_POINT_S = 65.0
_SEED_STEP = 7919
# A server drops what a cut-off point left behind before the next one begins.
_SETTLE_S = 1.0


def run_boundary(
    args: argparse.Namespace,
    endpoint: Endpoint,
    targets: Sequence[SlaTarget],
    *,
    should_stop: Callable[[], bool],
    on_point: Callable[[Point], None] = lambda point: None,
) -> Boundary:
    """Search from `args.rate` (1 a second) or `args.concurrency` (1) on, as `args.boundary` says.

    Raises ConfigError without a target.
    """
    if not targets:
        raise ConfigError("--boundary needs a --target, such as ttft_s:p95<=0.5")
    if args.duration is None and args.requests is None:
        args.duration = DEFAULT_POINT_S

    over: Over = args.boundary
    settle = False

    def measure(rate_per_s: float, index: int) -> Point:
        nonlocal settle
        if settle:
            time.sleep(_SETTLE_S)
        seed = args.seed + _SEED_STEP * index
        planner = make_planner(args, seed=seed)
        if over == "concurrency":
            run = _in_flight(args, endpoint, planner, round(rate_per_s), should_stop)
        else:
            planned = planner.at_times(open_times(args, rate_per_s, seed=seed))
            run = run_load(
                endpoint,
                planned,
                timeout_s=args.timeout,
                should_stop=should_stop,
                overdue=overdue_limits(targets, len(planned)),
            )
        kept = without_warmup(run, args.warmup)
        point = make_point(
            rate_per_s,
            kept.records,
            targets,
            stopped_early=run.cut_off,
            client_bound=client_bound(kept),
            over=over,
        )
        settle = run.cut_off
        on_point(point)
        return point

    return find_boundary(
        measure,
        start_per_s=args.rate or args.concurrency or 1.0,
        over=over,
        most_points=args.points or MOST_POINTS,
        should_stop=should_stop,
    )


def _in_flight(
    args: argparse.Namespace,
    endpoint: Endpoint,
    planner: Planner,
    streams: int,
    should_stop: Callable[[], bool],
) -> LoadRun:
    """A closed loop for the time of a point, or for its number of requests."""
    count = args.requests or 4 * streams
    return run_load(
        endpoint,
        [planner.next() for _ in range(count)],
        streams=streams,
        timeout_s=args.timeout,
        until_s=None if args.duration is None else args.duration + args.warmup,
        more=None if args.requests else planner.next,
        should_stop=should_stop,
    )


def boundary_report(found: Boundary, asked: dict[str, Any], *, stopped: bool) -> dict[str, Any]:
    """Everything that is shown of a search, JSON-ready."""
    names = {"rate_per_s": "concurrency", "proven_per_s": "proven_concurrency"}
    if found.over == "rate":
        names = {}
    return {
        "boundary": {names.get(k, k): v for k, v in asdict(found).items() if k != "points"},
        "points": [
            {names.get(k, k): v for k, v in asdict(point).items()}
            | {"meets": point.meets, "proven": point.proven}
            for point in sorted(found.points, key=lambda p: p.rate_per_s)
        ],
        "stopped_early": stopped,
        "asked": asked,
    }


def overdue_limits(targets: Sequence[SlaTarget], planned: int) -> Overdue | None:
    """When so many requests wait beyond a limit that its percentile can no longer be kept."""
    limits = {t.metric: t for t in targets if t.metric in ("ttft_s", "e2e_s")}
    if not limits:
        return None
    share = max(1 - (target.percentile or 0.5) for target in limits.values())
    ttft, e2e = limits.get("ttft_s"), limits.get("e2e_s")
    return Overdue(
        ttft_s=ttft.limit if ttft else None,
        e2e_s=e2e.limit if e2e else None,
        allowed=max(20, int(share * planned) + 1),
    )


def client_bound(run: LoadRun) -> str | None:
    """Why the client, not the server, was measured."""
    for check in check_client(run).checks:
        if check.verdict == "invalid" and check.id != "requests_failed":
            return check.message
    return None
