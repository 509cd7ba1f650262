"""Copies between host and device: by direction, pageable or pinned, rate against the link."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from gpuagent.traces.model import MEMCPY, Summary, Trace
from gpuagent.traces.thresholds import link_gb_s

_DIRECTION = re.compile(r"\b(HtoD|DtoH|DtoD|PtoP|HtoH|HtoA|AtoH)\b", re.IGNORECASE)
_LONG = re.compile(r"(Host|Device|Peer)-to-(Host|Device|Peer)", re.IGNORECASE)
_LETTER = {"host": "H", "device": "D", "peer": "P"}
HOST_DIRECTIONS = ("HtoD", "DtoH")


@dataclass(frozen=True, slots=True)
class CopyRow:
    """Copies of one direction. `pageable_s` is None where the file does not tell memory kinds."""

    direction: str
    count: int
    time_s: float
    size_bytes: int | None
    gb_s: float | None
    large_gb_s: float | None
    pageable_s: float | None
    link_gb_s: float | None

    @property
    def link_frac(self) -> float | None:
        """Rate of the large copies over the achievable link rate; None where either is unknown."""
        if self.large_gb_s is None or self.link_gb_s is None:
            return None
        return self.large_gb_s / self.link_gb_s


def direction_of(name: str) -> str:
    """HtoD, DtoH, DtoD, PtoP or other, from a copy's label in any tool's spelling."""
    found = _DIRECTION.search(name)
    if found:
        return {d.lower(): d for d in ("HtoD", "DtoH", "DtoD", "PtoP", "HtoH")}.get(
            found.group(1).lower(), "other"
        )
    found = _LONG.search(name)
    if found:
        return f"{_LETTER[found.group(1).lower()]}to{_LETTER[found.group(2).lower()]}"
    return "other"


def copy_rows(trace: Trace) -> tuple[CopyRow, ...]:
    """Copies of the trace by direction, most time first."""
    gpu = trace.gpu
    rows = np.flatnonzero(gpu.kind == MEMCPY)
    if not len(rows):
        return ()
    names = np.unique(gpu.name[rows]).tolist()
    directions: dict[str, list[int]] = {}
    for name in names:
        directions.setdefault(direction_of(trace.names[name]), []).append(name)
    link = link_gb_s(next((d.name for d in trace.devices if d.name), None))
    found = []
    for direction, members in directions.items():
        mine = rows[np.isin(gpu.name[rows], members)]
        time = gpu.end[mine] - gpu.start[mine]
        size = gpu.copy_bytes[mine]
        known = (size > 0) & (time > 0)
        large = known & (size >= 1 << 20)
        told = [n for n in members if "->" in trace.names[n] and "Host" not in trace.names[n]]
        pageable = [n for n in members if "pageable" in trace.names[n].lower()]
        pageable_ns = int(time[np.isin(gpu.name[mine], pageable)].sum())
        found.append(
            CopyRow(
                direction=direction,
                count=len(mine),
                time_s=float(time.sum()) * 1e-9,
                size_bytes=int(size[known].sum()) if known.any() else None,
                gb_s=_rate(size[known], time[known]),
                large_gb_s=_rate(size[large], time[large]),
                pageable_s=pageable_ns * 1e-9 if told else None,
                link_gb_s=link if direction in HOST_DIRECTIONS else None,
            )
        )
    return tuple(sorted(found, key=lambda row: -row.time_s))


def summary_copies(summary: Summary) -> tuple[CopyRow, ...]:
    """Copies of a summary; sizes come from the size table where it was exported."""
    sizes = {direction_of(row.name): row.size_bytes for row in summary.copy_sizes}
    rows = []
    for row in summary.copies:
        if "memset" in row.name.lower():
            continue
        direction = direction_of(row.name)
        size, time = sizes.get(direction), row.total_s or 0.0
        rate = size / time / 1e9 if size and time else None
        rows.append(
            CopyRow(direction, row.count, time, int(size) if size else None, rate, None, None, None)
        )
    return tuple(sorted(rows, key=lambda row: -row.time_s))


def _rate(size: np.ndarray, time_ns: np.ndarray) -> float | None:
    total = float(time_ns.sum())
    return float(size.sum()) / total if total > 0 else None
