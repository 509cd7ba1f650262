"""PyTorch's allocator in a few numbers. The snapshot itself is a pickle and stays where it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuagent.wire.trial import MemorySnapshot

NO_SNAPSHOT = "PyTorch keeps no snapshot of host memory; there is no CUDA device"


def take_snapshot() -> MemorySnapshot | None:
    """Of the current CUDA device; None without one."""
    import torch

    if not torch.cuda.is_available():
        return None
    segments = torch.cuda.memory._snapshot()["segments"]
    return convert(torch.cuda.memory_stats(), segments)


def convert(stats: Mapping[str, Any], segments: Sequence[Mapping[str, Any]]) -> MemorySnapshot:
    """`torch.cuda.memory_stats()` and the `segments` of a snapshot as wire numbers."""
    allocated = int(stats.get("allocated_bytes.all.peak", 0))
    reserved = int(stats.get("reserved_bytes.all.peak", 0))
    free = [
        int(block.get("size", 0))
        for segment in segments
        for block in segment.get("blocks", ())
        if block.get("state") == "inactive"
    ]
    return MemorySnapshot(
        allocated_peak_bytes=allocated,
        reserved_peak_bytes=reserved,
        fragmentation_frac=max(0.0, 1 - allocated / reserved) if reserved else 0.0,
        segments=len(segments),
        largest_free_bytes=max(free, default=0),
        alloc_retries=int(stats.get("num_alloc_retries", 0)),
        ooms=int(stats.get("num_ooms", 0)),
    )
