"""Samples host and GPUs once a second beside the work, in a thread of the agent.

It runs in the parent, so it survives the trial's child and does not share its interpreter. The
child runs a second one over its own measurement window, for the validity checks.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from types import TracebackType
from typing import Self

from gpuagent.telemetry.base import GpuReader
from gpuagent.telemetry.host import HostReader
from gpuagent.telemetry.nvml import open_reader
from gpuagent.wire import HostSample

log = logging.getLogger(__name__)

PERIOD_S = 1.0
MAX_KEPT = 3600


class Sampler:
    """`with Sampler() as sampler:` samples until the block ends; `drain` hands out what is new."""

    def __init__(self, *, reader: GpuReader | None = None, period_s: float = PERIOD_S) -> None:
        self._reader = reader
        self._host = HostReader()
        self._period_s = period_s
        self._pid: int | None = None
        self._samples: deque[HostSample] = deque(maxlen=MAX_KEPT)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to sample. Starting twice changes nothing."""
        if self._thread is None:
            self._stop.clear()
            self._thread = threading.Thread(target=self._loop, name="telemetry", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread; what was sampled can still be drained."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
            self._thread = None
        if self._reader is not None:
            self._reader.close()

    def watch(self, pid: int | None) -> None:
        """Account the tree below `pid` as the trial's own; None when there is no trial."""
        self._pid = pid

    def drain(self) -> list[HostSample]:
        """Samples since the last drain, oldest first."""
        taken: list[HostSample] = []
        while self._samples:
            taken.append(self._samples.popleft())
        return taken

    def sample_now(self) -> HostSample:
        """One reading, outside the rhythm and not kept."""
        if self._reader is None:
            self._reader = open_reader()
        host = self._host.read(self._pid)
        return HostSample(
            at_s=time.time(),
            cpu_frac=host.cpu_frac,
            load_1min=host.load_1min,
            memory_available_bytes=host.memory_available_bytes,
            child_rss_bytes=host.child_rss_bytes,
            child_cpu_cores=host.child_cpu_cores,
            gpus=self._reader.sample(host.pids),
        )

    def _loop(self) -> None:
        next_s = time.monotonic()
        while not self._stop.is_set():
            try:
                self._samples.append(self.sample_now())
            except (OSError, ValueError, RuntimeError):
                # Telemetry must never end a trial; the gap shows in the data.
                log.exception("a telemetry sample failed")
            next_s = max(next_s + self._period_s, time.monotonic())
            self._stop.wait(next_s - time.monotonic())
