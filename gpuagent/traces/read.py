"""Opens any trace file: looks at its first bytes, picks the parser, refuses what cannot be read."""

from __future__ import annotations

import zlib
from pathlib import Path

from gpuagent.traces.errors import TraceError
from gpuagent.traces.kineto import is_kineto_start, read_kineto
from gpuagent.traces.limits import Limits
from gpuagent.traces.model import Summary, Trace
from gpuagent.traces.nsys_sqlite import SQLITE_MAGIC, read_nsys_sqlite
from gpuagent.traces.nsys_stats import is_stats_start, read_nsys_stats
from gpuagent.traces.source import GZIP_MAGIC, ZSTD_MAGIC, head

ACCEPTED = "PyTorch Profiler .json or .json.gz, Nsight Systems .sqlite, or nsys stats .csv or .txt"
_REPORTS = (".nsys-rep", ".qdrep", ".qdstrm")


def read_trace(path: Path, limits: Limits | None = None) -> Trace | Summary:
    """The file as a timeline or, for nsys stats tables, a summary. Raises TraceError."""
    bounds = limits or Limits()
    first = head(path)
    refuse_name(path.name)
    if not first:
        raise TraceError("empty", f"{path.name} is empty.")
    if first.startswith(SQLITE_MAGIC):
        return read_nsys_sqlite(path, bounds)
    refuse_known(first)
    opened = _unzipped(first) if first.startswith(GZIP_MAGIC) else first
    refuse_known(opened)
    if opened.startswith(GZIP_MAGIC):
        raise TraceError("nested_gzip", "The file is compressed twice. Unpack it once.")
    if is_kineto_start(opened):
        return read_kineto(path, bounds)
    if b"\x00" not in opened and is_stats_start(opened.decode("utf-8", errors="replace")):
        return read_nsys_stats(path, bounds)
    raise TraceError("unknown_format", f"The format is not known. Accepted: {ACCEPTED}.")


def refuse_name(name: str) -> None:
    """Raise for files whose name alone tells that they are no export."""
    if name.lower().endswith(_REPORTS):
        raise TraceError("nsys_report", _export_command(name))


def refuse_known(first: bytes) -> None:
    """Raise for formats that are recognised and deliberately not opened."""
    if first.startswith(ZSTD_MAGIC):
        raise TraceError("zstd", "The file is Zstandard-compressed. Unpack it with: zstd -d FILE")
    if first.startswith(b"PK\x03\x04"):
        raise TraceError("zip", "The file is a zip archive. Unpack it and choose the trace inside.")
    if first.startswith(b"PAR1"):
        raise TraceError(
            "parquet", "The file is Parquet. Export with: nsys export --type sqlite REPORT.nsys-rep"
        )
    if first[:1] == b"\x80" and first[1:2] in b"\x02\x03\x04\x05":
        raise TraceError(
            "pickle",
            "The file is a Python pickle (a PyTorch memory snapshot). Loading one can run code, so "
            "it is never opened here; the agent converts snapshots where they are recorded.",
        )


def _export_command(name: str) -> str:
    shown = "".join(c for c in name if c.isalnum() or c in "._-")[:100] or "REPORT.nsys-rep"
    return (
        "A .nsys-rep report has no public format. Export it where nsys is installed and use the "
        f"result: nsys export --type sqlite {shown}"
    )


def _unzipped(first: bytes) -> bytes:
    try:
        return zlib.decompressobj(wbits=31).decompress(first, 4096)
    except zlib.error:
        raise TraceError("malformed", "The gzip file is damaged at its start.") from None
