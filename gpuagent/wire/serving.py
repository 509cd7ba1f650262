"""A serving engine under load: what is asked of it, and what it and its load told."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gpuagent.wire.base import WireModel
from gpuagent.wire.measure import Quantity
from gpuagent.wire.sla import SlaTarget
from gpuagent.wire.units import Fraction, Name, PerSecond, PositiveSeconds, Seconds, Text

MAX_TIMELINE = 4000


class ServeConfig(WireModel):
    """The workload's requests against a server, then, where asked, the highest rate it sustains.

    streams: requests in flight in a closed loop, where the workload has no rate.
    boundary_points: most rates to be measured for the boundary; 0 looks for none.
    point_s: how long each of them is sent. targets: the latency limits that the boundary keeps.
    perplexity_tokens: 0 where the server cannot score a text or nothing about it changed.
    """

    experiment: Literal["serve"] = "serve"
    streams: Annotated[int, Field(ge=1, le=4096)] = 1
    boundary_points: Annotated[int, Field(ge=0, le=12)] = 0
    point_s: Annotated[PositiveSeconds, Field(le=3600)] = 20.0
    targets: Annotated[tuple[SlaTarget, ...], Field(max_length=12)] = ()
    perplexity_tokens: Annotated[int, Field(ge=0, le=300_000)] = 0
    text_path: Annotated[str, Field(max_length=1000)] | None = None


class ServerTimeline(WireModel):
    """The server's own gauges once a second, on the clock of the request records.

    All lists are as long as at_s; None where a scrape did not answer or does not have the value.
    kv_frac: used share of the KV cache. preemptions: since the start of the window.
    """

    at_s: Annotated[tuple[float, ...], Field(max_length=MAX_TIMELINE)]
    running: tuple[float | None, ...]
    waiting: tuple[float | None, ...]
    kv_frac: tuple[float | None, ...]
    preemptions: tuple[float | None, ...] = ()


class CountCheck(WireModel):
    """One thing counted on both sides of the wire over the same requests."""

    what: Literal["requests", "output_tokens", "input_tokens"]
    client: Annotated[int, Field(ge=0)]
    server: Annotated[int, Field(ge=0)] | None = None
    reason: Text | None = None


class EngineFacts(WireModel):
    """What the engine said about itself at its start; None where it did not.

    max_running: its own limit on running requests, as given or as chosen by it.
    """

    kv_cache_tokens: Annotated[int, Field(ge=0)] | None = None
    kv_block_tokens: Annotated[int, Field(ge=1)] | None = None
    max_context: Annotated[int, Field(ge=1)] | None = None
    max_running: Annotated[int, Field(ge=1)] | None = None
    max_batched_tokens: Annotated[int, Field(ge=1)] | None = None
    attention: Name | None = None
    graph_sizes: Annotated[tuple[int, ...], Field(max_length=200)] = ()


class ServedEngine(WireModel):
    """The server that was measured. command: as it was started, without keys; () for an endpoint.

    ready_s: from the start of the process to the first token of a real completion.
    """

    engine: Name
    version: Name | None
    command: Annotated[tuple[str, ...], Field(max_length=100)] = ()
    ready_s: Quantity
    facts: EngineFacts = EngineFacts()
    timeline: ServerTimeline | None = None
    timeline_reason: Text | None = None
    counts: Annotated[tuple[CountCheck, ...], Field(max_length=3)] = ()
    prefix_hit_frac: Quantity = Quantity(reason="the server does not count prefix cache hits")
    spec_accepted_frac: Quantity = Quantity(reason="the server does not speculate")


class PointTarget(WireModel):
    """One target at one rate: the percentile in seconds with its 95 % interval.

    rank_value: the percentile by nearest rank, failed requests last, which the search went by; also
    where n is too small for value. None where it fell on a failed request, or by older agents.
    """

    target: SlaTarget
    verdict: Literal["met", "missed", "not_proven", "not_measured"]
    value: float | None
    low: float | None
    high: float | None
    n: Annotated[int, Field(ge=0)]
    rank_value: Seconds | None = None


class RatePoint(WireModel):
    """One measured rate. meets: every percentile is within its limit. saturated: the queue grew.

    stopped_early: cut off once the limits could no longer be kept. client_bound: why it says
    nothing about the server.
    """

    rate_per_s: PerSecond
    requests: Annotated[int, Field(ge=0)]
    meets: bool
    saturated: bool
    stopped_early: bool
    goodput_frac: Fraction | None
    output_tok_s: Quantity
    targets: Annotated[tuple[PointTarget, ...], Field(max_length=12)]
    client_bound: Text | None = None


class RateBoundary(WireModel):
    """The highest rate that keeps all targets: see `gpuagent.load.boundary.Boundary`.

    rate_per_s: where the fitted curve crosses the limit, within low and high; None without a
    bracket. proven_per_s: the highest rate at which every target is proven with `confidence`.
    """

    rate_per_s: float | None
    low: float | None
    high: float | None
    proven_per_s: float | None
    needed_requests: int | None
    confidence: Fraction
    reason: Text
    point_s: Seconds
    points: Annotated[tuple[RatePoint, ...], Field(max_length=20)]
