"""Reads the host and a trial's process tree through psutil."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True)
class HostReading:
    """One reading; fractions are since the reading before, None for the first."""

    cpu_frac: float | None
    load_1min: float | None
    memory_available_bytes: int | None
    child_rss_bytes: int | None
    child_cpu_cores: float | None
    pids: frozenset[int]
    """The watched tree."""


class HostReader:
    """Keeps what the last reading was, since processor use is a difference of two."""

    def __init__(self) -> None:
        self._cpu: tuple[float, float] | None = None
        self._child: tuple[int, float, float] | None = None

    def read(self, pid: int | None) -> HostReading:
        """The host, and the tree below `pid` where one is watched."""
        watched = [] if pid is None else tree(pid)
        rss, cores = self._read_child(pid, watched)
        return HostReading(
            cpu_frac=self._read_cpu(),
            load_1min=_load_1min(),
            memory_available_bytes=int(psutil.virtual_memory().available),
            child_rss_bytes=rss,
            child_cpu_cores=cores,
            pids=frozenset(process.pid for process in watched),
        )

    def _read_cpu(self) -> float | None:
        busy, total = cpu_seconds()
        before, self._cpu = self._cpu, (busy, total)
        if before is None or total <= before[1]:
            return None
        return min(1.0, max(0.0, (busy - before[0]) / (total - before[1])))

    def _read_child(
        self, pid: int | None, watched: list[psutil.Process]
    ) -> tuple[int | None, float | None]:
        if pid is None:
            self._child = None
            return None, None
        rss, cpu_s, found = 0, 0.0, False
        for process in watched:
            try:
                rss += process.memory_info().rss
                times = process.cpu_times()
                cpu_s += times.user + times.system
                found = True
            except psutil.Error:
                # It ended between the listing and the reading.
                continue
        if not found:
            self._child = None
            return None, None
        now = time.monotonic()
        before, self._child = self._child, (pid, now, cpu_s)
        if before is None or before[0] != pid or now <= before[1]:
            return rss, None
        return rss, max(0.0, (cpu_s - before[2]) / (now - before[1]))


def tree(pid: int) -> list[psutil.Process]:
    """The process and everything below it that still exists."""
    try:
        root = psutil.Process(pid)
        below = _below(pid)
        if below is None:
            return [root, *root.children(recursive=True)]
    except psutil.Error:
        return []
    found = [root]
    for child in below:
        with contextlib.suppress(psutil.Error):
            found.append(psutil.Process(child))
    return found


def _below(pid: int) -> list[int] | None:
    """Descendants from the kernel's own lists; None where it keeps none.

    psutil reads every process of the host to find children, which costs most of a sample.
    """
    if not Path(f"/proc/{pid}/task/{pid}/children").exists():
        return None
    found: list[int] = []
    waiting = [pid]
    while waiting:
        threads = Path(f"/proc/{waiting.pop()}/task")
        # A thread or process may end while it is read.
        with contextlib.suppress(OSError):
            for thread in threads.iterdir():
                with contextlib.suppress(OSError):
                    children = (thread / "children").read_bytes().split()
                    found += map(int, children)
                    waiting += map(int, children)
    return found


def tree_rss_bytes(pid: int) -> int | None:
    """Resident memory of the process and everything below it; None where nothing is left."""
    total = 0
    for process in tree(pid):
        # It may end between the listing and the reading.
        with contextlib.suppress(psutil.Error):
            total += process.memory_info().rss
    return total or None


def cpu_seconds() -> tuple[float, float]:
    """(busy, total) processor seconds of the host since boot, over all cores."""
    times = psutil.cpu_times()
    # Guest time is already part of user time on Linux.
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    idle = times.idle + getattr(times, "iowait", 0.0)
    return total - idle, total


def steal_seconds() -> float | None:
    """Processor seconds that the hypervisor gave to others; None where it is not reported."""
    steal: float | None = getattr(psutil.cpu_times(), "steal", None)
    return steal


def own_cpu_seconds() -> float:
    """Processor seconds of this process, of its finished children and of all that it started."""
    times = os.times()
    total = times.user + times.system + times.children_user + times.children_system
    for process in tree(os.getpid())[1:]:
        with contextlib.suppress(psutil.Error):
            below = process.cpu_times()
            # What an ended child of a child used is that one's own account.
            total += below.user + below.system + below.children_user + below.children_system
    return total


def _load_1min() -> float | None:
    try:
        return os.getloadavg()[0]
    except OSError:
        return None
