"""Reads Nsight Systems .sqlite exports into the event model; the file is treated as hostile.

Opened read-only and immutable. Only tables on a whitelist are touched, an authorizer refuses every
other action, views, triggers and virtual tables refuse the file, a progress handler ends queries
that run too long. Columns are probed, never assumed: the schema differs between releases.
Environment variables, process output and thread names are never read.
"""

from __future__ import annotations

import re
import sqlite3
from array import array
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from gpuagent.traces.builder import LATEST_NS, TraceBuilder, pack_key
from gpuagent.traces.errors import TraceError, malformed, over_limit
from gpuagent.traces.limits import MIB, Limits
from gpuagent.traces.model import GRAPH, KERNEL, MEMCPY, MEMSET, DeviceInfo, Facts, Trace
from gpuagent.traces.source import check_size

SQLITE_MAGIC = b"SQLite format 3\x00"
TABLES = frozenset(
    {
        "StringIds",
        "CUPTI_ACTIVITY_KIND_KERNEL",
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        "CUPTI_ACTIVITY_KIND_MEMSET",
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        "CUPTI_ACTIVITY_KIND_DRIVER",
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
        "NVTX_EVENTS",
        "TARGET_INFO_GPU",
        "TARGET_INFO_CUDA_DEVICE",
        "META_DATA_EXPORT",
        "META_DATA_CAPTURE",
        "PROFILER_OVERHEAD",
        "ENUM_CUDA_MEMCPY_OPER",
        "ENUM_CUDA_MEM_KIND",
    }
)
_PAGE = 20_000
_COPY_SHORT = {"Host-to-Device": "HtoD", "Device-to-Host": "DtoH", "Device-to-Device": "DtoD"}
_COPY_SHORT |= {"Peer-to-Peer": "PtoP", "Host-to-Host": "HtoH"}
_COPY_KINDS = {1: "HtoD", 2: "DtoH", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
_MEMORY_KINDS = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed"}
_RANGE = re.compile(
    r"ProfilerStep|execute_(?:\d+_)?context|prefill|decode|\bstep\b|iteration|\biter\b|generat",
    re.IGNORECASE,
)
_MODULE_LOADING, _BUFFER_FULL = (6, 7), 8  # ENUM_CUPTI_OVERHEAD_TYPE
_NVTX_RANGES = (59, 60, 70, 71)  # push/pop and start/end, process and thread scope


def read_nsys_sqlite(path: Path, limits: Limits | None = None) -> Trace:
    """The trace in `path`; a TraceError where it is damaged, hostile or no Nsight export."""
    bounds = limits or Limits()
    check_size(path, bounds)
    try:
        with closing(open_export(path, bounds)) as database:
            return _Reader(database, TraceBuilder(bounds)).read()
    except sqlite3.OperationalError as error:
        if "interrupted" in str(error):
            bounds.check_time()
        raise malformed(f"the SQLite file is damaged or unusual ({error})") from None
    except (sqlite3.Error, OverflowError) as error:
        raise malformed(f"the SQLite file is damaged ({error})") from None
    except UnicodeDecodeError:  # SQLite's own message quotes broken text from the file
        raise malformed("the SQLite file is damaged") from None


def open_export(path: Path, limits: Limits) -> sqlite3.Connection:
    """A read-only connection that refuses writes, trusts nothing and stops when time is up."""
    address = path.resolve().as_uri() + "?mode=ro&immutable=1"
    database = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=True)
    database.text_factory = _decode
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 8 * MIB)
    database.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, 64 * 1024)
    database.setlimit(sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 50)
    database.setlimit(sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 2)
    database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    database.setlimit(sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 1)
    for pragma in ("trusted_schema=OFF", "query_only=ON", "mmap_size=0", "cache_size=-8192"):
        database.execute(f"PRAGMA {pragma}")
    database.execute("PRAGMA cell_size_check=ON")
    deadline = limits

    def out_of_time() -> int:
        try:
            deadline.check_time()
        except TraceError:
            return 1
        return 0

    database.set_progress_handler(out_of_time, 100_000)
    return database


def _decode(raw: bytes) -> str:
    return raw.decode("utf-8", errors="replace")


