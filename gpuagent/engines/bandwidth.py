"""How fast the device can read: the ceiling that decode speed is compared with.

Decoding reads every weight once per step, so bytes per second of a long sequential read bound it.
A sum over a buffer that is several times the last cache, best of a few: noise only slows a read.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from gpuagent.engines.base import Tick

# L3 of the largest server CPUs is 1.1 GiB over all dies, but a process reads through the dies it
# runs on (32-384 MiB); GPUs hold 50-126 MiB of L2.
CPU_BYTES = 512 * 2**20
CUDA_BYTES = 2 * 2**30
READS = 5


def read_bandwidth_bytes_s(device: torch.device, tick: Tick) -> float:
    """Bytes per second of the fastest of READS sequential sums; allocates CPU_BYTES or CUDA_BYTES.

    Raises torch's out-of-memory error where the buffer does not fit.
    """
    size = CUDA_BYTES if device.type == "cuda" else CPU_BYTES
    # Ones, not zeros: untouched zero pages may all be the same physical page.
    buffer = torch.ones(size // 4, dtype=torch.float32, device=device)
    buffer.sum()
    best_s = float("inf")
    for _ in range(READS):
        tick()
        best_s = min(best_s, _cuda_read_s(buffer) if device.type == "cuda" else _cpu_read_s(buffer))
    return size / best_s


def _cpu_read_s(buffer: torch.Tensor) -> float:
    return _wall_s(lambda: buffer.sum())


def _cuda_read_s(buffer: torch.Tensor) -> float:
    # Events leave the launch out, which at 2 GiB would still be a few per cent.
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    buffer.sum()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1000


def _wall_s(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began
