"""What the host did: API totals, waiting per thread, launch cost, allocations, graph replays.

Waiting is the longest thread's share of the window, never a sum over threads (sums reach 271 %).
A launch call that blocks because the queue is full is no overhead: the GPU had work.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuagent.traces import thresholds as limit
from gpuagent.traces.api_names import clean, group_of
from gpuagent.traces.busy import DeviceTime
from gpuagent.traces.intervals import EMPTY, Spans, clip, contains, length, rows_by_value, union
from gpuagent.traces.model import KERNEL, MEMCPY, Trace

WAITING = ("sync", "memcpy_sync")
COPYING = ("memcpy", "memcpy_sync")
PREPARING = ("alloc", "module")
GROUPS = (
    "other",
    "sync",
    "launch",
    "graph_launch",
    "memcpy",
    "memcpy_sync",
    "memset",
    "alloc",
    "module",
    "capture",
)
_GROUP_INDEX = {name: index for index, name in enumerate(GROUPS)}


@dataclass(frozen=True, slots=True)
class ApiRow:
    """One API over all threads; `time_s` is a sum of call times, not wall time."""

    name: str
    group: str
    count: int
    time_s: float
    max_s: float


@dataclass(frozen=True, slots=True)
class Launches:
    """Launch calls. `waiting_s` is time blocked behind a full queue while the GPU was busy."""

    calls: int
    graph_calls: int
    time_s: float
    mean_s: float
    median_s: float
    waiting_calls: int
    waiting_s: float
    kernels: int
    kernels_in_graphs: int
    kernels_linked: int
    events_linked_frac: float
    max_kernels_per_launch: int
    replays_recorded: int
    median_kernels_per_replay: int


@dataclass(frozen=True, slots=True)
class HostWork:
    """Host figures; `start_ns` and `end_ns` span the windows of all devices."""

    start_ns: int
    end_ns: int
    api: tuple[ApiRow, ...]
    groups: NDArray[np.int8]
    waiting: dict[int, Spans]
    copying: dict[int, Spans]
    preparing: dict[int, Spans]
    sync_max_s: float
    sync_calls: int
    sync_threads: int
    alloc_calls: int
    alloc_steady_calls: int
    alloc_s: float
    alloc_steady_s: float
    initialisation_s: float
    captures: int
    launches: Launches | None

    @property
    def window_s(self) -> float:
        return (self.end_ns - self.start_ns) * 1e-9


def host_work(trace: Trace, devices: tuple[DeviceTime, ...]) -> HostWork:
    """Everything about host calls inside the windows of the devices."""
    host = trace.host
    if devices:
        start, end = min(d.start_ns for d in devices), max(d.end_ns for d in devices)
    else:
        start = int(host.start.min()) if len(host) else 0
        end = int(host.end.max()) if len(host) else 0
    groups = _groups(trace)
    preparing = _per_thread(trace, _in(groups, PREPARING))
    blocking = _per_thread(trace, _in(groups, WAITING))
    sync = [length(clip(spans, start, end)) for spans in blocking.values()]
    # For idle causes a copy to the host is a wait for results, any other copy is a transfer.
    to_host = _in(groups, COPYING) & _copies_to_host(trace)
    waiting = _per_thread(trace, _in(groups, ("sync",)) | to_host)
    copying = _per_thread(trace, _in(groups, COPYING) & ~to_host)
    is_alloc = groups == _GROUP_INDEX["alloc"]
    steady = is_alloc & ~_first_calls(trace, is_alloc) & (host.start >= start)
    inside = is_alloc & (host.end > start) & (host.start < end)
    prepared = union(*_all_spans(preparing))
    if trace.facts.module_loading:
        loading = np.array(trace.facts.module_loading, np.int64)
        prepared = union(
            np.concatenate((prepared[0], loading[:, 0])),
            np.concatenate((prepared[1], loading[:, 1])),
        )
    return HostWork(
        start_ns=start,
        end_ns=end,
        api=_api_rows(trace, groups),
        groups=groups,
        waiting=waiting,
        copying=copying,
        preparing=preparing,
        sync_max_s=max(sync, default=0) * 1e-9,
        sync_calls=int(_in(groups, WAITING).sum()),
        sync_threads=sum(1 for value in sync if value),
        alloc_calls=int(inside.sum()),
        alloc_steady_calls=int(steady.sum()),
        alloc_s=_union_s(trace, inside, start, end),
        alloc_steady_s=_union_s(trace, steady, start, end),
        initialisation_s=length(clip(prepared, start, end)) * 1e-9,
        captures=int((groups == _GROUP_INDEX["capture"]).sum()),
        launches=_launches(trace, groups, devices),
    )


def spans_of(spans: dict[int, Spans], thread: int) -> Spans:
    """The spans of one thread; empty where it has none."""
    return spans.get(thread, EMPTY)


def _groups(trace: Trace) -> NDArray[np.int8]:
    host = trace.host
    of_name = np.zeros(max(len(trace.names), 1), np.int8)
    for name in np.unique(host.name):
        of_name[name] = _GROUP_INDEX[group_of(trace.names[name])]
    result: NDArray[np.int8] = of_name[host.name] if len(host) else np.empty(0, np.int8)
    return result


def _in(groups: NDArray[np.int8], wanted: tuple[str, ...]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = np.isin(groups, [_GROUP_INDEX[name] for name in wanted])
    return found


def _copies_to_host(trace: Trace) -> NDArray[np.bool_]:
    """Host calls whose GPU work is a copy from device to host."""
    gpu = trace.gpu
    found = np.zeros(len(trace.host), bool)
    rows = np.flatnonzero((gpu.kind == MEMCPY) & (gpu.launch >= 0))
    names = [n for n in np.unique(gpu.name[rows]).tolist() if "DtoH" in trace.names[n]]
    found[gpu.launch[rows[np.isin(gpu.name[rows], names)]]] = True
    return found


def _per_thread(trace: Trace, chosen: NDArray[np.bool_]) -> dict[int, Spans]:
    rows = np.flatnonzero(chosen)
    host = trace.host
    found: dict[int, Spans] = {}
    for thread, at in rows_by_value(host.thread[rows]):
        mine = rows[at]
        found[thread] = union(host.start[mine], host.end[mine])
    return found


def _all_spans(per_thread: dict[int, Spans]) -> Spans:
    if not per_thread:
        return EMPTY
    parts = list(per_thread.values())
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])


def _union_s(trace: Trace, rows: NDArray[np.bool_], start: int, end: int) -> float:
    host = trace.host
    return length(clip(union(host.start[rows], host.end[rows]), start, end)) * 1e-9


def _first_calls(trace: Trace, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The first call of each name: it creates contexts and pools (about 110 ms on an A100)."""
    first = np.zeros(len(rows), bool)
    index = np.flatnonzero(rows)
    _names, at = np.unique(trace.host.name[index], return_index=True)
    first[index[at]] = True
    return first


