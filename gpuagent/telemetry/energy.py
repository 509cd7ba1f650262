"""Energy counters: the GPU's through NVML, else the CPU package's through RAPL, else none.

Both count what the whole device used, other processes included; the validity checks say when
there were some.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from gpuagent.telemetry.base import GpuReader

_POWERCAP = Path("/sys/class/powercap")


class EnergyMeter(Protocol):
    """Cumulative energy of what computes. `reason` says why there is none."""

    reason: str | None

    def read_j(self) -> float | None: ...


class NoEnergy:
    """A device without a readable energy counter."""

    def __init__(self, reason: str) -> None:
        self.reason: str | None = reason

    def read_j(self) -> float | None:
        return None


class NvmlEnergy:
    """Millijoule counters of all visible GPUs (Volta and newer)."""

    reason: str | None = None

    def __init__(self, reader: GpuReader) -> None:
        self._reader = reader

    def read_j(self) -> float | None:
        return self._reader.energy_j()


class RaplEnergy:
    """Microjoule counters of the CPU packages; a counter that wrapped is carried on."""

    reason: str | None = None

    def __init__(self, packages: list[Path]) -> None:
        self._packages = packages
        self._last: dict[Path, int] = {}
        self._wrapped_uj: dict[Path, int] = dict.fromkeys(packages, 0)

    def read_j(self) -> float | None:
        total_uj = 0
        for package in self._packages:
            try:
                now_uj = int((package / "energy_uj").read_text())
                if now_uj < self._last.get(package, 0):
                    range_uj = int((package / "max_energy_range_uj").read_text())
                    self._wrapped_uj[package] += range_uj
            except (OSError, ValueError):
                return None
            self._last[package] = now_uj
            total_uj += now_uj + self._wrapped_uj[package]
        return total_uj / 1e6


def open_meter(reader: GpuReader, *, powercap: Path = _POWERCAP) -> EnergyMeter:
    """The best counter there is, or NoEnergy with the reason."""
    if reader.gpus():
        if reader.energy_j() is not None:
            return NvmlEnergy(reader)
        return NoEnergy("this GPU has no energy counter")
    packages = sorted(
        folder for folder in powercap.glob("intel-rapl:*") if folder.name.count(":") == 1
    )
    if not packages:
        return NoEnergy("this host has no energy counter (RAPL) and no GPU")
    meter = RaplEnergy(packages)
    if meter.read_j() is None:
        return NoEnergy("the host's energy counter (RAPL) is readable by root only")
    return meter
