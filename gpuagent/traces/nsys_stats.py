"""Reads `nsys stats` tables, CSV or text, into a Summary: totals without a timeline.

Survives preambles, quoted and bare fields, thousands separators, renamed reports and columns, and
other units than nanoseconds. "SKIPPED" means absent, not zero.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gpuagent.traces.errors import TraceError, malformed, over_limit
from gpuagent.traces.limits import MIB, Limits
from gpuagent.traces.model import Summary, SummaryRow
from gpuagent.traces.source import text_chunks

_MOST_BYTES = 64 * MIB
_MOST_ROWS = 200_000
_TIMES = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_SIZES = {"b": 1.0, "bytes": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9}
_SIZES |= {"kib": 1024.0, "mib": 1024.0**2, "gib": 1024.0**3}
_NAMES = ("name", "operation", "range")
_COUNTS = ("instances", "numcalls", "count", "operations", "calls")
_UNIT = re.compile(r"^(.*?)\s*\(\s*([^)]*?)\s*\)\s*$")
_SKIPPED = re.compile(r"SKIPPED:\s*(.{0,200})")
_GAP = re.compile(r"\s{2,}")


def is_stats_start(text: str) -> bool:
    """True when the first kilobytes look like a summary table of nsys stats."""
    return any(_header(line) is not None for line in text.splitlines()[:200]) or (
        "stats report" in text or "Executing '" in text
    )


def read_nsys_stats(path: Path, limits: Limits | None = None) -> Summary:
    """All tables in `path`; a TraceError where there is none."""
    bounds = limits or Limits()
    lines = list(_lines(path, bounds))
    found = _Found()
    at = 0
    while at < len(lines):
        line = lines[at]
        skipped = _SKIPPED.search(line)
        if skipped:
            found.skipped.append(skipped.group(1).strip())
        header = _header(line)
        at += 1
        if header is None:
            found.heading = line if line.strip() else found.heading
            continue
        if at < len(lines) and _is_rule(lines[at]):
            at = found.take_text(header, lines, at)
        else:
            at = found.take_csv(header, lines, at)
    if not (found.kernels or found.api or found.copies or found.sizes):
        raise TraceError(
            "not_a_trace",
            "No table of nsys stats was found. Create one with: "
            "nsys stats --report cuda_gpu_kern_sum --format csv REPORT.nsys-rep",
        )
    return Summary(
        format="nsys-stats",
        kernels=tuple(found.kernels),
        api=tuple(found.api),
        copies=tuple(found.copies),
        copy_sizes=tuple(found.sizes),
        ranges=tuple(found.ranges),
        skipped=tuple(found.skipped[:20]),
    )


@dataclass(frozen=True, slots=True)
class _Header:
    """Column keys such as `total`, `avg`, `count`, `name`, each with its unit's scale."""

    keys: tuple[str, ...]
    scales: tuple[float | None, ...]
    is_size: bool
    count_label: str
    name_label: str


@dataclass(slots=True)
class _Found:
    kernels: list[SummaryRow] = field(default_factory=list)
    api: list[SummaryRow] = field(default_factory=list)
    copies: list[SummaryRow] = field(default_factory=list)
    sizes: list[SummaryRow] = field(default_factory=list)
    ranges: list[SummaryRow] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    heading: str = ""

    def take_csv(self, header: _Header, lines: list[str], at: int) -> int:
        """Rows after a CSV header until a line that is none."""
        rows = []
        while at < len(lines) and lines[at].strip() and _header(lines[at]) is None:
            try:
                cells = next(csv.reader([lines[at]]))
            except (csv.Error, StopIteration) as error:
                raise malformed(f"line {at + 1} is no CSV ({error})") from None
            if len(cells) != len(header.keys):
                break
            rows.append(cells)
            at += 1
        self._store(header, rows)
        return at

    def take_text(self, header: _Header, lines: list[str], at: int) -> int:
        """Rows after a dashed rule; the last column runs to the end of the line."""
        spans = [found.span() for found in re.finditer(r"-+", lines[at])]
        at += 1
        rows = []
        while at < len(lines) and lines[at].strip():
            cells = _GAP.split(lines[at].strip(), maxsplit=len(header.keys) - 1)
            if len(cells) != len(header.keys):
                cells = [lines[at][a:b].strip() for a, b in spans[:-1]] + [
                    lines[at][spans[-1][0] :].strip()
                ]
            if len(cells) != len(header.keys):
                break
            rows.append(cells)
            at += 1
        self._store(header, rows)
        return at

    def _store(self, header: _Header, cells: list[list[str]]) -> None:
        rows = [row for row in (_row(header, line) for line in cells) if row is not None]
        if not rows:
            return
        heading, self.heading = self.heading.lower(), ""
        target = self._target(header, heading, rows)
        target.extend(rows)
        if len(target) > _MOST_ROWS:
            raise over_limit(f"more than {_MOST_ROWS:,} table rows", f"{_MOST_ROWS:,}")

    def _target(self, header: _Header, heading: str, rows: list[SummaryRow]) -> list[SummaryRow]:
        copies = any(r.name.startswith(("[CUDA mem", "[CUDA Unified")) for r in rows)
        if header.is_size:
            return self.sizes
        if header.name_label == "range" or "nvtx" in heading:
            return self.ranges
        if header.name_label == "operation" or (copies and header.count_label != "instances"):
            return self.copies
        if "osrt" in heading:
            return self.ranges
        if header.count_label in ("numcalls", "calls") or "api" in heading:
            return self.api
        if copies and all(r.name.startswith("[CUDA") for r in rows):
            return self.copies
        return self.kernels


