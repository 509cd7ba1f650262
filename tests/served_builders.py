"""Trials of a server under load: a boundary over measured rates, and the server's own gauges."""

from __future__ import annotations

from typing import Any

from advisor.evidence import TrialEvidence
from gpuagent.wire import EngineSettings, SlaTarget
from gpuagent.wire.measure import Quantity
from gpuagent.wire.serving import (
    EngineFacts,
    PointTarget,
    RateBoundary,
    RatePoint,
    ServerTimeline,
)
from tests.builders import make_served, make_trial

TARGETS = tuple(
    SlaTarget(metric=metric, statistic="p90", limit=limit)
    for metric, limit in (("ttft_s", 0.3), ("itl_s", 0.05), ("e2e_s", 2.0))
)


def make_point(rate_per_s: float, ttft_s: float | None = 0.1, **overrides: Any) -> RatePoint:
    """TTFT as told, ITL and E2E in proportion; ttft_s None: too few requests to show it."""
    values = {"ttft_s": ttft_s, "itl_s": (ttft_s or 0.1) / 5, "e2e_s": (ttft_s or 0.1) * 6}
    wanted = {
        "rate_per_s": rate_per_s,
        "requests": 60,
        "meets": (ttft_s or 0.1) <= 0.3,
        "saturated": False,
        "stopped_early": False,
        "goodput_frac": 1.0 if (ttft_s or 0.1) <= 0.3 else 0.4,
        "output_tok_s": Quantity(value=rate_per_s * 20),
        "targets": tuple(
            PointTarget(
                target=target,
                verdict="not_proven",
                value=(value := values[target.metric]),
                low=None if value is None else value * 0.9,
                high=None if value is None else value * 1.1,
                n=60,
                rank_value=value,
            )
            for target in TARGETS
        ),
    }
    return RatePoint.model_validate(wanted | overrides)


def make_boundary(rate_per_s: float | None = 5.0, **overrides: Any) -> RateBoundary:
    """Met at 1 and 4, missed at 6 where the queue grew and at 16 where the run was cut off."""
    wanted = {
        "rate_per_s": rate_per_s,
        "low": None if rate_per_s is None else rate_per_s * 0.98,
        "high": None if rate_per_s is None else rate_per_s * 1.03,
        "proven_per_s": None,
        "needed_requests": 90,
        "confidence": 0.95,
        "reason": "bracketed within 5.0%",
        "point_s": 15.0,
        "points": (
            make_point(1.0, 0.08),
            make_point(4.0, 0.2),
            make_point(6.0, 0.9, saturated=True),
            make_point(16.0, 4.0, saturated=True, stopped_early=True),
        ),
    }
    return RateBoundary.model_validate(wanted | overrides)


def make_timeline() -> ServerTimeline:
    """Ten seconds; the fifth scrape did not answer."""
    return ServerTimeline(
        at_s=tuple(float(n) for n in range(10)),
        running=tuple(None if n == 4 else float(min(n, 4)) for n in range(10)),
        waiting=tuple(None if n == 4 else float(max(0, n - 6)) for n in range(10)),
        kv_frac=tuple(None if n == 4 else n / 20 for n in range(10)),
        preemptions=tuple(None if n == 4 else 0.0 for n in range(10)),
    )


def make_served_trial(
    boundary: RateBoundary | None = None,
    *,
    timeline: ServerTimeline | None = None,
    timeline_reason: str | None = None,
    boundary_reason: str | None = None,
    settings: EngineSettings | None = None,
    **kwargs: Any,
) -> TrialEvidence:
    result = make_served(
        version="0.32.0",
        command=("vllm", "serve", "/models/small"),
        facts=EngineFacts(kv_cache_tokens=4096, graph_sizes=(1, 2, 4)),
        timeline=timeline,
        timeline_reason=timeline_reason,
    ).model_copy(update={"boundary": boundary, "boundary_reason": boundary_reason})
    return make_trial(result, settings=settings or EngineSettings(), **kwargs)
