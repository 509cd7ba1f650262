"""Why the GPU was idle: every nanosecond of every gap goes to exactly one cause.

A gap ends with the event that was launched by some host thread; what that thread did between the
end of the previous work and that launch is the cause. Order: profiler overhead; the host still
waited when the GPU ran dry (sync); allocation and module loading; blocking copies (transfer); a
step border; other host work (host_launch). If the launch came before the gap, the GPU was slow to
start queued work: a short kernel_gap, a wait for communication, or unattributed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpuagent.traces import thresholds as limit
from gpuagent.traces.busy import COMM, DeviceTime
from gpuagent.traces.host import COPYING, GROUPS, HostWork, spans_of
from gpuagent.traces.intervals import Spans, contains, overlap_each, rows_by_value, union
from gpuagent.traces.model import Trace

CAUSES = (
    "sync",
    "host_launch",
    "step_border",
    "allocation",
    "transfer",
    "communication",
    "kernel_gap",
    "profiler",
    "unattributed",
)
CAUSE_LABELS: dict[str, str] = {
    "sync": "host waits for the GPU",
    "host_launch": "host launches late",
    "step_border": "between steps",
    "allocation": "allocation and code loading",
    "transfer": "host copies",
    "communication": "waits for peers",
    "kernel_gap": "between queued kernels",
    "profiler": "profiler overhead",
    "unattributed": "no recorded cause",
}
I64 = NDArray[np.int64]
_CHUNK = 65_536
_COPY_GROUPS = [GROUPS.index(name) for name in COPYING]


def idle_causes(
    trace: Trace,
    device: DeviceTime,
    codes: NDArray[np.int8],
    host: HostWork,
    step_starts: I64,
) -> dict[str, int]:
    """Nanoseconds of idle time per cause; the sum is exactly `device.idle_ns`."""
    sums = dict.fromkeys(CAUSES, 0)
    gap_start, gap_end = device.gaps
    for low in range(0, len(gap_start), _CHUNK):
        part = slice(low, low + _CHUNK)
        _add_causes(trace, device, codes, host, step_starts, gap_start[part], gap_end[part], sums)
    return sums


def _add_causes(
    trace: Trace,
    device: DeviceTime,
    codes: NDArray[np.int8],
    host: HostWork,
    step_starts: I64,
    gap_start: I64,
    gap_end: I64,
    sums: dict[str, int],
) -> None:
    """Attribute some gaps; in chunks, so that the temporary arrays stay small."""
    gpu, calls = trace.gpu, trace.host
    following = np.searchsorted(gpu.start[device.rows], gap_end, side="left") + device.rows.start
    launch = gpu.launch[following]
    linked = launch >= 0
    safe = np.maximum(launch, 0)
    if len(calls):
        call_start = np.where(linked, calls.start[safe], gap_start)
        call_end = np.where(linked, calls.end[safe], gap_start)
        thread = np.where(linked, calls.thread[safe], -1)
    else:
        call_start = call_end = gap_start
        thread = np.full(len(gap_start), -1)
    late = linked & (call_start > gap_start)
    until = np.where(late, np.minimum(call_start, gap_end), gap_start)
    left = gap_end - gap_start

    left = _take_profiler(trace, sums, gap_start, gap_end, left)
    host_part = np.minimum(until - gap_start, left)
    spent = _host_parts(host, thread, gap_start, until, host_part, late)
    for cause in ("sync", "allocation", "transfer"):
        sums[cause] += int(spent[cause].sum())
    rest = host_part - spent["sync"] - spent["allocation"] - spent["transfer"]
    border = late & (
        np.searchsorted(step_starts, until, side="right")
        > np.searchsorted(step_starts, gap_start, side="right")
    )
    sums["step_border"] += int(rest[border].sum())
    sums["host_launch"] += int(rest[~border].sum())

    # After the launch call began: its own cost, then the device's reaction.
    tail = left - host_part
    in_call = np.where(linked, np.clip(np.minimum(call_end, gap_end) - until, 0, None), 0)
    in_call = np.minimum(in_call, tail)
    staging = linked & np.isin(host.groups[safe], _COPY_GROUPS) if len(calls) else linked
    sums["transfer"] += int(in_call[staging].sum())
    sums["host_launch"] += int(in_call[~staging].sum())
    tail = tail - in_call
    after_host = late & (tail <= 10 * limit.DEVICE_GAP_NS)
    sums["host_launch"] += int(tail[after_host].sum())
    queued = ~after_host
    short = queued & (tail <= limit.DEVICE_GAP_NS)
    waits_for_peer = queued & ~short & (codes[following] == COMM)
    sums["kernel_gap"] += int(tail[short].sum())
    sums["communication"] += int(tail[waits_for_peer].sum())
    sums["unattributed"] += int(tail[queued & ~short & ~waits_for_peer].sum())


def _take_profiler(
    trace: Trace, sums: dict[str, int], gap_start: I64, gap_end: I64, left: I64
) -> I64:
    spans = trace.facts.profiler_overhead
    if not spans:
        return left
    table = np.array(spans, np.int64)
    taken = overlap_each(union(table[:, 0], table[:, 1]), gap_start, gap_end)
    sums["profiler"] += int(taken.sum())
    remaining: I64 = left - taken
    return remaining


def _host_parts(
    host: HostWork,
    thread: NDArray[np.int64],
    start: I64,
    until: I64,
    host_part: I64,
    late: NDArray[np.bool_],
) -> dict[str, I64]:
    """Split the host's share of each gap; parts never exceed `host_part`."""
    parts = {name: np.zeros(len(start), np.int64) for name in ("sync", "allocation", "transfer")}
    candidates = np.flatnonzero(late)
    for number, at in rows_by_value(thread[candidates]):
        rows = candidates[at]
        waits = spans_of(host.waiting, number)
        prepares = spans_of(host.preparing, number)
        begin, end, room = start[rows], until[rows], host_part[rows]
        prepared = np.minimum(overlap_each(prepares, begin, end), room)
        room = room - prepared
        copied = np.minimum(overlap_each(spans_of(host.copying, number), begin, end), room)
        room = room - copied
        parts["allocation"][rows] = prepared
        parts["transfer"][rows] = copied
        parts["sync"][rows] = np.minimum(_sync_part(waits, begin, end), room)
    return parts


def _sync_part(waits: Spans, begin: I64, end: I64) -> I64:
    """Waiting inside each gap; where the host waited as the gap opened, its restart counts too."""
    inside = overlap_each(waits, begin, end)
    if not len(waits[0]):
        return inside
    drained = contains(waits, begin)
    at = np.clip(np.searchsorted(waits[0], begin, side="right") - 1, 0, None)
    restart = np.clip(end - waits[1][at], 0, limit.SYNC_TAIL_NS)
    return inside + np.where(drained, restart, 0)


def unrecorded_wait_ns(device: DeviceTime, host: HostWork) -> int:
    """Idle time in which a host thread waits on the device for over a millisecond.

    A wait ends when the device is done, so a long wait on a device without recorded work means
    that work is missing from the file (or belongs to another device or process).
    """
    start, end = device.gaps
    most = np.zeros(len(start), np.int64)
    for spans in host.waiting.values():
        np.maximum(most, overlap_each(spans, start, end), out=most)
    return int(most[most > limit.UNRECORDED_WAIT_NS].sum())
