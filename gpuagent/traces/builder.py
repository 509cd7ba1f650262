"""Collects columns while a file is read and turns them into a sorted Trace."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuagent.traces.errors import over_limit
from gpuagent.traces.limits import Limits
from gpuagent.traces.model import (
    I8,
    I16,
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
_CHUNK = 131_072


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


def view16(column: array[int]) -> I16:
    return np.frombuffer(column, dtype=np.int16) if column else np.empty(0, np.int16)


def view8(column: array[int]) -> I8:
    return np.frombuffer(column, dtype=np.int8) if column else np.empty(0, np.int8)


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
        """The finished trace; the builder is empty afterwards. `devices` is keyed like `lanes`.

        Each raw column is released as soon as its final form exists, and a file that is in order
        already (most are) is not copied at all.
        """
        host_order = _order(view64(self.host.start))
        host_key = _take(self.host, "key", host_order)
        gpu_order = _order(view64(self.gpu.start), view16(self.gpu.lane))
        launch = _join(_take(self.gpu, "key", gpu_order), host_key)
        del host_key
        host = HostCalls(
            end=_ends(self.host, host_order),
            start=_take(self.host, "start", host_order),
            name=_take(self.host, "name", host_order),
            thread=_take(self.host, "lane", host_order),
        )
        sizes = np.full(len(self.gpu), -1, np.int64)
        sizes[view64(self.copy_at)] = view64(self.copy_size)
        kind, stream = view8(self.kind), view32(self.stream)
        if gpu_order is not None:
            kind, stream, sizes = kind[gpu_order], stream[gpu_order], sizes[gpu_order]
        gpu = GpuEvents(
            end=_ends(self.gpu, gpu_order),
            start=_take(self.gpu, "start", gpu_order),
            name=_take(self.gpu, "name", gpu_order),
            kind=kind,
            device=_take(self.gpu, "lane", gpu_order),
            stream=stream,
            launch=launch,
            copy_bytes=sizes,
        )
        self.kind, self.stream = array("b"), array("i")
        ops = CpuOps(
            end=_ends(self.ops, None),
            start=_take(self.ops, "start", None),
            name=_take(self.ops, "name", None),
            thread=_take(self.ops, "lane", None),
        )
        listed = tuple(devices.get(key, DeviceInfo(id=-1)) for key in self.lanes.index)
        return Trace(
            trace_format, self.names.all(), gpu, host, ops, tuple(self.annotations), listed, facts
        )


def pack_key(process: int, correlation: int) -> int:
    """One 63-bit key from a process number (24 bits) and a correlation id (39 bits); -1 if none."""
    if correlation < 0:
        return -1
    return ((process & 0xFFFFFF) << 39) | (correlation & 0x7FFFFFFFFF)


_VIEWS: dict[str, Callable[[array[int]], Any]] = {
    "start": view64,
    "length": view64,
    "key": view64,
    "name": view32,
    "lane": view16,
}


def _order(start: I64, lane: I16 | None = None) -> NDArray[np.intp] | None:
    """Row order by lane and start; None where the rows are in order already."""
    if lane is None or (lane[1:] == lane[:-1]).all():
        if (start[1:] >= start[:-1]).all():
            return None
        return np.argsort(start, kind="stable")
    return np.lexsort((start, lane))


def _take(columns: Columns, name: str, order: NDArray[np.intp] | None) -> Any:
    """One column in final order; the raw one is released."""
    raw = getattr(columns, name)
    setattr(columns, name, array(raw.typecode))
    values = _VIEWS[name](raw)
    return values if order is None else values[order]


def _ends(columns: Columns, order: NDArray[np.intp] | None) -> I64:
    """Ends from starts and lengths, in final order; must run before the starts are taken."""
    length: I64 = _take(columns, "length", None)
    ends: I64 = np.maximum(length, 0)
    ends += view64(columns.start)
    return ends if order is None else ends[order]


def _join(gpu_key: I64, host_key: I64) -> I32:
    """Row in host order of the call that launched each GPU event, -1 where the file has none.

    One launch may own hundreds of kernels (graph replay); should a key repeat on the host side
    (a runtime call and the driver call under it), the first in time wins.
    """
    launch = np.full(len(gpu_key), -1, np.int32)
    if not len(host_key) or not len(gpu_key):
        return launch
    order: NDArray[Any] | None = None
    if not (host_key[1:] >= host_key[:-1]).all():
        order = np.argsort(host_key, kind="stable").astype(np.int32)
        host_key = host_key[order]
    for low in range(0, len(gpu_key), _CHUNK):
        keys = gpu_key[low : low + _CHUNK]
        at = np.searchsorted(host_key, keys)
        at[at == len(host_key)] = 0
        found = (host_key[at] == keys) & (keys >= 0)
        launch[low : low + _CHUNK][found] = at[found] if order is None else order[at[found]]
    return launch
