"""Runs a trial on the simulator: the same results as a real engine gives, labelled "simulated".

No model is loaded and no device is touched; the trial takes a second or two whatever time it
simulates. Its validity carries a warning that says so, its device is called simulated.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpuagent import environment
from gpuagent.engines.base import Tick
from gpuagent.errors import AgentError
from gpuagent.experiments.base import Clock, Emit
from gpuagent.experiments.pairing import seed_of, sides_of
from gpuagent.experiments.rate_search import PlannedPoint, SentPoint, search_rate
from gpuagent.experiments.requests import plan_requests
from gpuagent.simulator import (
    KV_BLOCK_TOKENS,
    MACHINES,
    Arrival,
    Counters,
    Gauge,
    Machine,
    Served,
    ServingKnobs,
    StartRefused,
    simulate,
)
from gpuagent.wire import (
    EngineSettings,
    FailureReason,
    Quantity,
    SimulatedModel,
    TrialResult,
    TrialSpec,
    Workload,
)
from gpuagent.wire.loaded import LoadedModel
from gpuagent.wire.measure import RequestRecord, Validity, ValidityCheck
from gpuagent.wire.serving import (
    MAX_TIMELINE,
    EngineFacts,
    RateBoundary,
    ServeConfig,
    ServedEngine,
    ServerTimeline,
)
from gpuagent.wire.settings import SERVING_KNOBS
from gpuagent.wire.trial import (
    AbRun,
    BaselineConfig,
    BaselineResult,
    Measurements,
    ServerCounters,
    ServeResult,
    VerifyConfig,
    VerifyResult,
)

NOT_REAL = "Simulated: no number of this trial was measured on a device"
_REASON = "the engine is simulated"
_SAMPLE_S = 1.0
# Simulated time is free, requests are not: about 0.1 ms each to simulate and to judge.
_MOST_POINT_REQUESTS = 3000
CACHE_TOO_SMALL = "cache_too_small"
"""`detail` of an out-of-memory failure whose cause is too little room for the cache."""


def simulate_trial(spec: TrialSpec, *, emit: Emit, tick: Tick, clock: Clock) -> TrialResult:
    """Simulate `spec`. Raises AgentError(config_error) for a machine or an experiment that the
    simulator does not know, and with the reason of an engine that would not start."""
    started_at_s, began = time.time(), clock.now()
    machine = machine_of(spec)
    emit("prepare", f"Simulating {machine.name}")
    tick()
    try:
        measurements = _measure(spec, machine, emit, tick)
    except StartRefused as refused:
        small = refused.kind == CACHE_TOO_SMALL
        reason = FailureReason.OUT_OF_MEMORY if small else FailureReason(refused.kind)
        detail = refused.kind if small else None
        raise AgentError(reason, refused.message, detail=detail) from refused
    except ValueError as error:
        raise AgentError(FailureReason.CONFIG_ERROR, f"workload: {error}") from error
    return TrialResult(
        measurements=measurements,
        environment=environment.snapshot(
            device=f"simulated {machine.name}",
            engine_versions={"simulator": environment.agent_version()},
            threads=None,
            settings=spec.settings,
        ),
        validity=Validity(
            checks=(ValidityCheck(id="simulated", verdict="warn", message=NOT_REAL),)
        ),
        started_at_s=started_at_s,
        duration_s=clock.now() - began,
    )


def machine_of(spec: TrialSpec) -> Machine:
    model = spec.model
    if not isinstance(model, SimulatedModel) or model.name not in MACHINES:
        known = ", ".join(sorted(MACHINES))
        raise AgentError(FailureReason.CONFIG_ERROR, f"model.name: the simulator knows {known}")
    return MACHINES[model.name]


def knobs_of(settings: EngineSettings) -> ServingKnobs:
    """The settings with the engine's own choice for what they leave open."""
    chosen = {k: getattr(settings, k) for k in SERVING_KNOBS if getattr(settings, k) is not None}
    if "max_running" not in chosen and "max_batched_tokens" in chosen:
        # As vLLM: its default never exceeds the token budget.
        chosen["max_running"] = min(ServingKnobs().max_running, chosen["max_batched_tokens"])
    return ServingKnobs(**chosen)