def _authorize(action: int, first: str | None, *_rest: str | None) -> int:
    """Allow selects that read whitelisted tables; nothing else, no functions, no pragmas."""
    if action == sqlite3.SQLITE_SELECT:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_READ and first in TABLES:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def probe(database: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    """Columns of the whitelisted tables; refuses a schema that holds code.

    From here on the connection can only select from those tables.
    """
    found: dict[str, tuple[str, ...]] = {}
    listed = database.execute("SELECT type, name, sql FROM sqlite_master").fetchmany(5001)
    if len(listed) > 5000:
        raise over_limit("more than 5,000 tables", "5,000")
    for kind, name, sql in listed:
        text = str(sql or "").upper()
        if kind in ("view", "trigger") or "CREATE VIRTUAL" in text:
            raise TraceError(
                "refused",
                "The SQLite file holds views, triggers or virtual tables, which an Nsight export "
                "never does. Export the report again with nsys.",
            )
        if kind == "table" and name in TABLES:
            if "GENERATED" in text or " AS (" in text:
                raise TraceError("refused", f"Table {name} holds computed columns.")
            rows = database.execute(f'PRAGMA table_info("{name}")').fetchmany(500)
            found[name] = tuple(str(row[1]) for row in rows)
    database.set_authorizer(_authorize)
    return found


class _Reader:
    """One pass per table; strings are resolved after the rows, so only needed names are kept."""

    def __init__(self, database: sqlite3.Connection, builder: TraceBuilder) -> None:
        self.database = database
        self.builder = builder
        self.columns = probe(database)
        self.rows = 0
        self.malformed = 0
        self.processes: dict[int, int] = {}
        self.device_ids: dict[object, int] = {}
        self.graph_blocks = 0
        self.physical = self._physical_devices()

    def read(self) -> Trace:
        """All tables into one trace."""
        if not self.columns.keys() & TABLES - {"META_DATA_EXPORT", "META_DATA_CAPTURE"}:
            raise TraceError(
                "not_a_trace",
                "This SQLite file is no Nsight Systems export. Create one with: "
                "nsys export --type sqlite REPORT.nsys-rep",
            )
        string_ids = array("q")
        self._kernels(string_ids)
        self._copies()
        self._memsets()
        self._graph_blocks()
        calls_from = len(string_ids)
        self._calls(string_ids)
        texts = self._strings(set(string_ids))
        self._names(string_ids, calls_from, texts)
        del string_ids
        self._ranges()
        return self.builder.build("nsys-sqlite", self._devices(), self._facts())

    # --- GPU work --------------------------------------------------------------------------

    def _kernels(self, string_ids: array[int]) -> None:
        table = "CUPTI_ACTIVITY_KIND_KERNEL"
        known = self.columns.get(table, ())
        name = next((c for c in ("demangledName", "shortName", "mangledName") if c in known), None)
        wanted = ["start", "end", "deviceId", "streamId", "correlationId", "globalPid", name]
        for *event, name_id in self._select(table, wanted):
            if self._gpu(KERNEL, *event):
                string_ids.append(name_id if name_id.__class__ is int else -1)

    def _copies(self) -> None:
        table = "CUPTI_ACTIVITY_KIND_MEMCPY"
        kinds = self._labels("ENUM_CUDA_MEMCPY_OPER", _COPY_SHORT, _COPY_KINDS)
        memory = self._labels("ENUM_CUDA_MEM_KIND", {}, _MEMORY_KINDS)
        wanted = ["start", "end", "deviceId", "streamId", "correlationId", "globalPid"]
        wanted += ["copyKind", "srcKind", "dstKind", "bytes"]
        builder = self.builder
        for *event, kind, source, target, size in self._select(table, wanted):
            if not self._gpu(MEMCPY, *event):
                continue
            ends = f"{memory.get(source, 'Unknown')} -> {memory.get(target, 'Unknown')}"
            builder.gpu.name.append(builder.names(f"Memcpy {kinds.get(kind, 'Unknown')} ({ends})"))
            if size.__class__ is int and 0 <= size < LATEST_NS:
                builder.copy_at.append(len(builder.gpu) - 1)
                builder.copy_size.append(size)

    def _memsets(self) -> None:
        wanted = ["start", "end", "deviceId", "streamId", "correlationId", "globalPid"]
        for event in self._select("CUPTI_ACTIVITY_KIND_MEMSET", wanted):
            if self._gpu(MEMSET, *event):
                self.builder.gpu.name.append(self.builder.names("Memset (Device)"))

    def _graph_blocks(self) -> None:
        wanted = ["start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphId"]
        for *event, graph in self._select("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", wanted):
            if self._gpu(GRAPH, *event):
                label = graph if graph.__class__ is int else "?"
                self.builder.gpu.name.append(self.builder.names(f"[CUDA graph replay] {label}"))
                self.graph_blocks += 1

    def _gpu(
        self,
        kind: int,
        start: Any,
        end: Any,
        device: Any,
        stream: Any,
        correlation: Any,
        process: Any,
    ) -> bool:
        """Append one event except its name (the caller does that); False where it is unusable."""
        if not _span(start, end):
            self.malformed += 1
            return False
        builder, gpu = self.builder, self.builder.gpu
        number = self._process(process)
        device_id = device if device.__class__ is int and 0 <= device < 4096 else 0
        if self.physical and process.__class__ is int:
            pid = (process >> 24) & 0xFFFFFF
            device_id = self.physical.get((pid, device_id), device_id)
        self.device_ids.setdefault(device_id, device_id)
        gpu.start.append(start)
        gpu.length.append(end - start)
        gpu.lane.append(builder.lanes(device_id))
        gpu.key.append(pack_key(number, correlation) if correlation.__class__ is int else -1)
        builder.kind.append(kind)
        known = stream.__class__ is int and -(1 << 31) <= stream < 1 << 31
        builder.stream.append(stream if known else -1)
        return True

    # --- host calls and names --------------------------------------------------------------

    def _calls(self, string_ids: array[int]) -> None:
        host, threads = self.builder.host, self.builder.threads
        wanted = ["start", "end", "globalTid", "correlationId", "nameId"]
        for table in ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER"):
            for start, end, thread, correlation, name_id in self._select(table, wanted):
                if not _span(start, end):
                    self.malformed += 1
                    continue
                tid = thread if thread.__class__ is int else 0
                process = self._process(tid)
                host.start.append(start)
                host.length.append(end - start)
                host.lane.append(threads(tid))
                known = correlation.__class__ is int
                host.key.append(pack_key(process, correlation) if known else -1)
                string_ids.append(name_id if name_id.__class__ is int else -1)

    def _process(self, global_id: Any) -> int:
        """Small number of the process in a globalPid or globalTid; 0 where the export has none."""
        if global_id.__class__ is not int:
            return 0
        pid = (global_id >> 24) & 0xFFFFFF
        number = self.processes.get(pid)
        if number is None:
            number = self.processes[pid] = len(self.processes)
        return number

    def _strings(self, wanted: set[int]) -> dict[int, str]:
        texts: dict[int, str] = {}
        limits = self.builder.limits
        for number, value in self._select("StringIds", ["id", "value"]):
            if number in wanted and isinstance(value, str) and len(texts) < limits.names:
                texts[number] = value[: limits.name_chars]
        return texts

    def _names(self, string_ids: array[int], calls_from: int, texts: dict[int, str]) -> None:
        """Kernels are the first GPU rows, so their names go in front of the copies' names."""
        builder = self.builder
        number = {key: builder.names(text) for key, text in texts.items()}
        missing = builder.names("(name not in the file)")
        kernels = array("i", (number.get(key, missing) for key in string_ids[:calls_from]))
        kernels.extend(builder.gpu.name)
        builder.gpu.name = kernels
        builder.host.name.extend(number.get(key, missing) for key in string_ids[calls_from:])

    # --- ranges, devices, metadata ---------------------------------------------------------

    def _ranges(self) -> None:
        known = self.columns.get("NVTX_EVENTS", ())
        if "start" not in known or "end" not in known:
            return
        texts: dict[int, str] = {}
        if "textId" in known:
            for number, value in self._select("StringIds", ["id", "value"]):
                if isinstance(value, str) and len(texts) < 100_000 and _RANGE.search(value[:400]):
                    texts[number] = value[:400]
        for start, end, kind, text, text_id in self._select(
            "NVTX_EVENTS", ["start", "end", "eventType", "text", "textId"]
        ):
            if kind not in _NVTX_RANGES or not _span(start, end):
                continue
            label = text if isinstance(text, str) else texts.get(text_id, "")
            if label and _RANGE.search(label[:400]):
                self.builder.annotate(label, start, end, on_gpu=False)

    def _physical_devices(self) -> dict[tuple[int, int], int]:
        """(pid, CUDA id) to GPU id, only where one CUDA id means different GPUs in the processes.

        Workers that each see one GPU (CUDA_VISIBLE_DEVICES) all call it device 0.
        """
        found: dict[tuple[int, int], int] = {}
        for pid, cuda, gpu in self._select("TARGET_INFO_CUDA_DEVICE", ["pid", "cudaId", "gpuId"]):
            if all(v.__class__ is int for v in (pid, cuda, gpu)) and len(found) < 10_000:
                found[(pid & 0xFFFFFF, cuda)] = gpu
        seen: dict[int, set[int]] = {}
        for (_pid, cuda), gpu in found.items():
            seen.setdefault(cuda, set()).add(gpu)
        return found if any(len(gpus) > 1 for gpus in seen.values()) else {}

    def _devices(self) -> dict[object, DeviceInfo]:
        described: dict[int, DeviceInfo] = {}
        wanted = ["id", "name", "smCount", "totalMemory", "memoryBandwidth", "computeMajor"]
        wanted.append("computeMinor")
        for number, name, units, memory, bandwidth, major, minor in self._select(
            "TARGET_INFO_GPU", wanted
        ):
            if number.__class__ is int and len(described) < 1024:
                capable = major.__class__ is int and minor.__class__ is int
                described[number] = DeviceInfo(
                    id=number,
                    name=name[:120] if isinstance(name, str) and name.strip() else None,
                    sm_count=units if _positive(units) else None,
                    memory_bytes=memory if _positive(memory) else None,
                    compute_capability=(major, minor) if capable else None,
                    memory_bandwidth_bytes_s=float(bandwidth) if _positive(bandwidth) else None,
                )
        return {
            key: described.get(number, DeviceInfo(id=number))
            for key, number in self.device_ids.items()
        }

    def _facts(self) -> Facts:
        versions: dict[str, str] = {}
        for name, value in self._select("META_DATA_EXPORT", ["name", "value"]):
            if name in ("EXPORT_SCHEMA_VERSION", "EXPORT_PRODUCT_VERSION"):
                versions[str(name).lower()] = str(value)[:40]
        mode = None
        for name, value in self._select("META_DATA_CAPTURE", ["name", "value"]):
            if name == "CUDA_GRAPH_TRACE_OPTIONS:MODE":
                mode = str(value)[:20].lower()
        overhead: list[tuple[int, int]] = []
        loading: list[tuple[int, int]] = []
        wanted = ["start", "end", "overheadType"]
        for start, end, kind in self._select("PROFILER_OVERHEAD", wanted):
            if _span(start, end) and kind != _BUFFER_FULL:
                (loading if kind in _MODULE_LOADING else overhead).append((start, end))
        most = self.builder.limits.annotations
        return Facts(
            events=self.rows,
            malformed=self.malformed,
            annotations_dropped=self.builder.annotations_dropped,
            names_dropped=self.builder.names.dropped,
            graph_mode_blocks=self.graph_blocks,
            graph_mode=mode,
            profiler_overhead=tuple(overhead[:most]),
            module_loading=tuple(loading[:most]),
            versions=versions,
        )

    # --- SQL -------------------------------------------------------------------------------

    def _select(self, table: str, wanted: Sequence[str | None]) -> Iterator[tuple[Any, ...]]:
        """Rows of one whitelisted table; a column that it lacks reads as NULL."""
        known = self.columns.get(table)
        if known is None:
            return
        listed = ", ".join(f'"{c}"' if c is not None and c in known else "NULL" for c in wanted)
        cursor = self.database.execute(f'SELECT {listed} FROM "{table}"')  # noqa: S608 - both whitelisted
        limits = self.builder.limits
        while rows := cursor.fetchmany(_PAGE):
            self.rows += len(rows)
            if self.rows > limits.rows:
                raise over_limit(f"more than {limits.rows:,} rows", f"{limits.rows:,}")
            self.builder.check()
            yield from rows

    def _labels(self, table: str, short: dict[str, str], known: dict[int, str]) -> dict[int, str]:
        labels = dict(known)
        for number, label in self._select(table, ["id", "label"]):
            if number.__class__ is int and isinstance(label, str) and len(labels) < 1000:
                labels[number] = short.get(label, label[:40])
        return labels


def _span(start: Any, end: Any) -> bool:
    return (
        start.__class__ is int
        and end.__class__ is int
        and -LATEST_NS < start < LATEST_NS
        and start <= end < LATEST_NS
    )


def _positive(value: Any) -> bool:
    return value.__class__ is int and 0 < value < 1 << 50
