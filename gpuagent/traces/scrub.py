"""Writes a copy of a trace without secrets: environment, command lines, host, user, streams, paths.

An nsys export carries the whole environment of the profiled process and its output; Kineto files
carry host, user and job keys and Python source paths. The agent scrubs before upload and the server
again: what is kept is a whitelist of what the analysis reads, never a blacklist of what to drop.
"""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

from gpuagent.traces.errors import TraceError, malformed
from gpuagent.traces.jsonstream import JsonStream
from gpuagent.traces.kineto import (
    CATEGORIES,
    COUNTER,
    GPU_NOTE,
    KEPT_METADATA,
    NOTE,
    PYTHON,
    is_kineto_start,
    too_coarse,
)
from gpuagent.traces.limits import Limits
from gpuagent.traces.nsys_sqlite import SQLITE_MAGIC, TABLES, open_export, probe
from gpuagent.traces.read import read_trace
from gpuagent.traces.source import head, text_chunks
from gpuagent.traces.steps import STEP_LABEL

_ARGS = (
    *("device", "stream", "correlation", "bytes", "grid", "block", "kind", "External id"),
    *("registers per thread", "shared memory", "blocks per SM", "warps per SM"),
    *("est. achieved occupancy %", "memory bandwidth (GB/s)", "Input Dims", "Input type"),
)
_DEVICE_KEYS = ("id", "name", "totalGlobalMem", "computeMajor", "computeMinor", "numSms")
_DISTRIBUTED_KEYS = ("backend", "rank", "world_size")
_META_KEYS = ("EXPORT_SCHEMA_VERSION", "EXPORT_PRODUCT_VERSION", "CUDA_GRAPH_TRACE_OPTIONS:MODE")
_SAFE_TABLES = TABLES - {"META_DATA_EXPORT", "META_DATA_CAPTURE", "NVTX_EVENTS", "StringIds"}
_SECRET = re.compile(
    r"(?i)(?:api[_-]?key|token|secret|passw(?:or)?d|authorization|bearer)[\"'=:\s]+\S+"
    r"|\b(?:sk|hf|ghp|gho|glpat|xox[bap])[-_][A-Za-z0-9_\-]{8,}|\bAKIA[0-9A-Z]{12,}"
    r"|(?:/home/|/Users/|/root/|[A-Z]:\\Users\\)[^\s\"',;:)]*"
    r"|[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}"
)


def scrub_text(text: str) -> str:
    """The text with anything that looks like a credential, a home path or an address blanked."""
    return _SECRET.sub("[removed]", text)


def scrub_file(source: Path, target: Path, limits: Limits | None = None) -> None:
    """Write a scrubbed copy of any accepted trace to `target`; raises TraceError as reading does.

    Kineto becomes .json.gz content, an nsys export a new database, stats tables scrubbed text.
    """
    bounds = limits or Limits()
    if head(source).startswith(SQLITE_MAGIC):
        scrub_nsys(source, target, bounds)
        return
    opened = next(iter(text_chunks(source, bounds)), "")
    if is_kineto_start(opened[:4096].encode()):
        scrub_kineto(source, target, bounds)
        return
    read_trace(source, bounds)
    with target.open("w", encoding="utf-8") as out:
        for line in _lines(text_chunks(source, bounds)):
            out.write(scrub_text(line))


def scrub_kineto(source: Path, target: Path, limits: Limits | None = None) -> None:
    """Write a gzip'd Kineto trace that holds only what the analysis reads, streaming."""
    bounds = limits or Limits()
    stream = JsonStream(text_chunks(source, bounds), bounds, KEPT_METADATA)
    with gzip.open(target, "wt", encoding="utf-8", compresslevel=6) as out:
        out.write('{"traceEvents": [\n')
        first, stacks = True, False
        for batch in stream.batches():
            if stream.float_parser is None and too_coarse(batch):
                batch = stream.again(Decimal)
            kept = [event for raw in batch if (event := _event(raw)) is not None]
            stacks = stacks or any(_is_python(raw) for raw in batch)
            if kept:
                text = ",\n".join(json.dumps(event, allow_nan=True) for event in kept)
                out.write(text if first else ",\n" + text)
                first = False
        out.write("\n]")
        if stacks:
            stream.metadata["with_stack"] = 1
        for key, value in _metadata(stream.metadata).items():
            out.write(f", {json.dumps(key)}: {json.dumps(value)}")
        out.write("}\n")


