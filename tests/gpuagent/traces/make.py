"""Hand-made traces with known answers: a small Kineto writer, an Nsight writer, one per class."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute"
SGEMM = "ampere_sgemm_128x64_nn"
GEMV = "void gemv2T_kernel_val<int, int, float, float, float, 128>(int)"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"
SOFTMAX = "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16>(int)"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
PINNED = "Memcpy HtoD (Pinned -> Device)"
PAGEABLE = "Memcpy HtoD (Pageable -> Device)"
TO_HOST = "Memcpy DtoH (Device -> Pinned)"


class Kineto:
    """Collects events in microseconds and writes them as PyTorch does."""

    def __init__(self, gpu: str = "NVIDIA H100 80GB HBM3") -> None:
        self.events: list[dict[str, Any]] = []
        self.meta: dict[str, Any] = {
            "schemaVersion": 1,
            "deviceProperties": [
                {"id": 0, "name": gpu, "computeMajor": 9, "computeMinor": 0, "numSms": 132}
            ],
        }
        self.correlation = 0

    def event(self, cat: str, name: str, start: float, length: float, **fields: Any) -> None:
        args = {key: value for key, value in fields.items() if key not in ("pid", "tid")}
        self.events.append(
            {
                "ph": "X",
                "cat": cat,
                "name": name,
                "pid": fields.get("pid", 1),
                "tid": fields.get("tid", 1),
                "ts": start,
                "dur": length,
                "args": args,
            }
        )

    def kernel(self, name: str, start: float, length: float, **args: Any) -> None:
        self.event("kernel", name, start, length, **{"device": 0, "stream": 7, **args})

    def call(self, name: str, start: float, length: float, **args: Any) -> None:
        self.event("cuda_runtime", name, start, length, **args)

    def launched(
        self,
        name: str,
        start: float,
        length: float,
        *,
        call: float,
        call_length: float = 4.0,
        api: str = "cudaLaunchKernel",
        cat: str = "kernel",
        tid: int = 1,
        **args: Any,
    ) -> None:
        """One GPU event with the host call that caused it."""
        self.correlation += 1
        self.call(api, call, call_length, tid=tid, correlation=self.correlation)
        fields = {"device": 0, "stream": 7, "correlation": self.correlation, **args}
        self.event(cat, name, start, length, **fields)

    def step(self, number: int, start: float, length: float) -> None:
        self.event("user_annotation", f"ProfilerStep#{number}", start, length)

    def document(self) -> dict[str, Any]:
        return {**self.meta, "traceEvents": self.events}

    def write(self, path: Path, *, indent: int | None = None) -> Path:
        text = json.dumps(self.document(), indent=indent)
        if path.suffix == ".gz":
            path.write_bytes(gzip.compress(text.encode()))
        else:
            path.write_text(text, encoding="utf-8")
        return path


def nsys(path: Path, *, kernels: list[tuple[Any, ...]], **tables: Any) -> Path:
    """An Nsight export. `kernels`: start, end, device, stream, correlation, process, name."""
    database = sqlite3.connect(path)
    names: dict[str, int] = {}

    def number(text: str) -> int:
        return names.setdefault(text, len(names) + 1)

    database.execute(
        'CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, "end" INTEGER, deviceId INTEGER, '
        "streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER)"
    )
    database.executemany(
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(*row[:5], row[5] << 24, number(row[6])) for row in kernels],
    )
    database.execute(
        'CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, "end" INTEGER, '
        "globalTid INTEGER, correlationId INTEGER, nameId INTEGER)"
    )
    database.executemany(
        "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)",
        [
            (start, end, (process << 24) | tid, correlation, number(name))
            for start, end, process, tid, correlation, name in tables.get("calls", [])
        ],
    )
    database.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
    database.executemany(
        "INSERT INTO StringIds VALUES (?, ?)", [(i, text) for text, i in names.items()]
    )
    for statement in tables.get("sql", []):
        database.execute(statement)
    database.commit()
    database.close()
    return path


def _repeat(count: int, body: Callable[[Kineto, float, int], float], **gpu: str) -> Kineto:
    trace, at = Kineto(**gpu), 1000.0
    for number in range(count):
        begin = at
        at = body(trace, at, number)
        trace.step(number, begin - 20, at - begin)
    return trace


def launch_bound() -> Kineto:
    """Every kernel is launched after the previous one ended: 5 µs of work, 30 µs of waiting."""

    def body(trace: Kineto, at: float, _number: int) -> float:
        for _ in range(40):
            trace.launched(ADD, at, 5, call=at - 10)
            at += 35
        return at

    return _repeat(5, body)


def sync_bound() -> Kineto:
    """The host waits for each kernel, then needs 60 µs to launch the next."""

    def body(trace: Kineto, at: float, _number: int) -> float:
        for _ in range(20):
            trace.launched(GEMM, at, 100, call=at - 10)
            trace.call("cudaStreamSynchronize", at - 5, 107)
            at += 160
        return at

    return _repeat(4, body)


def scheduler_bound() -> Kineto:
    """Back-to-back kernels in a step, then a long host pause across the step border."""
    trace, at = Kineto(), 1000.0
    for number in range(6):
        trace.step(number, at - 30, 500)
        for index in range(20):
            trace.launched(GEMM, at, 20, call=at - 15 if index == 0 else at - 25 - index * 0.01)
            at += 20
        at += 500
    return trace


def transfer_bound() -> Kineto:
    """Large pinned copies that saturate the link, short kernels between them, all queued early."""

    def body(trace: Kineto, at: float, _number: int) -> float:
        for _ in range(10):
            trace.launched(
                *(PINNED, at, 900),
                call=at - 2000,
                api="cudaMemcpyAsync",
                cat="gpu_memcpy",
                bytes=int(900e-6 * 45e9),
            )
            trace.launched(GEMM, at + 901, 60, call=at - 1990)
            at += 962
        return at

    return _repeat(4, body)


def communication_bound() -> Kineto:
    """Half of each step is an all-reduce that nothing hides."""

    def body(trace: Kineto, at: float, _number: int) -> float:
        for _ in range(8):
            trace.launched(GEMM, at, 100, call=at - 500)
            trace.launched(NCCL, at + 101, 90, call=at - 490, stream=20)
            at += 192
        return at

    return _repeat(4, body)


def initialisation() -> Kineto:
    """Two thirds of the window is cudaMalloc."""

    def body(trace: Kineto, at: float, _number: int) -> float:
        for _ in range(4):
            trace.call("cudaMalloc", at + 51, 180)
            trace.launched(GEMM, at + 250, 20, call=at + 240)
            trace.launched(GEMM, at, 50, call=at - 5)
            at += 280
        return at

    return _repeat(4, body)


def fp32_compute() -> Kineto:
    """A saturated GPU whose GEMMs use no tensor cores."""

    def body(trace: Kineto, at: float, _number: int) -> float:
        for _ in range(20):
            trace.launched(SGEMM, at, 100, call=at - 500)
            at += 100.5
        return at

    return _repeat(4, body)


def compute_bound() -> Kineto:
    """A saturated GPU on tensor cores."""

    def body(trace: Kineto, at: float, _number: int) -> float:
        for _ in range(20):
            trace.launched(GEMM, at, 100, call=at - 500)
            at += 100.5
        return at

    return _repeat(4, body)


def bandwidth_bound() -> Kineto:
    """A saturated GPU that does matrix-vector products."""

    def body(trace: Kineto, at: float, _number: int) -> float:
        for index in range(20):
            trace.launched(GEMV if index % 2 else GEMM, at, 40, call=at - 500)
            at += 40.2
        return at

    return _repeat(4, body)


def busy() -> Kineto:
    """Half GEMM, half elementwise, nothing to fuse, 1 % idle."""

    def body(trace: Kineto, at: float, _number: int) -> float:
        for index in range(20):
            trace.launched(ADD if index % 2 else GEMM, at, 1000, call=at - 5000)
            at += 1005
        return at

    return _repeat(4, body)


def idle_unattributed() -> Kineto:
    """Queued work that starts late for no recorded reason."""

    def body(trace: Kineto, at: float, _number: int) -> float:
        for _ in range(20):
            trace.launched(GEMM, at, 50, call=at - 5000)
            at += 150
        return at

    return _repeat(4, body)


def unfused_attention() -> Kineto:
    """Matrix product, softmax, matrix product, in a saturated GPU."""

    def body(trace: Kineto, at: float, _number: int) -> float:
        for name in (GEMM, SOFTMAX, GEMM, ADD) * 6:
            trace.launched(name, at, 80, call=at - 5000)
            at += 80.2
        return at

    return _repeat(4, body)


SCENARIOS: dict[str, Callable[[], Kineto]] = {
    "launch_bound": launch_bound,
    "sync_bound": sync_bound,
    "scheduler_bound": scheduler_bound,
    "transfer_bound": transfer_bound,
    "communication_bound": communication_bound,
    "initialisation": initialisation,
    "fp32_compute": fp32_compute,
    "compute_bound": compute_bound,
    "bandwidth_bound": bandwidth_bound,
    "busy": busy,
    "idle_unattributed": idle_unattributed,
}
