"""Reads PyTorch Profiler (Kineto) JSON and JSON.gz into the event model, streaming.

Only complete events (`ph` X) of known categories count; categories compare case-insensitively and
the old names (Kernel, Memcpy, Runtime, Operator) are accepted. Annotations on GPU tracks are
ranges, never work; `cuda_sync` events are waits, never work. Source of the format: libkineto's
output_json.cpp and 21 files written between 2022 and 2026.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from gpuagent.traces.builder import LATEST_NS, TraceBuilder, pack_key
from gpuagent.traces.errors import TraceError
from gpuagent.traces.jsonstream import JsonStream
from gpuagent.traces.limits import Limits
from gpuagent.traces.model import KERNEL, MEMCPY, MEMSET, DeviceInfo, Facts, Trace
from gpuagent.traces.source import text_chunks

GPU, HOST, OP, NOTE, GPU_NOTE, COUNTER, PYTHON, OVERHEAD, IGNORE = range(9)

CATEGORIES: dict[str, tuple[int, int]] = {
    "kernel": (GPU, KERNEL),
    "concurrent_kernel": (GPU, KERNEL),
    "gpu_memcpy": (GPU, MEMCPY),
    "memcpy": (GPU, MEMCPY),
    "gpu_memset": (GPU, MEMSET),
    "memset": (GPU, MEMSET),
    "cuda_runtime": (HOST, 0),
    "cuda_driver": (HOST, 0),
    "hip_runtime": (HOST, 0),
    "hip_driver": (HOST, 0),
    "xpu_runtime": (HOST, 0),
    "xpu_driver": (HOST, 0),
    "privateuse1_runtime": (HOST, 0),
    "privateuse1_driver": (HOST, 0),
    "runtime": (HOST, 0),
    "driver": (HOST, 0),
    "cpu_op": (OP, 0),
    "operator": (OP, 0),
    "user_annotation": (NOTE, 0),
    "gpu_user_annotation": (GPU_NOTE, 0),
    "cuda_profiler_range": (COUNTER, 0),
    "python_function": (PYTHON, 0),
    "overhead": (OVERHEAD, 0),
}

KEPT_METADATA = frozenset(
    {
        "deviceProperties",
        "distributedInfo",
        "schemaVersion",
        "baseTimeNanoseconds",
        "cuda_runtime_version",
        "cuda_driver_version",
        "cupti_version",
        "hip_runtime_version",
        "hip_driver_version",
        "roctracer_version",
        "pytorch_version",
        "with_stack",
    }
)
_VERSIONS = tuple(key for key in sorted(KEPT_METADATA) if key.endswith("_version"))
_EXACT_FROM_US = float(1 << 43)
"""Above this a float64 of microseconds is coarser than 2 ns: decode decimals instead."""


_PROGRESS = re.compile(rb"\[\d+/\d+\] ")  # nsys prints `[5/8] Executing ...` before its tables


def is_kineto_start(head: bytes) -> bool:
    """True when the first bytes (already unzipped) open a JSON object or list."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    return text[:1] in (b"{", b"[") and not _PROGRESS.match(text)


def read_kineto(path: Path, limits: Limits | None = None) -> Trace:
    """The trace in `path`; a TraceError where the file is damaged, hostile or not a profile."""
    bounds = limits or Limits()
    stream = JsonStream(text_chunks(path, bounds), bounds, KEPT_METADATA)
    reader = _Reader(TraceBuilder(bounds))
    for batch in stream.batches():
        if stream.float_parser is None and too_coarse(batch):
            batch = stream.again(Decimal)
        reader.take(batch)
        reader.builder.check()
    if not reader.seen and not stream.metadata:
        raise TraceError(
            "not_a_trace",
            "The JSON holds no traceEvents. Export with torch.profiler's export_chrome_trace.",
        )
    return reader.finish(stream)


@dataclass(slots=True)
class _Counts:
    events: int = 0
    malformed: int = 0
    counters: int = 0
    python: int = 0
    gpu_notes: int = 0


class _Reader:
    """Turns decoded events into rows; knows Kineto's fields and nothing about files."""

    def __init__(self, builder: TraceBuilder) -> None:
        self.builder = builder
        self.count = _Counts()
        self.codes: dict[Any, tuple[int, int]] = {}
        self.overhead: list[tuple[int, int]] = []
        self.loading: list[tuple[int, int]] = []
        self.device_ids: dict[object, int] = {}
        self.integer_times = True

    @property
    def seen(self) -> int:
        return self.count.events

    def take(self, batch: list[Any]) -> None:
        """Store one batch of decoded events; broken ones are counted, not fatal."""
        codes, count, builder = self.codes, self.count, self.builder
        names, host, ops = builder.names, builder.host, builder.ops
        for event in batch:
            count.events += 1
            try:
                cat = event.get("cat")
                code = codes.get(cat)
                if code is None:
                    code = self._code(cat)
                what = code[0]
                if what == IGNORE or event.get("ph") != "X":
                    continue
                if what == PYTHON:
                    count.python += 1
                    continue
                start = event["ts"]
                length = event.get("dur", 0)
                if start.__class__ is int:
                    start *= 1000
                else:
                    self.integer_times = False
                    start = _ns(start)
                length = length * 1000 if length.__class__ is int else _ns(length)
                if not (-LATEST_NS < start < LATEST_NS and start + length < LATEST_NS):
                    raise ValueError("time out of range")
                if what == HOST:
                    name = names(_text(event.get("name", "")))
                    thread = builder.threads((event.get("pid"), event.get("tid")))
                    key = _key((event.get("args") or _NONE).get("correlation", -1))
                    host.name.append(name)
                    host.lane.append(thread)
                    host.key.append(key)
                    host.start.append(start)
                    host.length.append(length)
                elif what == GPU:
                    self._gpu(event, code[1], start, length)
                elif what == OP:
                    if len(ops) >= builder.limits.cpu_ops:
                        builder.ops_dropped += 1
                        continue
                    name = names(_text(event.get("name", "")))
                    thread = builder.threads((event.get("pid"), event.get("tid")))
                    ops.name.append(name)
                    ops.lane.append(thread)
                    ops.start.append(start)
                    ops.length.append(length)
                else:
                    self._range(what, event, start, start + length)
            except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
                count.malformed += 1

    def finish(self, stream: JsonStream) -> Trace:
        """The trace, with what the file says about itself."""
        meta, count, builder = stream.metadata, self.count, self.builder
        described = _devices(meta.get("deviceProperties"))
        devices: dict[object, DeviceInfo] = {}
        alike = _common(described)
        for key, device in self.device_ids.items():
            devices[key] = described.get(device) or replace(alike, id=device)
        distributed = meta.get("distributedInfo")
        facts = Facts(
            events=count.events,
            malformed=count.malformed,
            counter_ranges=count.counters,
            python_events=count.python or int(meta.get("with_stack") == 1),
            cpu_ops_dropped=builder.ops_dropped,
            gpu_annotations=count.gpu_notes,
            annotations_dropped=builder.annotations_dropped,
            names_dropped=builder.names.dropped,
            open_ended=stream.open_ended,
            profiler_overhead=tuple(self.overhead),
            module_loading=tuple(self.loading),
            rank=_whole(distributed, "rank"),
            world_size=_whole(distributed, "world_size"),
            versions={key: str(meta[key])[:40] for key in _VERSIONS if key in meta},
            time_unit="µs" if self.integer_times else "ns",
        )
        return builder.build("kineto", devices, facts)

    def _code(self, cat: object) -> tuple[int, int]:
        code = CATEGORIES.get(cat.lower(), (IGNORE, 0)) if isinstance(cat, str) else (IGNORE, 0)
        if len(self.codes) < 10_000:
            self.codes[cat] = code
        return code

    def _gpu(self, event: dict[str, Any], kind: int, start: int, length: int) -> None:
        builder = self.builder
        args = event.get("args") or _NONE
        device = args.get("device", event.get("pid", 0))
        lane = builder.lanes(device)
        if device not in self.device_ids:
            self.device_ids[device] = _index(device, len(self.device_ids))
        stream = _index(args.get("stream", event.get("tid", -1)), -1)
        name = builder.names(_text(event.get("name", "")))
        key = _key(args.get("correlation", -1))
        size = args.get("bytes") if kind != KERNEL else None
        gpu = builder.gpu
        if size is not None and 0 <= (size := _index(size, -1)) < LATEST_NS:
            builder.copy_at.append(len(gpu))
            builder.copy_size.append(size)
        gpu.name.append(name)
        gpu.lane.append(lane)
        gpu.key.append(key)
        gpu.start.append(start)
        gpu.length.append(length)
        builder.kind.append(kind)
        builder.stream.append(stream if -(1 << 31) <= stream < 1 << 31 else -1)

    def _range(self, what: int, event: dict[str, Any], start: int, end: int) -> None:
        if what == COUNTER:
            self.count.counters += 1
        elif what == OVERHEAD:
            if len(self.overhead) + len(self.loading) < self.builder.limits.annotations:
                loading = "load" in _text(event.get("name", "")).lower()
                (self.loading if loading else self.overhead).append((start, end))
        else:
            self.count.gpu_notes += what == GPU_NOTE
            self.builder.annotate(_text(event.get("name", "")), start, end, what == GPU_NOTE)


_NONE: dict[str, Any] = {}


def too_coarse(batch: list[Any]) -> bool:
    """True when a time stamp is too large for a float64 of microseconds to keep nanoseconds."""
    for event in batch:
        if event.__class__ is dict:
            stamp = event.get("ts")
            if stamp.__class__ is float and stamp > _EXACT_FROM_US and event.get("ph") == "X":
                return True
    return False


def _ns(value: object) -> int:
    """Nanoseconds from microseconds given as float, decimal, int or text; ValueError otherwise."""
    if isinstance(value, float):
        whole = int(value)
        return int(whole * 1000 + round((value - whole) * 1000))
    if isinstance(value, str) and len(value) < 64:
        try:
            value = Decimal(value)
        except InvalidOperation:
            raise ValueError("not a time") from None
    if isinstance(value, (Decimal, int)):
        if not -1e18 < value < 1e18:
            raise ValueError("time out of range")
        return round(value * 1000)
    raise ValueError("not a time")


def _text(value: object) -> str:
    return value if isinstance(value, str) else str(value)[:200]


def _key(value: object) -> int:
    return pack_key(0, _index(value, -1))


def _index(value: object, otherwise: int) -> int:
    """An integer from what profilers write for ids: int, float, decimal or hexadecimal text."""
    if isinstance(value, int):
        return int(value)
    try:
        if isinstance(value, (float, Decimal)):
            return int(value)
        if isinstance(value, str) and len(value) < 40:
            return int(value, 0)
    except (ValueError, OverflowError):
        return otherwise
    return otherwise


def _whole(table: object, key: str) -> int | None:
    value = table.get(key) if isinstance(table, dict) else None
    return value if isinstance(value, int) and 0 <= value < 1 << 31 else None


def _common(described: dict[int, DeviceInfo]) -> DeviceInfo:
    """What holds for a device that is not listed: the others' data where they are all alike."""
    kinds = {replace(device, id=0) for device in described.values()}
    return kinds.pop() if len(kinds) == 1 else DeviceInfo(id=0)


def _devices(listed: object) -> dict[int, DeviceInfo]:
    """deviceProperties by id; entries that are not what they should be are left out."""
    found: dict[int, DeviceInfo] = {}
    for entry in listed[:1024] if isinstance(listed, list) else []:
        if not isinstance(entry, dict) or not isinstance(entry.get("id"), int):
            continue
        name = entry.get("name")
        major, minor = _whole(entry, "computeMajor"), _whole(entry, "computeMinor")
        memory = entry.get("totalGlobalMem")
        found[entry["id"]] = DeviceInfo(
            id=entry["id"],
            name=name[:120] if isinstance(name, str) and name.strip() else None,
            sm_count=_whole(entry, "numSms"),
            memory_bytes=memory if isinstance(memory, int) and memory > 0 else None,
            compute_capability=None if major is None or minor is None else (major, minor),
        )
    return found
