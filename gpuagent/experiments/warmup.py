"""The first request after a load, and then requests until their time no longer falls.

Both stay out of every warm number: allocators, thread pools, kernel selection and the CPU's clock
all settle in the first seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuagent.engines.base import Engine, LoadReport, Tick
from gpuagent.experiments.base import Clock, median, timed
from gpuagent.wire.trial import ColdStart

MIN_ITERATIONS = 3
MAX_ITERATIONS = 12
LIMIT_S = 8.0
# The last three iterations agree within this fraction.
STABLE_FRAC = 0.10
DECODE_STEPS = 3


@dataclass(frozen=True, slots=True)
class WarmUp:
    """first_ttft_s is cold. prefill_s and step_s are typical warm times of the warm-up shape."""

    first_ttft_s: float
    seconds: float
    iterations: int
    stable: bool
    prefill_s: float
    step_s: float

    def cold_start(self, report: LoadReport) -> ColdStart:
        """The wire value, with the times of the load."""
        return ColdStart(
            import_s=report.import_s,
            load_s=report.load_s,
            first_request_ttft_s=self.first_ttft_s,
            warmup_s=self.seconds,
            warmup_iterations=self.iterations,
        )


def warm_up(
    engine: Engine, prompt: Sequence[int], *, use_cache: bool, clock: Clock, tick: Tick
) -> WarmUp:
    """Run `prompt` and a few decode steps until stable, for at most LIMIT_S or MAX_ITERATIONS."""
    first_ttft_s = _first_request(engine, prompt, use_cache=use_cache, clock=clock)
    began = clock.now()
    prefills: list[float] = []
    steps: list[float] = []
    totals: list[float] = []
    while len(totals) < MAX_ITERATIONS and not _stable(totals):
        if len(totals) >= MIN_ITERATIONS and clock.now() - began > LIMIT_S:
            break
        tick()
        iteration_began = clock.now()
        batch = engine.prefill([prompt], use_cache=use_cache)
        prefills.append(clock.now() - iteration_began)
        for _ in range(DECODE_STEPS):
            tick()
            steps.append(timed(clock, lambda batch=batch: engine.step(batch)))  # type: ignore[misc]
        engine.release(batch)
        totals.append(clock.now() - iteration_began)
    return WarmUp(
        first_ttft_s=first_ttft_s,
        seconds=clock.now() - began,
        iterations=len(totals),
        stable=_stable(totals),
        prefill_s=median(prefills[-MIN_ITERATIONS:]),
        step_s=median(steps[-MIN_ITERATIONS * DECODE_STEPS :]),
    )


def _first_request(
    engine: Engine, prompt: Sequence[int], *, use_cache: bool, clock: Clock
) -> float:
    began = clock.now()
    batch = engine.prefill([prompt], use_cache=use_cache)
    first_ttft_s = clock.now() - began
    engine.release(batch)
    return first_ttft_s


def _stable(totals: Sequence[float]) -> bool:
    latest = totals[-MIN_ITERATIONS:]
    return len(latest) == MIN_ITERATIONS and max(latest) <= min(latest) * (1 + STABLE_FRAC)
