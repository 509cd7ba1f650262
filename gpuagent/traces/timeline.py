"""A drawable cut of the trace: the busiest 50 ms, as bars per GPU stream and host thread.

Bounded in size whatever the trace: neighbouring bars of one class are merged until they fit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuagent.traces.analysis import Analysis
from gpuagent.traces.busy import CLASSES
from gpuagent.traces.host import GROUPS
from gpuagent.traces.intervals import covered_before
from gpuagent.traces.kernel_names import short_name

WINDOW_NS = 50_000_000
MOST_BARS = 4000
_THREADS = 4
_MOST_EVENTS = 60_000
Event = tuple[str, str, str, int, int]
_SHOWN_GROUPS = ("sync", "launch", "graph_launch", "memcpy", "memcpy_sync", "alloc", "module")


def busiest_window(found: Analysis) -> dict[str, Any] | None:
    """Start, length and bars of the 50 ms in which the GPUs work most; None without GPU work.

    A bar is lane, class, name, start_ns and end_ns from the cut's start, and how many events it
    stands for; `side` is gpu or host.
    """
    if not found.devices:
        return None
    begin = _start(found)
    end = min(begin + WINDOW_NS, max(device.end_ns for device in found.devices))
    bars: list[dict[str, Any]] = []
    left_out = 0
    for side, events in (("gpu", _gpu_events), ("host", _host_events)):
        rows, dropped = events(found, begin, end)
        merged = _merge(rows, begin, end)
        left_out += dropped + max(0, len(merged) - MOST_BARS)
        bars.extend({**bar, "side": side} for bar in merged[:MOST_BARS])
    origin = min(device.start_ns for device in found.devices)
    return {
        "start_s": (begin - origin) * 1e-9,
        "length_s": (end - begin) * 1e-9,
        "bars": bars,
        "left_out": left_out,
    }


def _start(found: Analysis) -> int:
    """The start that covers most busy time; candidates are the starts of GPU events."""
    best, most = min(device.start_ns for device in found.devices), -1
    for device in found.devices:
        starts = found.trace.gpu.start[device.rows]
        candidates = starts[:: max(1, len(starts) // 20_000)]
        spent = covered_before(device.busy, candidates + WINDOW_NS) - covered_before(
            device.busy, candidates
        )
        at = int(np.argmax(spent))
        if int(spent[at]) > most:
            best, most = int(candidates[at]), int(spent[at])
    return best


def _gpu_events(found: Analysis, begin: int, end: int) -> tuple[list[Event], int]:
    gpu, names = found.trace.gpu, found.trace.names
    rows = np.flatnonzero((gpu.start < end) & (gpu.end > begin))
    dropped = max(0, len(rows) - _MOST_EVENTS)
    rows = rows[:_MOST_EVENTS]
    order = rows[np.lexsort((gpu.start[rows], gpu.stream[rows], gpu.device[rows]))]
    ids = [device.id for device in found.trace.devices]
    events = [
        (
            f"GPU {ids[int(gpu.device[row])]} stream {int(gpu.stream[row])}",
            CLASSES[int(found.codes[row])],
            names[int(gpu.name[row])],
            int(gpu.start[row]),
            int(gpu.end[row]),
        )
        for row in order.tolist()
    ]
    return events, dropped


def _host_events(found: Analysis, begin: int, end: int) -> tuple[list[Event], int]:
    host, groups, names = found.trace.host, found.host.groups, found.trace.names
    shown = np.isin(groups, [GROUPS.index(name) for name in _SHOWN_GROUPS])
    rows = np.flatnonzero((host.start < end) & (host.end > begin) & shown)
    numbers, counts = np.unique(host.thread[rows], return_counts=True)
    busiest = numbers[np.argsort(-counts, kind="stable")][:_THREADS].tolist()
    rows = rows[np.isin(host.thread[rows], busiest)]
    dropped = max(0, len(rows) - _MOST_EVENTS)
    rows = rows[:_MOST_EVENTS]
    order = rows[np.lexsort((host.start[rows], host.thread[rows]))]
    events = [
        (
            f"Host thread {busiest.index(int(host.thread[row])) + 1}",
            GROUPS[int(groups[row])],
            names[int(host.name[row])],
            int(host.start[row]),
            int(host.end[row]),
        )
        for row in order.tolist()
    ]
    return events, dropped


def _merge(events: list[Event], begin: int, end: int) -> list[dict[str, Any]]:
    """Bars inside [begin, end); neighbours of one class merge where there are too many."""
    merge_ns = 0 if len(events) <= MOST_BARS else max(1_000, WINDOW_NS // MOST_BARS)
    bars: list[dict[str, Any]] = []
    for lane, label, name, start, stop in events:
        left, right = max(start, begin) - begin, min(stop, end) - begin
        last = bars[-1] if bars else None
        same = last is not None and last["lane"] == lane and last["class"] == label
        if last is not None and same and left - last["end_ns"] < merge_ns:
            last["end_ns"] = max(last["end_ns"], right)
            last["count"] += 1
            continue
        bars.append(
            {
                "lane": lane,
                "class": label,
                "name": short_name(name, 60),
                "start_ns": left,
                "end_ns": right,
                "count": 1,
            }
        )
    return bars
