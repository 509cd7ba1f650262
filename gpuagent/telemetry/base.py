"""What a source of GPU facts is, so that tests can replay recorded ones."""

from __future__ import annotations

from typing import Protocol

from gpuagent.wire import GpuInfo, GpuSample


class GpuReader(Protocol):
    """`problem` says why there are no GPUs to read, or is None."""

    problem: str | None
    driver_version: str | None

    def gpus(self) -> tuple[GpuInfo, ...]:
        """The devices, as they are named for provenance."""
        ...

    def sample(self, own_pids: frozenset[int]) -> tuple[GpuSample, ...]:
        """One reading of each device. own_pids: processes that do not count as foreign."""
        ...

    def energy_j(self) -> float | None:
        """Sum of the devices' energy counters, or None where one has none."""
        ...

    def close(self) -> None: ...