def _event(raw: Any) -> dict[str, Any] | None:
    """One event with known fields only; None for categories that no figure needs."""
    if not isinstance(raw, dict) or raw.get("ph") != "X":
        return None
    cat = raw.get("cat")
    code = CATEGORIES.get(cat.lower()) if isinstance(cat, str) else None
    if code is None or code[0] == PYTHON:
        return None
    name = raw.get("name")
    if code[0] in (NOTE, GPU_NOTE, COUNTER):
        label = STEP_LABEL.match(str(name))  # any other range may be named by the user
        name = label.group() if label else "range"
    args = raw.get("args")
    event: dict[str, Any] = {"ph": "X", "cat": cat, "name": scrub_text(str(name))[:4096]}
    for key in ("pid", "tid", "ts", "dur"):
        if isinstance(raw.get(key), (int, float)):
            event[key] = raw[key]
        elif isinstance(raw.get(key), Decimal):
            event[key] = str(raw[key])  # keeps every digit, and the reader takes it
        elif isinstance(raw.get(key), str):
            event[key] = scrub_text(raw[key])[:40]
    if isinstance(args, dict):
        event["args"] = {key: _plain(args[key]) for key in _ARGS if key in args}
    return event


def _is_python(raw: Any) -> bool:
    return isinstance(raw, dict) and raw.get("cat") == "python_function"


def _plain(value: Any) -> Any:
    """A number, a short scrubbed text, or a list of such; anything else is dropped."""
    if isinstance(value, (int, float)) or value is None:
        return value
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, str):
        return scrub_text(value)[:120]
    if isinstance(value, list):
        return [_plain(item) for item in value[:64]]
    return None


