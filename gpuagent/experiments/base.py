"""What every experiment is given, and the few helpers that all of them time with.

An experiment is a function from RunContext to the wire's result. It knows engines by protocol only
and time by `Clock`, so that a test can run it in no time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gpuagent.engines.base import Engine, LoadReport, Tick
from gpuagent.errors import AgentError
from gpuagent.telemetry.energy import EnergyMeter
from gpuagent.text import Passage
from gpuagent.wire import EngineSettings, FailureReason, Quantity, TrialSpec
from gpuagent.wire.measure import ValidityCheck
from gpuagent.wire.trial import Measurements

if TYPE_CHECKING:
    from gpuagent.experiments.server_load import Server

Emit = Callable[..., None]
"""emit(phase, message, done_frac=None, remaining_s=None, level="info")."""


class Clock(Protocol):
    """Monotonic seconds, and waiting until one of them."""

    def now(self) -> float: ...

    def sleep_until(self, at: float) -> None: ...


class SystemClock:
    """The process's performance counter."""

    def now(self) -> float:
        return time.perf_counter()

    def sleep_until(self, at: float) -> None:
        # Short naps, so that a cancel is seen; the last one ends at `at`.
        delay = at - time.perf_counter()
        if delay > 0:
            time.sleep(min(delay, 0.1))


@dataclass(slots=True)
class LoadedEngine:
    """An engine with what its load reported."""

    engine: Engine
    report: LoadReport


@dataclass(slots=True)
class Facts:
    """What only the run itself can tell the validity checks. Filled in by the experiments.

    repeat_ratios: per repeat, its typical time over the typical time of all repeats.
    planned_requests: how many should have been sent. latest_load: what the last load reported.
    notes: sentences about what was shortened or left out; each becomes a warning.
    checks: lines of the checklist that only the experiment could judge.
    """

    repeat_ratios: list[float] = field(default_factory=list)
    planned_requests: int = 0
    warmup_stable: bool | None = None
    latest_load: LoadReport | None = None
    notes: list[str] = field(default_factory=list)
    checks: list[ValidityCheck] = field(default_factory=list)


def _no_server(settings: EngineSettings) -> Server:
    raise AgentError(
        FailureReason.CONFIG_ERROR, "experiment: serve needs an engine that is a server"
    )


@dataclass(slots=True)
class RunContext:
    """One trial while it runs.

    open_engine: loads the spec's model with some settings; the runner closes what was opened.
    open_server: the same for an engine that is reached through HTTP.
    tick: call it between steps; raises when the trial is to stop. begin_measuring: call it once
    after the warm-up, the watch over the machine starts there. deadline: clock time by which the
    result should be there; experiments shorten what can be shortened. work_dir: for files that the
    result announces; None where nobody fetches any. model_roots: for an experiment that runs the
    model in a process of its own.
    """

    spec: TrialSpec
    open_engine: Callable[[EngineSettings], LoadedEngine]
    emit: Emit
    tick: Tick
    clock: Clock
    energy: EnergyMeter
    load_text: Callable[[str | None], Passage]
    begin_measuring: Callable[[], None]
    deadline: float
    work_dir: Path | None = None
    model_roots: Sequence[Path] = ()
    facts: Facts = field(default_factory=Facts)
    open_server: Callable[[EngineSettings], Server] = _no_server

    def remaining_s(self) -> float:
        return max(0.0, self.deadline - self.clock.now())


class Experiment(Protocol):
    def __call__(self, context: RunContext) -> Measurements: ...


def timed(clock: Clock, action: Callable[[], object]) -> float:
    """Seconds of `action`. Engines return with the device idle, so both ends are synchronised."""
    began = clock.now()
    action()
    return clock.now() - began


def joules(before_j: float | None, after_j: float | None) -> float | None:
    """Energy between two readings; None when a counter was missing or wrapped."""
    if before_j is None or after_j is None or after_j < before_j:
        return None
    return after_j - before_j


def joules_per_token(energy_j: float | None, tokens: int, meter: EnergyMeter) -> Quantity:
    """Energy over generated tokens, or the reason why there is none."""
    if energy_j is None:
        return Quantity(reason=meter.reason or "the energy counter gave no reading")
    if energy_j <= 0 or tokens <= 0:
        return Quantity(reason="the energy counter did not move during the measurement")
    return Quantity(value=energy_j / tokens)


def bytes_quantity(value: int | None) -> Quantity:
    """Memory, or that the platform has no counter for it."""
    if value is None:
        return Quantity(reason="this platform reports no memory counter")
    return Quantity(value=float(value))


def median(values: Sequence[float]) -> float:
    """Middle value; the mean of the two middle ones for an even count. Needs at least one."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2
