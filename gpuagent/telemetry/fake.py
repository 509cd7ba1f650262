"""Replays recorded GPU readings behind the reader's protocol: for tests and demonstrations."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from gpuagent.telemetry.nvml import decode_reasons
from gpuagent.wire import GpuInfo, GpuSample

H100 = GpuInfo(
    index=0,
    uuid="GPU-00000000-0000-0000-0000-000000000000",
    name="NVIDIA H100 80GB HBM3",
    memory_bytes=85_520_809_984,
    compute_capability="9.0",
    power_limit_w=700.0,
)

# SM clock, power, temperature and event-reason mask at 1 Hz: a card that heats up under load until
# the driver slows it down (0x20, SW thermal) and recovers. Shape after public reports of H100 PCIe
# nodes with a failed fan; the numbers are rounded.
_THERMAL = (
    (1980e6, 420.0, 61, 0x0),
    (1980e6, 655.0, 72, 0x0),
    (1965e6, 698.0, 80, 0x4),
    (1740e6, 610.0, 87, 0x24),
    (1515e6, 540.0, 88, 0x20),
    (1845e6, 640.0, 84, 0x4),
    (1980e6, 660.0, 79, 0x0),
)


def thermal_sequence(*, foreign_processes: int | None = 0) -> list[GpuSample]:
    """Seven seconds of a GPU that throttles in the middle."""
    energy_j = 1_000_000.0
    samples = []
    for sm_clock_hz, power_w, temperature_c, mask in _THERMAL:
        energy_j += power_w
        samples.append(
            GpuSample(
                index=0,
                util_frac=0.97,
                memory_used_bytes=41_000_000_000,
                sm_clock_hz=sm_clock_hz,
                memory_clock_hz=2619e6,
                power_w=power_w,
                energy_j=energy_j,
                temperature_c=temperature_c,
                throttle_reasons=decode_reasons(mask),
                foreign_processes=foreign_processes,
            )
        )
    return samples


class FakeReader:
    """A machine with one GPU that shows `samples` one after the other, then the last for ever."""

    problem: str | None = None
    driver_version: str | None = "580.95.05"

    def __init__(self, samples: Iterable[GpuSample], *, gpu: GpuInfo = H100) -> None:
        recorded = list(samples)
        self._gpu = gpu
        self._left = itertools.chain(recorded, itertools.repeat(recorded[-1]))
        self._latest = recorded[0]
        self.own_pids: frozenset[int] = frozenset()
        self.closed = False

    def gpus(self) -> tuple[GpuInfo, ...]:
        return (self._gpu,)

    def sample(self, own_pids: frozenset[int]) -> tuple[GpuSample, ...]:
        self.own_pids = own_pids
        self._latest = next(self._left)
        return (self._latest,)

    def energy_j(self) -> float | None:
        return self._latest.energy_j

    def close(self) -> None:
        self.closed = True