def _api_rows(trace: Trace, groups: NDArray[np.int8]) -> tuple[ApiRow, ...]:
    host = trace.host
    duration = host.end - host.start
    rows: dict[str, ApiRow] = {}
    for name, mine in rows_by_value(host.name):
        label = clean(trace.names[name])
        time, most = float(duration[mine].sum()) * 1e-9, float(duration[mine].max()) * 1e-9
        group = GROUPS[int(groups[mine[0]])]
        known = rows.get(label)
        count = len(mine)
        if known is not None:
            count, time = count + known.count, time + known.time_s
            most = max(most, known.max_s)
        rows[label] = ApiRow(label, group, count, time, most)
    return tuple(sorted(rows.values(), key=lambda row: -row.time_s))


def _launches(
    trace: Trace, groups: NDArray[np.int8], devices: tuple[DeviceTime, ...]
) -> Launches | None:
    host, gpu = trace.host, trace.gpu
    graph = groups == _GROUP_INDEX["graph_launch"]
    rows = np.flatnonzero(graph | (groups == _GROUP_INDEX["launch"]))
    if not len(rows):
        return None
    duration = host.end[rows] - host.start[rows]
    blocked = duration > limit.QUEUE_WAIT_S * 1e9
    if devices:
        busy = union(*_joined([device.busy for device in devices]))
        blocked &= contains(busy, host.start[rows]) & contains(busy, host.end[rows])
    kernels = gpu.kind == KERNEL
    linked = gpu.launch >= 0
    by_launch = np.bincount(gpu.launch[kernels & linked], minlength=len(host))
    in_graph = by_launch[graph]
    replays = in_graph[in_graph > 0]
    return Launches(
        calls=len(rows),
        graph_calls=int(graph.sum()),
        time_s=float(duration.sum()) * 1e-9,
        mean_s=float(duration.mean()) * 1e-9,
        median_s=float(np.median(duration)) * 1e-9,
        waiting_calls=int(blocked.sum()),
        waiting_s=float(duration[blocked].sum()) * 1e-9,
        kernels=int(kernels.sum()),
        kernels_in_graphs=int(in_graph.sum()),
        kernels_linked=int((kernels & linked).sum()),
        events_linked_frac=float(linked.mean()) if len(gpu) else 0.0,
        max_kernels_per_launch=int(by_launch.max()) if len(by_launch) else 0,
        replays_recorded=len(replays),
        median_kernels_per_replay=int(np.median(replays)) if len(replays) else 0,
    )


def _joined(parts: list[Spans]) -> Spans:
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])
