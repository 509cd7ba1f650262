"""Bounds for reading a file that nobody vouches for; every reader takes one `Limits`."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from gpuagent.traces.errors import TraceError

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, times in seconds. Defaults fit a 1 GB trace and stop a decompression bomb.

    Real Kineto files compress 14 to 20 times (23 traces measured), so a ratio of 250 is no profile.
    """

    file_bytes: int = 4 * GIB
    decoded_bytes: int = 4 * GIB
    ratio: int = 250
    ratio_free_bytes: int = 64 * MIB
    event_bytes: int = 8 * MIB
    gpu_events: int = 4_000_000
    host_events: int = 6_000_000
    cpu_ops: int = 300_000
    annotations: int = 200_000
    names: int = 40_000
    name_chars: int = 1024
    rows: int = 20_000_000
    seconds: float = 180.0
    started: float = field(default_factory=time.monotonic)

    def check_time(self) -> None:
        """Raise once the reader has used its time."""
        if time.monotonic() - self.started > self.seconds:
            raise TraceError(
                "too_slow",
                f"Reading took longer than {self.seconds:.0f} s. Record a shorter window.",
            )
