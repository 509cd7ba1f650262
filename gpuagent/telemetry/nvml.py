"""Reads NVIDIA GPUs through NVML. Every field that a device does not report is None, never 0.

Units are converted here: NVML gives milliwatts, millijoules and megahertz.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from gpuagent.wire import GpuInfo, GpuSample

log = logging.getLogger(__name__)
T = TypeVar("T")

# NVML API reference, "NvmlClocksEventReasons". Idle and user settings are not slow-downs, but
# they are kept: a clock locked by the user explains a slow result.
THROTTLE_BITS: dict[int, str] = {
    0x1: "gpu_idle",
    0x2: "applications_clocks",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
}


def decode_reasons(mask: int) -> tuple[str, ...]:
    """Names of the bits set in an event-reason mask; unknown bits by their value."""
    known = tuple(name for bit, name in THROTTLE_BITS.items() if mask & bit)
    unknown = mask & ~sum(THROTTLE_BITS)
    return (*known, f"bit_{unknown:#x}") if unknown else known


def open_reader() -> NvmlReader | NoGpus:
    """A reader of this machine's GPUs, or one that says why there are none."""
    try:
        import pynvml
    except ImportError:
        return NoGpus("the package nvidia-ml-py is not installed")
    try:
        pynvml.nvmlInit()
        return NvmlReader(pynvml)
    except pynvml.NVMLError as error:
        return NoGpus(f"NVML: {error}")


class NoGpus:
    """A machine whose GPUs, if any, cannot be read."""

    driver_version: str | None = None

    def __init__(self, problem: str) -> None:
        self.problem: str | None = problem

    def gpus(self) -> tuple[GpuInfo, ...]:
        return ()

    def sample(self, own_pids: frozenset[int]) -> tuple[GpuSample, ...]:
        return ()

    def energy_j(self) -> float | None:
        return None

    def close(self) -> None:
        return


class NvmlReader:
    """NVML after a successful init. `nvml` is the pynvml module, or a stand-in in tests."""

    problem: str | None = None

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        visible = _visible_indices(os.environ.get("CUDA_VISIBLE_DEVICES"))
        count = int(nvml.nvmlDeviceGetCount())
        self._handles: list[tuple[int, Any]] = []
        for index in range(count):
            if visible is not None and index not in visible:
                continue
            handle = self._maybe(nvml.nvmlDeviceGetHandleByIndex, index)
            if handle is not None:
                self._handles.append((index, handle))
        version = self._maybe(nvml.nvmlSystemGetDriverVersion)
        self.driver_version: str | None = None if version is None else _text(version)

    def gpus(self) -> tuple[GpuInfo, ...]:
        return tuple(self._info(index, handle) for index, handle in self._handles)

    def sample(self, own_pids: frozenset[int]) -> tuple[GpuSample, ...]:
        return tuple(self._sample(index, handle, own_pids) for index, handle in self._handles)

    def energy_j(self) -> float | None:
        total_mj = 0.0
        for _, handle in self._handles:
            energy_mj = self._maybe(self._nvml.nvmlDeviceGetTotalEnergyConsumption, handle)
            if energy_mj is None:
                return None
            total_mj += energy_mj
        return total_mj / 1000 if self._handles else None

    def close(self) -> None:
        self._maybe(self._nvml.nvmlShutdown)

    def _info(self, index: int, handle: Any) -> GpuInfo:
        nvml = self._nvml
        memory = self._maybe(nvml.nvmlDeviceGetMemoryInfo, handle)
        capability = self._maybe(nvml.nvmlDeviceGetCudaComputeCapability, handle)
        limit_mw = self._maybe(nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
        mig = self._maybe(nvml.nvmlDeviceGetMigMode, handle)
        return GpuInfo(
            index=index,
            uuid=_text(self._maybe(nvml.nvmlDeviceGetUUID, handle) or f"index-{index}"),
            name=_text(self._maybe(nvml.nvmlDeviceGetName, handle) or "unknown"),
            memory_bytes=None if memory is None else int(memory.total),
            compute_capability=None if capability is None else f"{capability[0]}.{capability[1]}",
            power_limit_w=None if limit_mw is None else limit_mw / 1000,
            mig=bool(mig and mig[0]),
        )

    def _sample(self, index: int, handle: Any, own_pids: frozenset[int]) -> GpuSample:
        nvml = self._nvml
        use = self._maybe(nvml.nvmlDeviceGetUtilizationRates, handle)
        memory = self._maybe(nvml.nvmlDeviceGetMemoryInfo, handle)
        sm_mhz = self._maybe(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM)
        memory_mhz = self._maybe(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM)
        power_mw = self._maybe(nvml.nvmlDeviceGetPowerUsage, handle)
        energy_mj = self._maybe(nvml.nvmlDeviceGetTotalEnergyConsumption, handle)
        celsius = self._maybe(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)
        mask = self._maybe(self._reasons_call(), handle)
        running = self._maybe(nvml.nvmlDeviceGetComputeRunningProcesses, handle)
        return GpuSample(
            index=index,
            util_frac=None if use is None else min(1.0, use.gpu / 100),
            memory_used_bytes=None if memory is None else int(memory.used),
            sm_clock_hz=None if sm_mhz is None else sm_mhz * 1e6,
            memory_clock_hz=None if memory_mhz is None else memory_mhz * 1e6,
            power_w=None if power_mw is None else power_mw / 1000,
            energy_j=None if energy_mj is None else energy_mj / 1000,
            temperature_c=celsius,
            throttle_reasons=() if mask is None else decode_reasons(int(mask)),
            foreign_processes=None if running is None else count_foreign(running, own_pids),
        )

    def _reasons_call(self) -> Callable[..., Any]:
        # Renamed in driver 535; older bindings only have the old name.
        name = "nvmlDeviceGetCurrentClocksEventReasons"
        if not hasattr(self._nvml, name):
            name = "nvmlDeviceGetCurrentClocksThrottleReasons"
        call: Callable[..., Any] = getattr(self._nvml, name)
        return call

    def _maybe(self, call: Callable[..., T], *arguments: Any) -> T | None:
        try:
            return call(*arguments)
        except self._nvml.NVMLError as error:
            # NotSupported is normal for a field; a lost device shows as every field None.
            log.debug("%s: %s", getattr(call, "__name__", call), error)
            return None


def count_foreign(running: Sequence[Any], own_pids: frozenset[int]) -> int | None:
    """Compute processes that are not ours, or None where NVML's pids are not of this namespace.

    Inside a container NVML reports the host's process ids; one that does not exist here shows it.
    """
    pids = {int(process.pid) for process in running}
    if any(not Path(f"/proc/{pid}").exists() for pid in pids) and Path("/proc/self").exists():
        return None
    return len(pids - own_pids)


def _visible_indices(value: str | None) -> frozenset[int] | None:
    """Indices in CUDA_VISIBLE_DEVICES, or None for all; UUID entries are not resolved here."""
    if value is None:
        return None
    parts = [part.strip() for part in value.split(",") if part.strip()]
    if not all(part.isdigit() for part in parts):
        return None
    return frozenset(int(part) for part in parts)


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
