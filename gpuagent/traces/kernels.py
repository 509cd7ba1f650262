"""What the GPU does while busy: classes, top kernels, tensor cores, tiny and unfused kernels.

Shares are of summed GPU time (kernels, copies and sets, the sum over streams), because a share of
the window would mix the work with its waiting; the denominator travels with every table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuagent.traces import thresholds as limit
from gpuagent.traces.busy import CLASS_INDEX, CLASSES
from gpuagent.traces.kernel_names import GEMM_CLASSES, kernel_of, short_name
from gpuagent.traces.model import GRAPH, KERNEL, Trace

_TOP = 25
_NEIGHBOURS = 5
_MATRIX = [CLASS_INDEX[name] for name in ("gemm", "moe", "gemv")]
_AFTER_ROUTER = [CLASS_INDEX[name] for name in ("sampling", "moe")]


@dataclass(frozen=True, slots=True)
class ClassRow:
    """One kernel class; `frac` is of summed GPU time."""

    name: str
    frac: float
    time_s: float
    count: int
    mean_s: float


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One kernel name over all devices; `frac` is of summed GPU time, `cov` of its durations."""

    name: str
    short: str
    kernel_class: str
    tensor_core: str
    count: int
    time_s: float
    frac: float
    mean_s: float
    min_s: float | None
    max_s: float | None
    cov: float | None


@dataclass(frozen=True, slots=True)
class TensorCores:
    """Time of GEMM-like kernels by verdict, in seconds; matrix-vector and convolution apart."""

    yes_s: float
    no_s: float
    unknown_s: float
    gemv_s: float
    conv_yes_s: float
    conv_no_s: float
    conv_unknown_s: float

    @property
    def gemm_s(self) -> float:
        return self.yes_s + self.no_s + self.unknown_s

    @property
    def decided_yes_frac(self) -> float | None:
        """Tensor-core share of the time whose name decides; None where none does."""
        decided = self.yes_s + self.no_s
        return self.yes_s / decided if decided > limit.EPSILON_S else None


@dataclass(frozen=True, slots=True)
class Tiny:
    """Kernels shorter than 10 µs: how many, and how much of the kernel time."""

    count: int
    count_frac: float
    time_s: float
    time_frac: float
    median_s: float
    mean_s: float


@dataclass(frozen=True, slots=True)
class KernelWork:
    """Everything about kernels of one trace; `gpu_s` is the denominator of the shares."""

    gpu_s: float
    kernel_s: float
    kernels: int
    classes: tuple[ClassRow, ...]
    top: tuple[KernelRow, ...]
    tensor_cores: TensorCores
    tiny: Tiny | None
    unfused_softmax_s: float
    unfused_matrix_s: float

    def frac(self, *names: str) -> float:
        """Share of summed GPU time that these classes take together."""
        return sum(row.frac for row in self.classes if row.name in names)


def kernel_work(trace: Trace, codes: NDArray[np.int8]) -> KernelWork:
    """Kernel tables of the whole trace, all devices together."""
    gpu = trace.gpu
    duration = gpu.end - gpu.start
    total = float(duration.sum()) * 1e-9
    is_kernel = (gpu.kind == KERNEL) | (gpu.kind == GRAPH)
    kernel_ns = duration[is_kernel]
    softmax_s, matrix_s = _unfused(trace, codes, duration)
    return KernelWork(
        gpu_s=total,
        kernel_s=float(kernel_ns.sum()) * 1e-9,
        kernels=len(kernel_ns),
        classes=_class_rows(codes, duration, total),
        top=_top(trace, codes, duration, total),
        tensor_cores=_tensor_cores(trace, codes, duration),
        tiny=_tiny(kernel_ns),
        unfused_softmax_s=softmax_s,
        unfused_matrix_s=matrix_s,
    )


def _class_rows(
    codes: NDArray[np.int8], duration: NDArray[np.int64], total_s: float
) -> tuple[ClassRow, ...]:
    time = np.bincount(codes, weights=duration, minlength=len(CLASSES)) * 1e-9
    count = np.bincount(codes, minlength=len(CLASSES))
    rows = [
        ClassRow(
            CLASSES[i],
            float(time[i]) / total_s if total_s else 0.0,
            float(time[i]),
            int(count[i]),
            float(time[i] / count[i]),
        )
        for i in np.argsort(-time, kind="stable")
        if count[i]
    ]
    return tuple(rows)


