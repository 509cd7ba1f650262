"""Runs a trial on the simulator: the same results as a real engine gives, labelled "simulated".

No model is loaded and no device is touched; the trial takes a second or two whatever time it
simulates. Its validity carries a warning that says so, its device is called simulated.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from gpuagent import environment
from gpuagent.engines.base import Tick
from gpuagent.errors import AgentError
from gpuagent.experiments.base import Clock, Emit
from gpuagent.experiments.pairing import seed_of, sides_of
from gpuagent.experiments.requests import PlannedRequest, PromptSource, plan_requests
from gpuagent.simulator import (
    MACHINES,
    Arrival,
    Counters,
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
from gpuagent.wire.settings import SERVING_KNOBS
from gpuagent.wire.trial import (
    AbRun,
    BaselineConfig,
    BaselineResult,
    Measurements,
    ServerCounters,
    VerifyConfig,
    VerifyResult,
)

NOT_REAL = "Simulated: no number of this trial was measured on a device"
_REASON = "the engine is simulated"
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
    if isinstance(config, BaselineConfig):
        emit("measure", f"Simulating {spec.workload.requests:,} requests", done_frac=0.1)
        records, counters = _requests(machine, spec.settings, spec.workload, spec.seed, tick)
        return _baseline(spec, machine, records, counters)
    if isinstance(config, VerifyConfig):
        return _verify(spec, machine, config, emit, tick)
    raise AgentError(
        FailureReason.CONFIG_ERROR,
        f"config: the simulator has baseline and verify, not {config.experiment}",
    )


def _requests(
    machine: Machine, settings: EngineSettings, workload: Workload, seed: int, tick: Tick
) -> tuple[tuple[RequestRecord, ...], ServerCounters]:
    source = PromptSource(stream=(0,), vocab_size=1)
    planned = plan_requests(
        workload,
        count=workload.requests,
        seed=seed,
        source=source,
        max_context=machine.max_context,
    )
    noise = random.Random(seed).randrange(2**31)  # noqa: S311  noise of a simulation
    knobs = knobs_of(settings)
    if workload.request_rate_per_s is not None:
        tick()
        arrivals = [_arrival(p, p.intended_s or 0.0) for p in planned]
        served = simulate(machine, knobs, arrivals, seed=noise)
        return _records(arrivals, served), _counters([served.counters])
    records: list[RequestRecord] = []
    counters: list[Counters] = []
    now_s = 0.0
    for index, request in enumerate(planned):
        tick()
        arrivals = [_arrival(request, now_s)]
        served = simulate(machine, knobs, arrivals, seed=noise + index)
        records += _records(arrivals, served)
        counters.append(served.counters)
        now_s = served.end_s
    return tuple(records), _counters(counters)


def _arrival(request: PlannedRequest, at_s: float) -> Arrival:
    return Arrival(at_s, len(request.prompt), request.output_tokens)


def _records(arrivals: Sequence[Arrival], served: Served) -> tuple[RequestRecord, ...]:
    return tuple(
        RequestRecord(
            intended_s=arrival.at_s,
            sent_s=arrival.at_s,
            token_s=times,
            input_tokens=arrival.input_tokens,
            output_tokens=len(times),
        )
        for arrival, times in zip(arrivals, served.token_s, strict=True)
    )


def _counters(runs: Sequence[Counters]) -> ServerCounters:
    steps = sum(run.steps for run in runs)

    def share(name: str) -> float:
        return sum(getattr(run, name) for run in runs) / max(1, steps)

    return ServerCounters(
        steps=steps,
        preemptions=sum(run.preemptions for run in runs),
        running_peak=max(run.running_peak for run in runs),
        kv_peak_frac=max(run.kv_peak_frac for run in runs),
        full_frac=share("full_steps"),
        starved_frac=share("starved_steps"),
        eager_frac=share("eager_steps"),
        mixed_frac=share("mixed_steps"),
    )


def _baseline(
    spec: TrialSpec,
    machine: Machine,
    records: tuple[RequestRecord, ...],
    counters: ServerCounters,
) -> BaselineResult:
    used = (spec.settings.memory_share_frac or ServingKnobs().memory_share_frac) * (
        machine.memory_bytes
    )
    missing = Quantity(reason=_REASON)
    return BaselineResult(
        model=_loaded(machine),
        cells=(),
        requests=records,
        arrivals="closed_loop" if spec.workload.request_rate_per_s is None else "poisson",
        window_s=max(record.token_s[-1] for record in records),
        peak_memory_bytes=Quantity(value=used),
        memory_kind="simulated",
        joules_per_token=missing,
        idle_power_w=missing,
        net_joules_per_token=missing,
        read_bandwidth_bytes_s=missing,
        perplexity_reason=_REASON,
        server=counters,
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
            records, _ = _requests(machine, sides[side], workload, seed, tick)
            order = len(runs)
            runs.append(AbRun.model_validate({"side": side, "order": order, "requests": records}))
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