def _lines(path: Path, limits: Limits) -> Iterator[str]:
    rest, size = "", 0
    for chunk in text_chunks(path, limits):
        size += len(chunk)
        if size > _MOST_BYTES:
            raise over_limit("more than 64 MiB of text", "64 MiB")
        *whole, rest = (rest + chunk).split("\n")
        if len(rest) > MIB:
            raise over_limit("a line of more than 1 MiB", "1 MiB")
        for line in whole:
            yield line.rstrip("\r")
    if rest:
        yield rest


def _header(line: str) -> _Header | None:
    """The columns when the line is a table header, else None."""
    if len(line) > 2000 or ("Time" not in line and "Total" not in line):
        return None
    if "," in line:
        try:
            cells = next(csv.reader([line]))
        except (csv.Error, StopIteration):
            return None
    else:
        cells = _GAP.split(line.strip())
    keys: list[str] = []
    scales: list[float | None] = []
    is_size = False
    count_label = name_label = ""
    for cell in cells:
        label, unit = _label(cell)
        scale: float | None = None
        if label in _NAMES:
            name_label, label = label, "name"
        elif label in _COUNTS:
            count_label, label = label, "count"
        elif unit in _TIMES and label:
            scale = _TIMES[unit]
        elif unit in _SIZES:
            scale, is_size = _SIZES[unit], True
        keys.append(_short(label))
        scales.append(scale)
    if "name" not in keys or ("total" not in keys and "avg" not in keys):
        return None
    return _Header(tuple(keys), tuple(scales), is_size, count_label, name_label)


def _label(cell: str) -> tuple[str, str]:
    found = _UNIT.match(cell.strip())
    label, unit = (found.group(1), found.group(2)) if found else (cell, "")
    return re.sub(r"[\s_]+", "", label).lower(), unit.lower()


def _short(label: str) -> str:
    """`totaltime` and `total` are one column in different releases, so are `avg` and `average`."""
    names = {"totaltime": "total", "average": "avg", "median": "med", "minimum": "min"}
    names |= {"maximum": "max"}
    return names.get(label, label)


def _is_rule(line: str) -> bool:
    return bool(line.strip()) and set(line) <= {"-", " "}


def _row(header: _Header, cells: list[str]) -> SummaryRow | None:
    values: dict[str, float] = {}
    name = ""
    for key, scale, cell in zip(header.keys, header.scales, cells, strict=True):
        if key == "name":
            name = cell.strip()[:1024]
            continue
        number = _number(cell)
        if number is not None:
            values[key] = number * (scale if scale is not None else 1.0)
    if not name or "count" not in values:
        return None
    count = int(values["count"])
    if header.is_size:
        return SummaryRow(name=name, count=count, size_bytes=values.get("total"))
    total = values.get("total")
    mean = values.get("avg")
    if mean is None and total is not None and count:
        mean = total / count
    if total is None and mean is not None:
        total = mean * count
    return SummaryRow(
        name=name,
        count=count,
        total_s=total,
        mean_s=mean,
        median_s=values.get("med"),
        min_s=values.get("min"),
        max_s=values.get("max"),
    )


def _number(cell: str) -> float | None:
    text = cell.strip().replace(",", "").rstrip("%")
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < 1e300 else None  # also drops nan, which compares false
