"""The one event model that every parser fills and every analysis reads: columns, not objects.

Times are integer nanoseconds on the file's own clock. Names are interned in `Trace.names`; columns
hold indices. A value that the file does not hold is -1 in a column and None in a field.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
I16 = NDArray[np.int16]
I8 = NDArray[np.int8]

KERNEL, MEMCPY, MEMSET, GRAPH = 0, 1, 2, 3
"""Kinds of GPU work; GRAPH is a whole graph replay recorded as one block (Nsight's graph mode)."""


@dataclass(frozen=True, slots=True)
class GpuEvents:
    """Work on a GPU, sorted by device and start.

    `device` indexes `Trace.devices`; `launch` indexes HostCalls or is -1; `copy_bytes` is -1 for
    anything but a copy with a known size. All arrays have shape [N].
    """

    start: I64
    end: I64
    name: I32
    kind: I8
    device: I16
    stream: I32
    launch: I32
    copy_bytes: I64

    def __len__(self) -> int:
        return len(self.start)

    def pick(self, index: NDArray[np.intp] | slice) -> GpuEvents:
        """The events at `index`, in that order."""
        return GpuEvents(
            self.start[index],
            self.end[index],
            self.name[index],
            self.kind[index],
            self.device[index],
            self.stream[index],
            self.launch[index],
            self.copy_bytes[index],
        )


@dataclass(frozen=True, slots=True)
class HostCalls:
    """Runtime and driver API calls, sorted by start. `thread` numbers (process, thread) pairs."""

    start: I64
    end: I64
    name: I32
    thread: I16

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True)
class CpuOps:
    """Framework operators on the host, in file order; empty where the file has none."""

    start: I64
    end: I64
    name: I32
    thread: I16

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True)
class Annotation:
    """A named range set by the program (ProfilerStep, NVTX, an engine's step label)."""

    name: str
    start_ns: int
    end_ns: int
    on_gpu: bool


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """A GPU as the file describes it; None where it does not."""

    id: int
    name: str | None = None
    sm_count: int | None = None
    memory_bytes: int | None = None
    compute_capability: tuple[int, int] | None = None
    memory_bandwidth_bytes_s: float | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What the reader noticed about the file itself."""

    events: int = 0
    malformed: int = 0
    counter_ranges: int = 0
    python_events: int = 0
    cpu_ops_dropped: int = 0
    gpu_annotations: int = 0
    annotations_dropped: int = 0
    names_dropped: int = 0
    open_ended: bool = False
    graph_mode_blocks: int = 0
    graph_mode: str | None = None
    profiler_overhead: tuple[tuple[int, int], ...] = ()
    module_loading: tuple[tuple[int, int], ...] = ()
    rank: int | None = None
    world_size: int | None = None
    versions: dict[str, str] = field(default_factory=dict)
    time_unit: str = "ns"


@dataclass(frozen=True, slots=True)
class Trace:
    """A timeline: GPU work, host calls, operators and ranges of one file."""

    format: str
    names: tuple[str, ...]
    gpu: GpuEvents
    host: HostCalls
    ops: CpuOps
    annotations: tuple[Annotation, ...]
    devices: tuple[DeviceInfo, ...]
    facts: Facts


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """One line of a summary table; times in seconds, `size_bytes` where the table is about size."""

    name: str
    count: int
    total_s: float | None = None
    mean_s: float | None = None
    median_s: float | None = None
    min_s: float | None = None
    max_s: float | None = None
    size_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """Totals without a timeline (`nsys stats`): shares and means exist, idle and overlap do not."""

    format: str
    kernels: tuple[SummaryRow, ...] = ()
    api: tuple[SummaryRow, ...] = ()
    copies: tuple[SummaryRow, ...] = ()
    copy_sizes: tuple[SummaryRow, ...] = ()
    ranges: tuple[SummaryRow, ...] = ()
    skipped: tuple[str, ...] = ()