def _metadata(meta: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {
        key: value for key, value in meta.items() if isinstance(value, (int, float))
    }
    devices = meta.get("deviceProperties")
    if isinstance(devices, list):
        kept["deviceProperties"] = [
            {key: _plain(device[key]) for key in _DEVICE_KEYS if key in device}
            for device in devices[:1024]
            if isinstance(device, dict)
        ]
    distributed = meta.get("distributedInfo")
    if isinstance(distributed, dict):
        kept["distributedInfo"] = {
            key: _plain(distributed[key]) for key in _DISTRIBUTED_KEYS if key in distributed
        }
    return kept


def scrub_nsys(source: Path, target: Path, limits: Limits | None = None) -> None:
    """Write a new database with the whitelisted tables; environment, streams and threads stay out.

    Numbers are copied from the event tables, texts only where a kernel, an API or a step label
    needs them.
    """
    bounds = limits or Limits()
    if target.exists():
        raise TraceError("exists", f"{target.name} exists already.")
    try:
        with closing(open_export(source, bounds)) as old, closing(sqlite3.connect(target)) as new:
            columns = probe(old)
            for table in sorted(columns.keys() & _SAFE_TABLES):
                _copy_table(old, new, table, columns[table])
            _copy_metadata(old, new, columns)
            _copy_ranges(old, new, columns)
            _copy_strings(old, new, columns)
            new.commit()
    except (sqlite3.Error, UnicodeDecodeError):
        target.unlink(missing_ok=True)
        raise malformed("the SQLite file is damaged") from None


def _copy_table(
    old: sqlite3.Connection, new: sqlite3.Connection, table: str, columns: tuple[str, ...]
) -> None:
    """Numbers of one table; texts survive only as names of GPUs and of codes."""
    kept = [c for c in columns if re.fullmatch(r"\w{1,64}", c)]
    listed = ", ".join(f'"{c}"' for c in kept)
    new.execute(f'CREATE TABLE "{table}" ({listed})')
    marks = ", ".join("?" * len(kept))
    cursor = old.execute(f'SELECT {listed} FROM "{table}"')  # noqa: S608 - whitelisted
    while rows := cursor.fetchmany(20_000):
        new.executemany(
            f'INSERT INTO "{table}" VALUES ({marks})',  # noqa: S608 - whitelisted
            ([_cell(*pair) for pair in zip(kept, row, strict=True)] for row in rows),
        )


def _cell(column: str, value: Any) -> Any:
    if isinstance(value, (int, float)) or value is None:
        return value
    if column in ("name", "label") and isinstance(value, str):
        return scrub_text(value)[:120]
    return None


def _copy_metadata(
    old: sqlite3.Connection, new: sqlite3.Connection, columns: dict[str, tuple[str, ...]]
) -> None:
    for table in ("META_DATA_EXPORT", "META_DATA_CAPTURE"):
        if not {"name", "value"} <= set(columns.get(table, ())):
            continue
        new.execute(f'CREATE TABLE "{table}" (name TEXT, value TEXT)')
        for name, value in old.execute(f'SELECT name, value FROM "{table}"'):  # noqa: S608
            if name in _META_KEYS:
                new.execute(
                    f'INSERT INTO "{table}" VALUES (?, ?)',  # noqa: S608 - whitelisted
                    (name, scrub_text(str(value))[:40]),
                )


def _copy_ranges(
    old: sqlite3.Connection, new: sqlite3.Connection, columns: dict[str, tuple[str, ...]]
) -> None:
    """Only step and phase labels: other NVTX texts may hold anything."""
    known = columns.get("NVTX_EVENTS", ())
    if not {"start", "end", "eventType"} <= set(known):
        return
    labels: dict[int, str] = {}
    if "textId" in known and "StringIds" in columns:
        for number, value in old.execute("SELECT id, value FROM StringIds"):
            if isinstance(value, str) and STEP_LABEL.fullmatch(value.strip()):
                labels[number] = value.strip()
    text = '"text"' if "text" in known else "NULL"
    text_id = '"textId"' if "textId" in known else "NULL"
    new.execute("CREATE TABLE NVTX_EVENTS (start, end, eventType, text)")
    cursor = old.execute(f'SELECT "start", "end", "eventType", {text}, {text_id} FROM NVTX_EVENTS')  # noqa: S608
    for start, end, kind, value, number in cursor:
        label = value.strip() if isinstance(value, str) else labels.get(number, "")
        if STEP_LABEL.fullmatch(label) and all(isinstance(v, int) for v in (start, end, kind)):
            new.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?)", (start, end, kind, label))


def _copy_strings(
    old: sqlite3.Connection, new: sqlite3.Connection, columns: dict[str, tuple[str, ...]]
) -> None:
    """Only the strings that kernels and API calls point to."""
    wanted: set[int] = set()
    for table, names in (
        ("CUPTI_ACTIVITY_KIND_KERNEL", ("demangledName", "shortName", "mangledName")),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", ("nameId",)),
        ("CUPTI_ACTIVITY_KIND_DRIVER", ("nameId",)),
    ):
        for name in names:
            if name in columns.get(table, ()):
                rows = old.execute(f'SELECT DISTINCT "{name}" FROM "{table}"')  # noqa: S608
                wanted.update(row[0] for row in rows if isinstance(row[0], int))
    new.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
    if "StringIds" not in columns:
        return
    for number, value in old.execute("SELECT id, value FROM StringIds"):
        if number in wanted and isinstance(value, str):
            new.execute(
                "INSERT OR IGNORE INTO StringIds VALUES (?, ?)",
                (number, scrub_text(value)[:1024]),
            )


def _lines(chunks: Iterator[str]) -> Iterator[str]:
    rest = ""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split("\n")
        for line in whole:
            yield line + "\n"
    if rest:
        yield rest