def _measure(spec: TrialSpec, machine: Machine, emit: Emit, tick: Tick) -> Measurements:
    config = spec.config
    if isinstance(config, BaselineConfig | ServeConfig):
        emit("measure", f"Simulating {spec.workload.requests:,} requests", done_frac=0.1)
    if isinstance(config, BaselineConfig):
        sent = _send(machine, spec.settings, spec.workload, seed=spec.seed, streams=1, tick=tick)
        return BaselineResult(**_common(spec, machine, sent))
    if isinstance(config, ServeConfig):
        return _serve(spec, machine, config, emit, tick)
    if isinstance(config, VerifyConfig):
        return _verify(spec, machine, config, emit, tick)
    raise AgentError(
        FailureReason.CONFIG_ERROR,
        f"config: the simulator has baseline, serve and verify, not {config.experiment}",
    )


class _NoPrompts:
    """Lengths are all that the simulator reads."""

    def take(self, tokens: int, rng: random.Random) -> tuple[int, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class _Sent:
    """What came of a workload's requests."""

    records: tuple[RequestRecord, ...]
    counters: Counters
    gauges: tuple[Gauge, ...]


def _send(
    machine: Machine,
    settings: EngineSettings,
    workload: Workload,
    *,
    seed: int,
    streams: int,
    tick: Tick,
    sample_s: float | None = None,
) -> _Sent:
    """The workload's requests at its rate; without one `streams` of them are kept in flight."""
    planned = plan_requests(
        workload,
        count=workload.requests,
        seed=seed,
        source=_NoPrompts(),
        max_context=machine.max_context,
    )
    arrivals = [Arrival(p.intended_s or 0.0, p.input_tokens, p.output_tokens) for p in planned]
    noise = random.Random(seed).randrange(2**31)  # noqa: S311  noise of a simulation
    served = simulate(
        machine,
        knobs_of(settings),
        arrivals,
        seed=noise,
        streams=streams if workload.request_rate_per_s is None else None,
        sample_s=sample_s,
        most_samples=MAX_TIMELINE,
        tick=tick,
    )
    return _Sent(_records(arrivals, served), served.counters, served.gauges)


def _records(arrivals: Sequence[Arrival], served: Served) -> tuple[RequestRecord, ...]:
    return tuple(
        RequestRecord(
            intended_s=sent_s,
            sent_s=sent_s,
            token_s=times,
            input_tokens=arrival.input_tokens,
            output_tokens=len(times),
        )
        for arrival, sent_s, times in zip(arrivals, served.sent_s, served.token_s, strict=True)
    )


def _counters(run: Counters) -> ServerCounters:
    steps = max(1, run.steps)
    return ServerCounters(
        steps=run.steps,
        preemptions=run.preemptions,
        running_peak=run.running_peak,
        kv_peak_frac=run.kv_peak_frac,
        full_frac=run.full_steps / steps,
        starved_frac=run.starved_steps / steps,
        eager_frac=run.eager_steps / steps,
        mixed_frac=run.mixed_steps / steps,
    )


def _common(spec: TrialSpec, machine: Machine, sent: _Sent) -> dict[str, Any]:
    """What the results of all experiments on one configuration have."""
    used = (spec.settings.memory_share_frac or ServingKnobs().memory_share_frac) * (
        machine.memory_bytes
    )
    missing = Quantity(reason=_REASON)
    return {
        "model": _loaded(machine),
        "cells": (),
        "requests": sent.records,
        "arrivals": "closed_loop" if spec.workload.request_rate_per_s is None else "poisson",
        "window_s": max(record.token_s[-1] for record in sent.records),
        "peak_memory_bytes": Quantity(value=used),
        "memory_kind": "simulated",
        "joules_per_token": missing,
        "idle_power_w": missing,
        "net_joules_per_token": missing,
        "read_bandwidth_bytes_s": missing,
        "perplexity_reason": _REASON,
        "server": _counters(sent.counters),
    }


def _serve(
    spec: TrialSpec, machine: Machine, config: ServeConfig, emit: Emit, tick: Tick
) -> ServeResult:
    """The workload's requests, then the highest rate, in simulated time."""
    closed = spec.workload.request_rate_per_s is None
    sent = _send(
        machine,
        spec.settings,
        spec.workload,
        seed=spec.seed,
        streams=config.streams,
        tick=tick,
        sample_s=_SAMPLE_S,
    )
    boundary, why_none = _boundary(spec, machine, config, sent.records, emit, tick)
    return ServeResult(
        **_common(spec, machine, sent),
        served=_served(machine, knobs_of(spec.settings), sent.gauges),
        streams=config.streams if closed else None,
        boundary=boundary,
        boundary_reason=why_none,
    )


def _boundary(
    spec: TrialSpec,
    machine: Machine,
    config: ServeConfig,
    records: Sequence[RequestRecord],
    emit: Emit,
    tick: Tick,
) -> tuple[RateBoundary | None, str | None]:
    """Each rate is served to its end: simulated time need not be saved by cutting one off."""
    if config.boundary_points == 0:
        return None, None

    def send(asked: PlannedPoint) -> SentPoint:
        workload = spec.workload.model_copy(
            update={"request_rate_per_s": asked.rate_per_s, "requests": asked.count}
        )
        sent = _send(machine, spec.settings, workload, seed=asked.seed, streams=1, tick=tick)
        return SentPoint(sent.records)

    return search_rate(
        spec,
        config,
        records,
        send,
        out_of_time=lambda: False,
        most_requests=_MOST_POINT_REQUESTS,
        on_point=lambda done, text: emit(
            "measure", text, done_frac=0.1 + 0.9 * done / config.boundary_points
        ),
    )


def _served(machine: Machine, knobs: ServingKnobs, gauges: Sequence[Gauge]) -> ServedEngine:
    """No process ran, so there is no start, no log and no count of a second party."""
    return ServedEngine(
        engine="simulated",
        version=environment.agent_version(),
        ready_s=Quantity(reason="the engine is simulated, so nothing was started"),
        facts=EngineFacts(
            kv_cache_tokens=machine.kv_blocks(knobs) * KV_BLOCK_TOKENS,
            kv_block_tokens=KV_BLOCK_TOKENS,
            max_context=machine.max_context,
            max_running=knobs.max_running,
            max_batched_tokens=knobs.max_batched_tokens,
        ),
        timeline=ServerTimeline(
            at_s=tuple(gauge.at_s for gauge in gauges),
            running=tuple(gauge.running for gauge in gauges),
            waiting=tuple(gauge.waiting for gauge in gauges),
            kv_frac=tuple(gauge.kv_frac for gauge in gauges),
            preemptions=tuple(gauge.preemptions for gauge in gauges),
        ),
        prefix_hit_frac=Quantity(reason="the simulator has no prefix cache"),
        spec_accepted_frac=Quantity(reason="the simulator does not speculate"),
    )


def _verify(
    spec: TrialSpec, machine: Machine, config: VerifyConfig, emit: Emit, tick: Tick
) -> VerifyResult:
    workload = spec.workload.model_copy(update={"requests": config.requests_per_run})
    sides = {"a": spec.settings, "b": config.candidate}
    runs: list[AbRun] = []
    for pair in range(config.pairs):
        for side in sides_of(pair):
            # Both sides of a pair get the same requests; the simulated machine differs per run.
            seed = seed_of(pair, spec.seed)
            sent = _send(
                machine, sides[side], workload, seed=seed, streams=config.streams, tick=tick
            )
            order = len(runs)
            run = {"side": side, "order": order, "requests": sent.records}
            runs.append(AbRun.model_validate(run))
            emit("measure", f"Run {order + 1}", done_frac=len(runs) / (2 * config.pairs))
    return VerifyResult(
        model_a=_loaded(machine),
        model_b=_loaded(machine),
        candidate=config.candidate,
        runs=tuple(runs),
        perplexity_reason=_REASON,
    )


def _loaded(machine: Machine) -> LoadedModel:
    """The simulator knows bytes only, so there is no number of parameters."""
    return LoadedModel(
        architecture="simulated",
        dtype="bfloat16",
        attention="simulated",
        device=f"simulated {machine.name}",
        params=None,
        stored_weight_bytes=round(machine.weight_bytes),
        random_weights=True,
    )
