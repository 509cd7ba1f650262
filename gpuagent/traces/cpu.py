"""CPU operators of a trace: which take the time, by self time per thread; the report without a GPU.

Self time is the operator's time without the operators nested in it on the same thread, so shares
add up to the busy time of the threads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuagent.traces.intervals import length, rows_by_value, union
from gpuagent.traces.model import Trace

_TOP = 25
_CHUNK = 32_768

OP_CLASSES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("attention", ("attention", "flash", "sdpa", "scaled_dot_product")),
    ("gemm", ("mm", "linear", "matmul", "gemm", "einsum", "mkldnn_linear", "bmm", "onednn")),
    ("conv", ("conv",)),
    ("norm", ("norm",)),
    ("softmax", ("softmax",)),
    ("embedding", ("embedding",)),
    ("sampling", ("topk", "sort", "multinomial", "argmax")),
    (
        "copy_cat_index",
        (
            *("copy", "cat", "index", "clone", "contiguous", "::to", "slice", "view", "reshape"),
            *("transpose", "expand", "select", "gather", "scatter", "permute", "empty", "fill"),
            *("zeros", "arange", "unsqueeze", "as_strided", "detach", "stack", "narrow", "split"),
        ),
    ),
    ("reduce", ("sum", "mean", "max", "min", "any", "all", "cumsum")),
)


@dataclass(frozen=True, slots=True)
class OpRow:
    """One operator. `self_frac` is of the summed self time of all operators."""

    name: str
    op_class: str
    count: int
    self_s: float
    total_s: float
    self_frac: float


@dataclass(frozen=True, slots=True)
class CpuWork:
    """CPU operators over all threads; `busy_frac` is of the busiest thread's window."""

    window_s: float
    busy_frac: float
    threads: int
    ops: int
    self_s: float
    classes: tuple[tuple[str, float], ...]
    top: tuple[OpRow, ...]


def cpu_work(trace: Trace) -> CpuWork | None:
    """CPU figures of the trace; None where it holds no operators."""
    ops = trace.ops
    if not len(ops):
        return None
    duration = ops.end - ops.start
    self_ns = _self_time(ops.start, ops.end, ops.thread)
    size = len(trace.names)
    own = np.bincount(ops.name, weights=self_ns, minlength=size)
    total = np.bincount(ops.name, weights=duration, minlength=size)
    count = np.bincount(ops.name, minlength=size)
    everything = float(own.sum())
    classes: dict[str, float] = {}
    rows: list[OpRow] = []
    for index in np.argsort(-own, kind="stable").tolist():
        if not count[index]:
            break
        name = trace.names[index]
        op_class = class_of_op(name)
        share = float(own[index]) / everything if everything else 0.0
        classes[op_class] = classes.get(op_class, 0.0) + share
        if len(rows) < _TOP:
            rows.append(
                OpRow(
                    name,
                    op_class,
                    int(count[index]),
                    float(own[index]) * 1e-9,
                    float(total[index]) * 1e-9,
                    share,
                )
            )
    begin, end = int(ops.start.min()), int(ops.end.max())
    busiest = max(
        length(union(ops.start[rows], ops.end[rows])) for _, rows in rows_by_value(ops.thread)
    )
    return CpuWork(
        window_s=(end - begin) * 1e-9,
        busy_frac=busiest / (end - begin) if end > begin else 1.0,
        threads=len(np.unique(ops.thread)),
        ops=len(ops),
        self_s=everything * 1e-9,
        classes=tuple(sorted(classes.items(), key=lambda item: -item[1])),
        top=tuple(rows),
    )


def class_of_op(name: str) -> str:
    """Class of a framework operator such as `aten::addmm`, in the names of the kernel classes."""
    text = name.lower()
    for label, tokens in OP_CLASSES:
        if any(token in text for token in tokens):
            return label
    return "elementwise" if text.startswith("aten::") else "other"


def _self_time(
    start: NDArray[np.int64], end: NDArray[np.int64], thread: NDArray[np.int16]
) -> NDArray[np.int64]:
    """Time of each operator without its children, in file order, shape [N]."""
    order = np.lexsort((-end, start, thread))
    own = (end - start).copy()
    stack: list[tuple[int, int]] = []
    lane = -1
    for low in range(0, len(order), _CHUNK):
        part = order[low : low + _CHUNK]
        columns = (part, start[part], end[part], thread[part])
        for row, begin, finish, number in zip(*(c.tolist() for c in columns), strict=True):
            if number != lane:
                stack, lane = [], number
            while stack and stack[-1][1] <= begin:
                stack.pop()
            if stack:
                parent, parent_end = stack[-1]
                own[parent] -= min(finish, parent_end) - begin
            stack.append((row, finish))
    clipped: NDArray[np.int64] = np.maximum(own, 0)
    return clipped
