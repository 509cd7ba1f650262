"""Exact busy, idle, overlap and exposed time per device: the oracle every other figure rests on.

Window: first to last GPU event of the device (kernel, copy, set, graph block). Nothing is trimmed.
Overlaps on one stream are legal (programmatic launch, clock noise), so everything is a union.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuagent.traces.intervals import (
    Spans,
    complement,
    difference_length,
    length,
    overlap_each,
    union,
)
from gpuagent.traces.kernel_names import CLASS_LABELS, kernel_of
from gpuagent.traces.model import GRAPH, KERNEL, MEMCPY, MEMSET, DeviceInfo, Trace

CLASSES: tuple[str, ...] = tuple(CLASS_LABELS)
CLASS_INDEX: dict[str, int] = {name: index for index, name in enumerate(CLASSES)}
COMM = CLASS_INDEX["comm"]

GAP_EDGES_NS = (1_000, 10_000, 100_000, 1_000_000)


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """Times of one device in nanoseconds. `rows` selects its events in the trace's GPU columns."""

    info: DeviceInfo
    rows: slice
    start_ns: int
    end_ns: int
    kernels: int
    events: int
    busy: Spans
    busy_ns: int
    kernel_ns: int
    compute_ns: int
    comm_ns: int
    exposed_comm_ns: int
    memcpy_ns: int
    exposed_memcpy_ns: int
    memset_ns: int
    gap_counts: tuple[int, ...]
    largest_gap_ns: int
    gaps: Spans
    streams: int
    same_stream_overlaps: int

    @property
    def window_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def idle_ns(self) -> int:
        return self.window_ns - self.busy_ns


def class_codes(trace: Trace) -> NDArray[np.int8]:
    """Class index of every GPU event, shape [N]; each distinct name is classified once."""
    gpu = trace.gpu
    codes = np.full(max(len(trace.names), 1), CLASS_INDEX["other"], np.int8)
    of_kernels = gpu.name[gpu.kind == KERNEL]
    for name in np.unique(of_kernels):
        codes[name] = CLASS_INDEX[kernel_of(trace.names[name]).kernel_class]
    result = codes[gpu.name] if len(gpu) else np.empty(0, np.int8)
    result[gpu.kind == MEMCPY] = CLASS_INDEX["memcpy"]
    result[gpu.kind == MEMSET] = CLASS_INDEX["memset"]
    result[gpu.kind == GRAPH] = CLASS_INDEX["graph"]
    return result


def device_times(trace: Trace, codes: NDArray[np.int8]) -> tuple[DeviceTime, ...]:
    """Figures of every device that did something, ordered by device id."""
    gpu = trace.gpu
    if not len(gpu):
        return ()
    borders = np.flatnonzero(np.diff(gpu.device)) + 1
    starts = [0, *borders.tolist()]
    ends = [*borders.tolist(), len(gpu)]
    found = [_device(trace, codes, slice(a, b)) for a, b in zip(starts, ends, strict=True) if b > a]
    return tuple(sorted(found, key=lambda device: device.info.id))


def _device(trace: Trace, codes: NDArray[np.int8], rows: slice) -> DeviceTime:
    gpu = trace.gpu
    start, end, kind = gpu.start[rows], gpu.end[rows], gpu.kind[rows]
    code, stream = codes[rows], gpu.stream[rows]
    begin, finish = int(start[0]), int(end.max())
    busy = union(start, end, is_sorted=True)
    gaps = complement(busy, begin, finish)
    gap_ns = gaps[1] - gaps[0]
    is_kernel = (kind == KERNEL) | (kind == GRAPH)
    is_comm = is_kernel & (code == COMM)
    is_compute = is_kernel & ~is_comm
    is_copy = kind == MEMCPY
    # Where two sets are the same events, one is enough: large traces are mostly kernels.
    kernels = busy if is_kernel.all() else _union_of(start, end, is_kernel)
    compute = kernels if not is_comm.any() else _union_of(start, end, is_compute)
    comm = _union_of(start, end, is_comm)
    copies = _union_of(start, end, is_copy)
    return DeviceTime(
        info=trace.devices[int(gpu.device[rows.start])],
        rows=rows,
        start_ns=begin,
        end_ns=finish,
        kernels=int(is_kernel.sum()),
        events=len(start),
        busy=busy,
        busy_ns=length(busy),
        kernel_ns=length(kernels),
        compute_ns=length(compute),
        comm_ns=length(comm),
        exposed_comm_ns=difference_length(comm, compute),
        memcpy_ns=length(copies),
        exposed_memcpy_ns=difference_length(copies, kernels),
        memset_ns=length(_union_of(start, end, kind == MEMSET)),
        gap_counts=_gap_counts(gap_ns),
        largest_gap_ns=int(gap_ns.max()) if len(gap_ns) else 0,
        gaps=gaps,
        streams=len(np.unique(stream)),
        same_stream_overlaps=_overlaps(start, end, stream),
    )


def _union_of(start: NDArray[np.int64], end: NDArray[np.int64], chosen: NDArray[np.bool_]) -> Spans:
    return union(start[chosen], end[chosen], is_sorted=True)


def _gap_counts(gap_ns: NDArray[np.int64]) -> tuple[int, ...]:
    """Gaps below 1 µs, 10 µs, 100 µs, 1 ms, and above."""
    bins = np.searchsorted(np.array(GAP_EDGES_NS), gap_ns, side="right")
    return tuple(np.bincount(bins, minlength=len(GAP_EDGES_NS) + 1).tolist())


def _overlaps(start: NDArray[np.int64], end: NDArray[np.int64], stream: NDArray[np.int32]) -> int:
    """Events that start before the previous one of their stream ended."""
    order = np.argsort(stream, kind="stable")
    same = stream[order][1:] == stream[order][:-1]
    return int((same & (start[order][1:] < end[order][:-1])).sum())


def share_of(spans: Spans, start_ns: int, end_ns: int) -> int:
    """Covered time inside one window, in nanoseconds."""
    window = np.array([start_ns], np.int64), np.array([end_ns], np.int64)
    return int(overlap_each(spans, *window)[0])
