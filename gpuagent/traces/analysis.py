"""All measurements of one timeline in one place: what verdict, findings and report read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuagent.traces.busy import DeviceTime, class_codes, device_times
from gpuagent.traces.copies import CopyRow, copy_rows
from gpuagent.traces.fusion import FusionCandidate, fusion_candidates
from gpuagent.traces.host import GROUPS, HostWork, host_work
from gpuagent.traces.idle import CAUSES, idle_causes, unrecorded_wait_ns
from gpuagent.traces.kernels import KernelWork, kernel_work
from gpuagent.traces.model import Trace
from gpuagent.traces.steps import Steps, steps_of


@dataclass(frozen=True, slots=True)
class Analysis:
    """Measurements of a trace with GPU work. Sums run over devices; `window_ns` is their sum too.

    So a fraction of `window_ns` is the time-weighted mean over the devices.
    """

    trace: Trace
    codes: NDArray[np.int8]
    devices: tuple[DeviceTime, ...]
    work: KernelWork
    host: HostWork
    causes: tuple[dict[str, int], ...]
    copies: tuple[CopyRow, ...]
    steps: Steps
    fusion: tuple[FusionCandidate, ...]
    unrecorded_wait_ns: int

    @property
    def window_ns(self) -> int:
        return sum(device.window_ns for device in self.devices)

    @property
    def busy_ns(self) -> int:
        return sum(device.busy_ns for device in self.devices)

    @property
    def idle_ns(self) -> int:
        return self.window_ns - self.busy_ns

    def frac(self, nanoseconds: float) -> float:
        """Share of the window, over all devices."""
        return nanoseconds / self.window_ns if self.window_ns else 0.0

    @property
    def busy_frac(self) -> float:
        return self.frac(self.busy_ns) if self.window_ns else 1.0

    @property
    def idle_frac(self) -> float:
        return self.frac(self.idle_ns)

    @property
    def exposed_comm_frac(self) -> float:
        return self.frac(sum(device.exposed_comm_ns for device in self.devices))

    @property
    def exposed_memcpy_frac(self) -> float:
        return self.frac(sum(device.exposed_memcpy_ns for device in self.devices))

    @property
    def exposed_transfer_frac(self) -> float:
        """Exposed copies over a link: copies inside a device are memory traffic, not transfer."""
        total = sum(row.time_s for row in self.copies)
        inside = sum(row.time_s for row in self.copies if row.direction == "DtoD")
        return self.exposed_memcpy_frac * (1 - inside / total) if total else 0.0

    @property
    def comm_ns(self) -> int:
        return sum(device.comm_ns for device in self.devices)

    @property
    def memcpy_ns(self) -> int:
        return sum(device.memcpy_ns for device in self.devices)

    def cause_frac(self, *names: str) -> float:
        """Share of the window that was idle for these causes."""
        return self.frac(sum(table[name] for table in self.causes for name in names))

    @property
    def largest_gap_frac(self) -> float:
        """Largest single gap over the window of its device."""
        return max(
            (d.largest_gap_ns / d.window_ns for d in self.devices if d.window_ns), default=0.0
        )


def measure(trace: Trace) -> Analysis:
    """Measure a trace; with no GPU events the device tables are empty."""
    codes = class_codes(trace)
    devices = device_times(trace, codes)
    host = host_work(trace, devices)
    steps = steps_of(trace)
    return Analysis(
        trace=trace,
        codes=codes,
        devices=devices,
        work=kernel_work(trace, codes),
        host=host,
        causes=tuple(idle_causes(trace, device, codes, host, steps.starts) for device in devices)
        or (dict.fromkeys(CAUSES, 0),),
        copies=copy_rows(trace),
        steps=steps,
        fusion=fusion_candidates(trace, codes, _from_graphs(trace, host)),
        unrecorded_wait_ns=sum(unrecorded_wait_ns(device, host) for device in devices),
    )


def _from_graphs(trace: Trace, host: HostWork) -> NDArray[np.bool_]:
    launch = trace.gpu.launch
    graph = host.groups == GROUPS.index("graph_launch")
    if not len(graph):
        return np.zeros(len(launch), bool)
    found: NDArray[np.bool_] = (launch >= 0) & graph[np.maximum(launch, 0)]
    return found
