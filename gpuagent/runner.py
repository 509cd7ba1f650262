"""Runs one trial in this process: spec in, result out. The child's main work; also for tests.

Puts the experiment, the engine, the energy counter and the validity watch together. Whatever goes
wrong leaves as AgentError with a reason of the wire, or as CancelledByServer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from gpuagent import environment, text
from gpuagent.engines import create_engine, create_server
from gpuagent.engines.classify import as_agent_error
from gpuagent.errors import AgentError, CancelledByServer
from gpuagent.experiments import get_experiment
from gpuagent.experiments.base import Clock, Emit, Facts, LoadedEngine, RunContext, SystemClock
from gpuagent.experiments.server_load import Server
from gpuagent.models import ResolvedModel, resolve
from gpuagent.simulated_trial import simulate_trial
from gpuagent.telemetry.energy import open_meter
from gpuagent.telemetry.nvml import open_reader
from gpuagent.validity import WindowWatch, assess
from gpuagent.wire import (
    EngineSettings,
    EnvironmentSnapshot,
    FailureReason,
    TrialResult,
    TrialSpec,
)
from gpuagent.wire.inside import CalibrateResult
from gpuagent.wire.parallel import TensorParallelResult
from gpuagent.wire.trial import Measurements

# Kept free at the end for shutting down, so that the result is written before the deadline.
_MARGIN_S = 5.0


class _Engines:
    """Opens engines for the experiment and closes all of them at the end."""

    def __init__(
        self,
        spec: TrialSpec,
        model: ResolvedModel,
        facts: Facts,
        emit: Emit,
        tick: Callable[[], None],
    ) -> None:
        self._spec, self._model, self._facts = spec, model, facts
        self._emit, self._tick = emit, tick
        self.opened: list[LoadedEngine] = []
        self.servers: list[Server] = []

    def open(self, settings: EngineSettings) -> LoadedEngine:
        self._emit("load", f"Loading {self._model.label} ({settings.dtype}, {settings.attention})")
        engine = create_engine(self._spec.engine)
        report = engine.load(self._model, settings, seed=self._spec.seed, tick=self._tick)
        loaded = LoadedEngine(engine, report)
        self.opened.append(loaded)
        self._facts.latest_load = report
        params_m = (report.model.params or 0) / 1e6
        size_mib = (report.model.stored_weight_bytes or 0) / 2**20
        self._emit(
            "load",
            f"Loaded in {report.load_s:.1f} s: {params_m:.0f} M parameters, {size_mib:,.0f} MiB "
            f"in {report.model.dtype}, {report.model.attention} attention",
        )
        return loaded

    def open_server(self, settings: EngineSettings) -> Server:
        self._emit("load", f"Starting {self._spec.engine} for {self._model.label}")
        engine = create_server(self._spec.engine, endpoint=self._spec.endpoint)
        try:
            report = engine.start(self._model, settings, seed=self._spec.seed, tick=self._tick)
        except BaseException:
            engine.close()
            raise
        server = Server(engine, report)
        self.servers.append(server)
        took = "" if report.ready_s is None else f" after {report.ready_s:.1f} s"
        self._emit("load", f"{self._spec.engine} answers{took}")
        return server

    def close(self) -> None:
        for loaded in self.opened:
            loaded.engine.close()
        for server in self.servers:
            server.engine.close()


def _snapshot(
    spec: TrialSpec, measurements: Measurements, engines: _Engines
) -> EnvironmentSnapshot:
    if isinstance(measurements, CalibrateResult):
        # The ceilings are the device's own: no model was loaded.
        found = measurements.ceilings
        device, versions, threads = found.device, found.versions, found.threads
    elif isinstance(measurements, TensorParallelResult):
        # The model was loaded by processes that have ended.
        device, versions = measurements.model.device, measurements.versions
        threads = measurements.threads
    else:
        first = (*engines.opened, *engines.servers)[0]
        device, versions = first.report.model.device, first.engine.versions()
        threads = first.report.threads
    return environment.snapshot(
        device=device, engine_versions=versions, threads=threads, settings=spec.settings
    )


def run_trial(
    spec: TrialSpec,
    *,
    emit: Emit,
    should_cancel: Callable[[], bool],
    model_roots: Sequence[Path],
    work_dir: Path | None = None,
    clock: Clock | None = None,
) -> TrialResult:
    """Measure `spec` here and now.

    emit(phase, message, done_frac, remaining_s) is told about progress. should_cancel is asked
    between steps. work_dir: for files that an experiment leaves, announced in its result.
    Raises AgentError with the reason, or CancelledByServer.
    """
    started_at_s, clock = time.time(), clock or SystemClock()
    began = clock.now()

    def tick() -> None:
        if should_cancel():
            raise CancelledByServer
        if clock.now() - began > spec.timeout_s:
            message = f"The trial ran longer than its limit of {spec.timeout_s:.0f} s"
            raise AgentError(FailureReason.TIMED_OUT, message)

    if spec.engine == "simulated":
        return simulate_trial(spec, emit=emit, tick=tick, clock=clock)
    emit("prepare", f"Looking up {spec.model.label}")
    tick()
    experiment = get_experiment(spec.experiment)
    model = resolve(spec.model, model_roots, offline=os.environ.get("HF_HUB_OFFLINE") == "1")
    facts = Facts()
    engines = _Engines(spec, model, facts, emit, tick)
    reader = open_reader()
    watch = WindowWatch()
    context = RunContext(
        spec=spec,
        open_engine=engines.open,
        open_server=engines.open_server,
        emit=emit,
        tick=tick,
        clock=clock,
        energy=open_meter(reader),
        load_text=text.load,
        begin_measuring=watch.start,
        deadline=began + max(1.0, spec.timeout_s - _MARGIN_S),
        work_dir=work_dir,
        model_roots=model_roots,
        facts=facts,
    )
    try:
        measurements = experiment(context)
        snapshot = _snapshot(spec, measurements, engines)
    except (AgentError, CancelledByServer):
        raise
    except Exception as error:
        raise as_agent_error(error, doing=spec.experiment) from error
    finally:
        observed = watch.stop()
        engines.close()
        reader.close()
    validity = assess(measurements, facts=facts, observed=observed, environment=snapshot)
    return TrialResult(
        measurements=measurements,
        environment=snapshot,
        validity=validity,
        started_at_s=started_at_s,
        duration_s=clock.now() - began,
    )
