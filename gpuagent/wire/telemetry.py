"""What the agent samples beside the work, once a second."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gpuagent.wire.base import WireModel
from gpuagent.wire.units import Bytes, Celsius, Fraction, Hertz, Joules, Name, Seconds, Watts


class GpuSample(WireModel):
    """One NVML reading of one GPU; a field the device does not report is None.

    energy_j: counter since driver load. foreign_processes: compute processes that are not ours.
    """

    index: Annotated[int, Field(ge=0)]
    util_frac: Fraction | None = None
    memory_used_bytes: Bytes | None = None
    sm_clock_hz: Hertz | None = None
    memory_clock_hz: Hertz | None = None
    power_w: Watts | None = None
    energy_j: Joules | None = None
    temperature_c: Celsius | None = None
    throttle_reasons: tuple[Name, ...] = ()
    foreign_processes: Annotated[int, Field(ge=0)] | None = None


class HostSample(WireModel):
    """One reading of the host and of the trial's process tree. `at_s` is Unix time."""

    at_s: Seconds
    cpu_frac: Fraction | None = None
    load_1min: Annotated[float, Field(ge=0)] | None = None
    memory_available_bytes: Bytes | None = None
    child_rss_bytes: Bytes | None = None
    child_cpu_cores: Annotated[float, Field(ge=0)] | None = None
    gpus: tuple[GpuSample, ...] = ()
