"""Runs of small neighbouring kernels that repeat: what a compiler could merge, most saved first.

A run is a maximal chain of light kernels (elementwise, norm, copy, reduction, rope, quantise) on
one stream, between heavy ones. Merging n kernels saves at least n-1 launches and gaps; how much
memory traffic it saves depends on shapes that a trace rarely holds: that is only an upper bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuagent.traces.busy import CLASS_INDEX
from gpuagent.traces.kernel_names import LIGHT_CLASSES, short_name
from gpuagent.traces.model import KERNEL, Trace
from gpuagent.traces.thresholds import DEVICE_GAP_NS, FUSION_SAVED_PER_KERNEL_S

_LIGHT = [CLASS_INDEX[name] for name in sorted(LIGHT_CLASSES)]
_LONGEST, _REPEATS, _SHOWN = 64, 3, 8


@dataclass(frozen=True, slots=True)
class FusionCandidate:
    """One repeated run. `saved_s` counts launches and gaps; `saved_most_s` memory traffic too."""

    kernels: tuple[str, ...]
    repeats: int
    time_s: float
    saved_s: float
    saved_most_s: float
    in_graph: bool


def fusion_candidates(
    trace: Trace, codes: NDArray[np.int8], graph_rows: NDArray[np.bool_]
) -> tuple[FusionCandidate, ...]:
    """Repeated runs of at least two light kernels, most time saved first.

    `graph_rows` tells which GPU events were replayed from a graph: their gaps are already gone.
    """
    gpu = trace.gpu
    rows = np.flatnonzero(gpu.kind == KERNEL)
    if len(rows) < 2:
        return ()
    order = rows[np.lexsort((gpu.stream[rows], gpu.device[rows]))]
    light = np.isin(codes[order], _LIGHT)
    lane = gpu.device[order].astype(np.int64) * (1 << 32) + gpu.stream[order]
    # A run ends at a heavy kernel and at a change of stream.
    new = np.ones(len(order), bool)
    new[1:] = (light[1:] != light[:-1]) | (lane[1:] != lane[:-1])
    starts = np.flatnonzero(new)
    ends = np.append(starts[1:], len(order))
    keep = light[starts] & (ends - starts >= 2) & (ends - starts <= _LONGEST)
    found: dict[bytes, list[tuple[int, int]]] = {}
    names = np.ascontiguousarray(gpu.name[order])
    for a, b in zip(starts[keep].tolist(), ends[keep].tolist(), strict=True):
        found.setdefault(names[a:b].tobytes(), []).append((a, b))
    candidates = [
        _candidate(trace, order, runs, graph_rows)
        for runs in found.values()
        if len(runs) >= _REPEATS
    ]
    return tuple(sorted(candidates, key=lambda c: -c.saved_most_s)[:_SHOWN])


def _candidate(
    trace: Trace,
    order: NDArray[np.intp],
    runs: list[tuple[int, int]],
    graph_rows: NDArray[np.bool_],
) -> FusionCandidate:
    gpu = trace.gpu
    first = np.array([a for a, _ in runs])
    size = runs[0][1] - runs[0][0]
    members = order[first[:, None] + np.arange(size)[None, :]]  # [repeats, size]
    duration = gpu.end[members] - gpu.start[members]
    gaps = np.clip(gpu.start[members[:, 1:]] - gpu.end[members[:, :-1]], 0, DEVICE_GAP_NS)
    in_graph = bool(graph_rows[members].all())
    per_kernel = 0.0 if in_graph else FUSION_SAVED_PER_KERNEL_S * (size - 1) * len(runs)
    saved = float(gaps.sum()) * 1e-9 + per_kernel
    # At best the merged kernel costs what its longest part does: the rest was re-reading memory.
    traffic = float((duration.sum(axis=1) - duration.max(axis=1)).sum()) * 1e-9
    return FusionCandidate(
        kernels=tuple(short_name(trace.names[i], 60) for i in gpu.name[members[0]].tolist()),
        repeats=len(runs),
        time_s=float(duration.sum()) * 1e-9,
        saved_s=saved,
        saved_most_s=saved + traffic,
        in_graph=in_graph,
    )