def _top(
    trace: Trace, codes: NDArray[np.int8], duration: NDArray[np.int64], total_s: float
) -> tuple[KernelRow, ...]:
    gpu = trace.gpu
    size = len(trace.names)
    time = np.bincount(gpu.name, weights=duration, minlength=size)
    count = np.bincount(gpu.name, minlength=size)
    rows = []
    for index in np.argsort(-time, kind="stable")[:_TOP]:
        if not count[index]:
            continue
        mine = gpu.name == index
        values = duration[mine]
        name = trace.names[index]
        kernel_class = CLASSES[int(codes[mine][0])]
        mean = float(values.mean())
        rows.append(
            KernelRow(
                name=name,
                short=short_name(name),
                kernel_class=kernel_class,
                tensor_core=kernel_of(name).tensor_core
                if kernel_class not in ("memcpy", "memset", "graph")
                else "not_applicable",
                count=int(count[index]),
                time_s=float(time[index]) * 1e-9,
                frac=float(time[index]) * 1e-9 / total_s if total_s else 0.0,
                mean_s=mean * 1e-9,
                min_s=float(values.min()) * 1e-9,
                max_s=float(values.max()) * 1e-9,
                cov=float(values.std(ddof=1)) / mean if len(values) > 1 and mean else None,
            )
        )
    return tuple(rows)


def _tensor_cores(
    trace: Trace, codes: NDArray[np.int8], duration: NDArray[np.int64]
) -> TensorCores:
    gpu = trace.gpu
    wanted = np.isin(codes, [CLASS_INDEX[name] for name in ("gemm", "moe", "gemv", "conv")])
    time = np.bincount(gpu.name[wanted], weights=duration[wanted], minlength=len(trace.names))
    sums: dict[str, float] = {}
    for index in np.flatnonzero(time):
        kernel = kernel_of(trace.names[index])
        group = "gemm" if kernel.kernel_class in GEMM_CLASSES else kernel.kernel_class
        key = f"{group}-{kernel.tensor_core}"
        sums[key] = sums.get(key, 0.0) + float(time[index]) * 1e-9
    return tensor_cores_from(sums)


def tensor_cores_from(sums: dict[str, float]) -> TensorCores:
    """From seconds per `group-verdict`, group being gemm, conv or gemv."""
    return TensorCores(
        yes_s=sums.get("gemm-yes", 0.0),
        no_s=sums.get("gemm-no", 0.0),
        unknown_s=sums.get("gemm-unknown", 0.0) + sums.get("gemm-not_applicable", 0.0),
        gemv_s=sums.get("gemv-not_applicable", 0.0),
        conv_yes_s=sums.get("conv-yes", 0.0),
        conv_no_s=sums.get("conv-no", 0.0),
        conv_unknown_s=sums.get("conv-unknown", 0.0) + sums.get("conv-not_applicable", 0.0),
    )


def _tiny(kernel_ns: NDArray[np.int64]) -> Tiny | None:
    if not len(kernel_ns):
        return None
    short = kernel_ns < limit.TINY_KERNEL_S * 1e9
    time, total = float(kernel_ns[short].sum()), float(kernel_ns.sum())
    return Tiny(
        count=int(short.sum()),
        count_frac=float(short.mean()),
        time_s=time * 1e-9,
        time_frac=time / total if total else 0.0,
        median_s=float(np.median(kernel_ns)) * 1e-9,
        mean_s=float(kernel_ns.mean()) * 1e-9,
    )


def _unfused(
    trace: Trace, codes: NDArray[np.int8], duration: NDArray[np.int64]
) -> tuple[float, float]:
    """Seconds of softmax that sits between two GEMMs of its stream, and of those GEMMs.

    That is attention written out as matrix product, softmax, matrix product. A softmax followed
    by a top-k is a router or a sampler and does not count.
    """
    softmax = CLASS_INDEX["softmax"]
    if not (codes == softmax).any():
        return 0.0, 0.0
    gpu = trace.gpu
    order = np.lexsort((gpu.stream, gpu.device))  # stable: keeps start order inside a stream
    lane = gpu.device[order].astype(np.int64) * (1 << 32) + gpu.stream[order]
    code, time = codes[order], duration[order]
    matrix = np.isin(code, _MATRIX)
    router = np.isin(code, _AFTER_ROUTER)
    softmax_ns = 0
    around = np.zeros(len(code), bool)
    for at in np.flatnonzero(code == softmax).tolist():
        low, high = max(0, at - _NEIGHBOURS), min(len(code), at + _NEIGHBOURS + 1)
        before = [i for i in range(at - 1, low - 1, -1) if matrix[i] and lane[i] == lane[at]]
        after = [i for i in range(at + 1, high) if matrix[i] and lane[i] == lane[at]]
        if before and after and not router[at + 1 : after[0] + 1].any():
            softmax_ns += int(time[at])
            around[[before[0], after[0]]] = True
    return softmax_ns * 1e-9, float(time[around].sum()) * 1e-9
