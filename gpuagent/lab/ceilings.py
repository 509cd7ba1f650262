"""Measures what the device can do at most. The best of several runs counts: noise only slows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from gpuagent.engines.base import Tick
from gpuagent.lab.clock import sample_s, synchronise
from gpuagent.telemetry.nvml import open_reader
from gpuagent.wire import Quantity, Samples
from gpuagent.wire.ceilings import Ceiling, CeilingKind, Ceilings

# Several times the largest last-level cache that one process reads through.
CPU_BYTES, CUDA_BYTES = 512 * 2**20, 2 * 2**30
# Large enough to fill every core; a processor needs seconds for more.
CPU_SIDE, CUDA_SIDE = 1536, 8192
# Many processors have no 16-bit or 8-bit matrix unit and take a hundred times as long.
CPU_SLOW_SIDE = 512
_TRANSFER_BYTES = 256 * 2**20
_DTYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
GEMM_VARIANTS = ("float32", "tf32", "bfloat16", "float16", "int8", "float8")


def measure(
    device: torch.device,
    *,
    repeats: int,
    size_frac: float,
    tick: Tick,
    on_entry: Callable[[int, int], None] = lambda done, total: None,
    only: frozenset[str] = frozenset(),
) -> Ceilings:
    """Every ceiling this device has; one that it lacks carries the reason.

    only: kinds to measure ("gemm", "read", …), all where empty. Raises torch's out-of-memory error
    where the buffers do not fit.
    """
    parts: list[tuple[CeilingKind, str, Callable[[], Ceiling]]] = []
    bench = _Bench(device, repeats, size_frac, tick)
    parts += [("read", "", bench.read), ("copy", "", bench.copy)]
    parts += [("gemm", v, lambda v=v: bench.gemm(v)) for v in GEMM_VARIANTS]  # type: ignore[misc]
    parts += [("launch", "", bench.launch)]
    for kind in ("host_to_device", "device_to_host"):
        for variant in ("pageable", "pinned"):
            parts.append((kind, variant, lambda k=kind, v=variant: bench.transfer(k, v)))  # type: ignore[misc]
    parts.append(("all_reduce", "", bench.all_reduce))
    wanted = [part for part in parts if not only or part[0] in only]
    entries = []
    clock = memory_clock = Quantity(reason="no GEMM was measured")
    for index, (kind, variant, action) in enumerate(wanted):
        tick()
        try:
            entries.append(action())
        except (RuntimeError, NotImplementedError, TypeError, AttributeError) as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            # The message of a missing kernel is its first line; the rest is a stack of C++.
            reason = f"not available here: {str(error).splitlines()[0][:200]}"
            entries.append(_absent(kind, variant, reason))
        if kind == "gemm":
            clock, memory_clock = _clocks(device)
        on_entry(index + 1, len(wanted))
    versions = {"torch": torch.__version__}
    if torch.version.cuda and device.type == "cuda":
        versions["cuda"] = torch.version.cuda
    return Ceilings(
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        threads=torch.get_num_threads() if device.type == "cpu" else None,
        clock_hz=clock,
        memory_clock_hz=memory_clock,
        versions=versions,
        measured_at_s=time.time(),
        entries=tuple(entries),
    )


class _Bench:
    def __init__(self, device: torch.device, repeats: int, size_frac: float, tick: Tick) -> None:
        self._device, self._repeats, self._tick = device, repeats, tick
        self._cuda = device.type == "cuda"
        self._bytes = max(1 << 16, int((CUDA_BYTES if self._cuda else CPU_BYTES) * size_frac))
        # Multiples of 64, which every matrix unit accepts.
        self._side = _multiple((CUDA_SIDE if self._cuda else CPU_SIDE) * size_frac)
        self._slow_side = _multiple((CUDA_SIDE if self._cuda else CPU_SLOW_SIDE) * size_frac)
        self._transfer_bytes = max(1 << 16, int(_TRANSFER_BYTES * size_frac))

    def _entry(
        self, kind: CeilingKind, variant: str, work: float, action: Callable[[], object]
    ) -> Ceiling:
        seconds = sample_s(action, device=self._device, repeats=self._repeats, tick=self._tick)
        rate = min(seconds) if kind == "launch" else work / min(seconds)
        return Ceiling(
            kind=kind,
            variant=variant,
            work=work,
            seconds=Samples(values=seconds),
            rate=Quantity(value=rate),
        )

    def _buffer(self, size: int, **options: Any) -> torch.Tensor:
        # Ones, not zeros: untouched zero pages may all be the same physical page.
        return torch.ones(size // 4, dtype=torch.float32, **options)

    def read(self) -> Ceiling:
        source = self._buffer(self._bytes, device=self._device)
        return self._entry("read", "", self._bytes, lambda: source.sum())

    def copy(self) -> Ceiling:
        source = self._buffer(self._bytes // 2, device=self._device)
        target = torch.empty_like(source)
        return self._entry("copy", "", self._bytes, lambda: target.copy_(source))

    def gemm(self, variant: str) -> Ceiling:
        side = self._side if variant == "float32" else self._slow_side
        work = 2.0 * side**3
        if variant in _DTYPES:
            a = torch.ones(side, side, dtype=_DTYPES[variant], device=self._device)
            b = torch.ones(side, side, dtype=_DTYPES[variant], device=self._device)
            with _tf32(False):
                return self._entry("gemm", variant, work, lambda: a @ b)
        if variant == "tf32":
            if not self._cuda or torch.cuda.get_device_capability(self._device) < (8, 0):
                return _absent("gemm", variant, "tf32 needs an NVIDIA GPU of Ampere or newer")
            a = torch.ones(side, side, device=self._device)
            with _tf32(True):
                return self._entry("gemm", variant, work, lambda: a @ a)
        if variant == "int8":
            a = torch.ones(side, side, dtype=torch.int8, device=self._device)
            # cuBLASLt takes the second matrix in column order only.
            b = torch.ones(side, side, dtype=torch.int8, device=self._device).t()
            return self._entry("gemm", variant, work, lambda: torch._int_mm(a, b))
        return self._float8(side, work)

    def _float8(self, side: int, work: float) -> Ceiling:
        if not self._cuda or torch.cuda.get_device_capability(self._device) < (8, 9):
            return _absent("gemm", "float8", "float8 needs an NVIDIA GPU of Ada, Hopper or newer")
        a = torch.ones(side, side, device=self._device).to(torch.float8_e4m3fn)
        one = torch.ones((), device=self._device)

        def multiply() -> object:
            return torch._scaled_mm(a, a.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

        return self._entry("gemm", "float8", work, multiply)

    def launch(self) -> Ceiling:
        tiny = torch.ones(1, device=self._device)
        return self._entry("launch", "", 1.0, lambda: tiny.add_(0.0))

    def transfer(self, kind: CeilingKind, variant: str) -> Ceiling:
        if not self._cuda:
            return _absent(kind, variant, "there is no device apart from the host's memory")
        host = self._buffer(self._transfer_bytes, pin_memory=variant == "pinned")
        there = torch.empty_like(host, device=self._device)
        if kind == "host_to_device":
            action: Callable[[], object] = lambda: there.copy_(host, non_blocking=True)  # noqa: E731
        else:
            action = lambda: host.copy_(there, non_blocking=True)  # noqa: E731
        return self._entry(kind, variant, self._transfer_bytes, action)

    def all_reduce(self) -> Ceiling:
        """Sum over all GPUs of one process by NCCL; bytes of one buffer."""
        count = torch.cuda.device_count() if self._cuda else 0
        if count < 2:
            return _absent("all_reduce", "", "it needs two GPUs or more")
        from torch.cuda import nccl

        tensors = [
            self._buffer(self._transfer_bytes, device=torch.device("cuda", index))
            for index in range(count)
        ]

        def reduce() -> None:
            nccl.all_reduce(tensors)
            for index in range(count):
                synchronise(torch.device("cuda", index))

        return self._entry("all_reduce", "", self._transfer_bytes, reduce)


def _multiple(side: float) -> int:
    return max(64, int(side) // 64 * 64)


def _absent(kind: CeilingKind, variant: str, reason: str) -> Ceiling:
    return Ceiling(
        kind=kind,
        variant=variant,
        work=1.0,
        seconds=Samples(values=()),
        rate=Quantity(reason=reason),
    )


@contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _clocks(device: torch.device) -> tuple[Quantity, Quantity]:
    """(core clock, memory clock) in hertz as they are now."""
    if device.type != "cuda":
        import psutil

        found = psutil.cpu_freq()
        memory = Quantity(reason="the host's memory clock is not readable")
        if found is None or not found.current:
            return Quantity(reason="the host reports no core clock"), memory
        return Quantity(value=found.current * 1e6), memory
    reader = open_reader()
    try:
        samples = reader.sample(frozenset())
    finally:
        reader.close()
    index = device.index or 0
    sample = next((s for s in samples if s.index == index), None)
    none = Quantity(reason="NVML gave no clock")
    if sample is None:
        return none, none
    return (
        Quantity(value=sample.sm_clock_hz) if sample.sm_clock_hz else none,
        Quantity(value=sample.memory_clock_hz) if sample.memory_clock_hz else none,
    )
