"""What went on around the measurement, while it was measured: others' load, steal, GPU state."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from gpuagent.telemetry.host import cpu_seconds, own_cpu_seconds, steal_seconds
from gpuagent.telemetry.sampler import Sampler
from gpuagent.wire import HostSample


@dataclass(frozen=True, slots=True)
class Observed:
    """Means over one window. None: not readable on this platform.

    other_cpu_frac: processor time of everything but this process, as a share of all cores.
    """

    window_s: float
    other_cpu_frac: float | None
    steal_frac: float | None
    samples: tuple[HostSample, ...] = ()


class WindowWatch:
    """Starts with the trial's measuring, read at its end. Samples once a second beside it."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self._sampler = sampler or Sampler()
        self._sampler.watch(os.getpid())
        self._began = time.monotonic()
        self._busy_s, _ = cpu_seconds()
        self._own_s = own_cpu_seconds()
        self._steal_s = steal_seconds()

    def start(self) -> None:
        """Begin to watch; what was before does not count."""
        self._began = time.monotonic()
        self._busy_s, _ = cpu_seconds()
        self._own_s = own_cpu_seconds()
        self._steal_s = steal_seconds()
        self._sampler.start()

    def stop(self) -> Observed:
        """End the watch and say what was seen."""
        window_s = max(1e-9, time.monotonic() - self._began)
        core_s = window_s * (os.cpu_count() or 1)
        busy_s = cpu_seconds()[0] - self._busy_s
        own_s = own_cpu_seconds() - self._own_s
        steal_now_s = steal_seconds()
        stolen_s = (
            None if steal_now_s is None or self._steal_s is None else steal_now_s - self._steal_s
        )
        self._sampler.stop()
        # Stolen time is counted as busy by the kernel, but nobody on this host used it.
        other_s = max(0.0, busy_s - own_s - (stolen_s or 0.0))
        return Observed(
            window_s=window_s,
            other_cpu_frac=min(1.0, other_s / core_s),
            steal_frac=None if stolen_s is None else max(0.0, stolen_s / core_s),
            samples=tuple(self._sampler.drain()),
        )
