"""Collects columns while a file is read and turns them into a sorted Trace."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

import numpy as np

from gpuagent.traces.errors import over_limit
from gpuagent.traces.limits import Limits
from gpuagent.traces.model import (
    I32,
    I64,
    Annotation,
    CpuOps,
    DeviceInfo,
    Facts,
    GpuEvents,
    HostCalls,
    Trace,
)

LATEST_NS = 1 << 62


class Names:
    """Interns strings; long ones are cut, and past the limit all share one placeholder."""

    def __init__(self, limits: Limits) -> None:
        self._index: dict[str, int] = {}
        self._list: list[str] = []
        self._limits = limits
        self.dropped = 0

    def add(self, name: str) -> int:
        index = self._index.get(name)
        if index is not None:
            return index
        if len(name) > self._limits.name_chars:
            return self.add(name[: self._limits.name_chars - 1] + "…")
        if len(self._list) >= self._limits.names:
            self.dropped += 1
            name = "(names beyond the limit)"
            known = self._index.get(name)
            if known is not None:
                return known
        self._index[name] = len(self._list)
        self._list.append(name)
        return len(self._list) - 1

    def __call__(self, name: str) -> int:
        index = self._index.get(name)
        return self.add(name) if index is None else index

    def all(self) -> tuple[str, ...]:
        return tuple(self._list)


class Numbering:
    """Small numbers for arbitrary keys (devices, threads) in order of appearance."""

    def __init__(self, most: int = 30_000) -> None:
        self.index: dict[object, int] = {}
        self._most = most

    def __call__(self, key: object) -> int:
        number = self.index.get(key)
        if number is None:
            if len(self.index) >= self._most:
                return self._most - 1
            number = self.index[key] = len(self.index)
        return number


@dataclass(slots=True)
class Columns:
    """Append-only columns of one kind of event; one row is start, length, name, lane, key."""

    start: array[int] = field(default_factory=lambda: array("q"))
    length: array[int] = field(default_factory=lambda: array("q"))
    name: array[int] = field(default_factory=lambda: array("i"))
    lane: array[int] = field(default_factory=lambda: array("h"))
    key: array[int] = field(default_factory=lambda: array("q"))

    def __len__(self) -> int:
        return len(self.start)


def view64(column: array[int]) -> I64:
    """The column as numpy without a copy; the array must not grow while the view lives."""
    return np.frombuffer(column, dtype=np.int64) if column else np.empty(0, np.int64)


def view32(column: array[int]) -> I32:
    return np.frombuffer(column, dtype=np.int32) if column else np.empty(0, np.int32)


class TraceBuilder:
    """Parsers append to `gpu`, `host`, `ops`; `build` joins launches, sorts, and frees as it goes.

    `gpu` has the extra columns kind, stream and copy size. Keys are (process, correlation id)
    packed into 63 bits by `pack_key`; -1 means none.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.names = Names(limits)
        self.lanes = Numbering()
        self.threads = Numbering()
        self.gpu = Columns()
        self.kind = array("b")
        self.stream = array("i")
        self.copy_at = array("q")
        self.copy_size = array("q")
        self.host = Columns()
        self.ops = Columns()
        self.ops_dropped = 0
        self.annotations: list[Annotation] = []
        self.annotations_dropped = 0

    def check(self) -> None:
        """Enforce the row limits; called once per batch."""
        limits = self.limits
        limits.check_time()
        if len(self.gpu) > limits.gpu_events:
            raise over_limit(
                f"more than {limits.gpu_events:,} GPU events", f"{limits.gpu_events:,}"
            )
        if len(self.host) > limits.host_events:
            raise over_limit(
                f"more than {limits.host_events:,} host API calls", f"{limits.host_events:,}"
            )

    def annotate(self, name: str, start: int, end: int, on_gpu: bool) -> None:
        if len(self.annotations) >= self.limits.annotations:
            self.annotations_dropped += 1
            return
        self.annotations.append(Annotation(name[: self.limits.name_chars], start, end, on_gpu))

    def build(self, trace_format: str, devices: dict[object, DeviceInfo], facts: Facts) -> Trace:
        """The finished trace; the builder is empty afterwards. `devices` is keyed like `lanes`."""
        host_key = view64(self.host.key).copy()
        order = np.argsort(view64(self.host.start), kind="stable")
        host = HostCalls(
            start=view64(self.host.start)[order],
            end=_ends(self.host, order),
            name=view32(self.host.name)[order],
            thread=_lane(self.host, order),
        )
        host_key = host_key[order]
        self.host = Columns()
        gpu_order = np.lexsort((view64(self.gpu.start), _lane(self.gpu)))
        launch = _join(view64(self.gpu.key), host_key)[gpu_order]
        del host_key
        sizes = np.full(len(self.gpu), -1, np.int64)
        sizes[view64(self.copy_at)] = view64(self.copy_size)
        gpu = GpuEvents(
            start=view64(self.gpu.start)[gpu_order],
            end=_ends(self.gpu, gpu_order),
            name=view32(self.gpu.name)[gpu_order],
            kind=np.frombuffer(self.kind or array("b"), np.int8)[gpu_order],
            device=_lane(self.gpu, gpu_order),
            stream=view32(self.stream)[gpu_order],
            launch=launch,
            copy_bytes=sizes[gpu_order],
        )
        self.gpu, self.kind, self.stream = Columns(), array("b"), array("i")
        ops = CpuOps(
            start=view64(self.ops.start).copy(),
            end=_ends(self.ops),
            name=view32(self.ops.name).copy(),
            thread=_lane(self.ops).copy(),
        )
        self.ops = Columns()
        listed = tuple(devices.get(key, DeviceInfo(id=-1)) for key in self.lanes.index)
        return Trace(
            trace_format, self.names.all(), gpu, host, ops, tuple(self.annotations), listed, facts
        )


def pack_key(process: int, correlation: int) -> int:
    """One 63-bit key from a process number (24 bits) and a correlation id (39 bits); -1 if none."""
    if correlation < 0:
        return -1
    return ((process & 0xFFFFFF) << 39) | (correlation & 0x7FFFFFFFFF)


def _ends(columns: Columns, order: np.ndarray | None = None) -> I64:
    ends: I64 = view64(columns.start) + np.maximum(view64(columns.length), 0)
    return ends if order is None else ends[order]


def _lane(columns: Columns, order: np.ndarray | None = None) -> np.ndarray:
    lane = np.frombuffer(columns.lane, np.int16) if columns.lane else np.empty(0, np.int16)
    return lane if order is None else lane[order]


def _join(gpu_key: I64, host_key: I64) -> I32:
    """Row in host order of the call that launched each GPU event, -1 where the file has none.

    One launch may own hundreds of kernels (graph replay); should a key repeat on the host side
    (a runtime call and the driver call under it), the first in time wins.
    """
    launch = np.full(len(gpu_key), -1, np.int32)
    if not len(host_key) or not len(gpu_key):
        return launch
    order = np.argsort(host_key, kind="stable").astype(np.int32)
    ordered = host_key[order]
    at = np.searchsorted(ordered, gpu_key)
    at[at == len(ordered)] = 0
    found = (ordered[at] == gpu_key) & (gpu_key >= 0)
    launch[found] = order[at[found]]
    return launch
