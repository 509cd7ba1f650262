"""Times of short torch calls: device idle at both ends, short calls repeated inside one sample."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from gpuagent.engines.base import Tick

# A sample this long hides the clock's own cost (about 0.1 µs) and one interrupt.
MIN_SAMPLE_S = 2e-3
MAX_CALLS = 2000
_WARM_CALLS = 2


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def sample_s(
    action: Callable[[], object],
    *,
    device: torch.device,
    repeats: int,
    tick: Tick,
    min_sample_s: float = MIN_SAMPLE_S,
) -> tuple[float, ...]:
    """Seconds of one call, [repeats]; each is the mean over as many calls as fill a sample.

    Warm-up calls are discarded. tick is called between samples.
    """
    with torch.inference_mode():
        for _ in range(_WARM_CALLS):
            action()
        once_s = _timed(action, device, 1)
        calls = max(1, min(MAX_CALLS, int(min_sample_s / max(once_s, 1e-9))))
        found = []
        for _ in range(repeats):
            tick()
            found.append(_timed(action, device, calls) / calls)
    return tuple(found)


def _timed(action: Callable[[], object], device: torch.device, calls: int) -> float:
    synchronise(device)
    began = time.perf_counter()
    for _ in range(calls):
        action()
    synchronise(device)
    return time.perf_counter() - began
