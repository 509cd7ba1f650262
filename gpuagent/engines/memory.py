"""Memory of this process: now, and its peak since a reset.

Linux keeps the peak exactly (VmHWM) and lets a process reset its own; elsewhere the peak is the
one of the whole process life. Bytes everywhere.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
# Documented in proc(5): 5 resets the peak resident set size.
_RESET_PEAK = "5"


def host_rss_bytes() -> int | None:
    """Resident memory of this process."""
    if (rss := _status_bytes("VmRSS")) is not None:
        return rss
    try:
        import psutil

        return int(psutil.Process().memory_info().rss)
    except ImportError:
        return None


def reset_host_peak() -> bool:
    """Start a new peak. False where the platform keeps only the peak of the whole process."""
    try:
        _CLEAR_REFS.write_text(_RESET_PEAK)
    except OSError:
        return False
    return True


def host_peak_bytes() -> int | None:
    """Highest resident memory since the last reset that worked, else since the process began."""
    if (peak := _status_bytes("VmHWM")) is not None:
        return peak
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Kilobytes on Linux and the BSDs, bytes on macOS.
    return peak if sys.platform == "darwin" else peak * 1024


def return_free_blocks() -> None:
    """Collect garbage and give freed heap back, so that what is still resident is still in use."""
    gc.collect()
    if not sys.platform.startswith("linux"):
        return
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        # musl has no malloc_trim; the reading is then an upper bound.
        return


def host_available_bytes() -> int | None:
    """Memory that a new allocation can get: the host's, or what the cgroup leaves if less."""
    try:
        import psutil
    except ImportError:
        return None
    available = int(psutil.virtual_memory().available)
    cgroup = _cgroup_available_bytes()
    return available if cgroup is None else min(available, cgroup)


def _cgroup_available_bytes() -> int | None:
    for limit_path, used_path in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        ),
    ):
        try:
            limit = Path(limit_path).read_text().strip()
            used = int(Path(used_path).read_text()) - _reclaimable_bytes(Path(used_path).parent)
        except (OSError, ValueError):
            continue
        # "max" and the huge page-aligned number both mean that there is no limit.
        if limit.isdigit() and int(limit) < 2**60:
            return max(0, int(limit) - used)
    return None


def _reclaimable_bytes(cgroup: Path) -> int:
    """Page cache that the kernel drops when memory is asked for; it counts as used."""
    try:
        pairs = [line.split() for line in (cgroup / "memory.stat").read_text().splitlines()]
        return sum(int(value) for key, value in pairs if key in {"inactive_file", "active_file"})
    except (OSError, ValueError):
        return 0


def _status_bytes(key: str) -> int | None:
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    return None
