"""One call from a file to its report: read, measure, decide."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpuagent.traces import thresholds as limit
from gpuagent.traces.analysis import Analysis, measure
from gpuagent.traces.busy import DeviceTime
from gpuagent.traces.cpu import cpu_work
from gpuagent.traces.findings import findings_of
from gpuagent.traces.idle import CAUSES
from gpuagent.traces.kernel_names import rules_version
from gpuagent.traces.kernels import KernelRow, TensorCores
from gpuagent.traces.limits import Limits
from gpuagent.traces.model import Summary, Trace
from gpuagent.traces.read import read_trace
from gpuagent.traces.reliability import caveats_of, unreliable
from gpuagent.traces.report import TraceReport
from gpuagent.traces.summary import report_summary
from gpuagent.traces.timeline import busiest_window
from gpuagent.traces.verdict import decide

NS = 1e-9


def analyse_file(path: str | Path, limits: Limits | None = None) -> TraceReport:
    """Report of one trace file. Raises TraceError with a sentence for the user."""
    where = Path(path)
    found = read_trace(where, limits)
    if isinstance(found, Summary):
        return report_summary(found, {"file": where.name, "bytes": where.stat().st_size})
    return report_trace(found, {"file": where.name, "bytes": where.stat().st_size})


def report_trace(trace: Trace, source: dict[str, Any] | None = None) -> TraceReport:
    """Report of a timeline that is already read. `source` adds what is known about the file."""
    found = measure(trace)
    caveats = caveats_of(found)
    has_gpu = bool(found.devices)
    work = found.work
    window_s = max((d.window_ns for d in found.devices), default=0) * NS
    ops = cpu_work(trace)
    return TraceReport(
        source=_source(trace, source or {}),
        verdict=decide(found, caveats),
        reliability=caveats,
        window_s=window_s if has_gpu else None,
        busy_frac=found.busy_frac if has_gpu else None,
        idle_frac=found.idle_frac if has_gpu else None,
        idle_causes={name: found.cause_frac(name) for name in CAUSES} if has_gpu else None,
        memcpy_frac=found.frac(found.memcpy_ns) if has_gpu else None,
        exposed_memcpy_frac=found.exposed_memcpy_frac if has_gpu else None,
        comm_frac=found.frac(found.comm_ns) if has_gpu else None,
        exposed_comm_frac=found.exposed_comm_frac if has_gpu else None,
        kernel_classes={row.name: row.frac for row in work.classes} if has_gpu else None,
        tensor_core=tensor_core_fracs(work.tensor_cores) if has_gpu else None,
        top_kernels=tuple(kernel_dict(row) for row in work.top),
        api={
            row.name: {
                "group": row.group,
                "count": row.count,
                "time_s": row.time_s,
                "max_s": row.max_s,
            }
            for row in found.host.api[:200]
        }
        if len(trace.host)
        else None,
        devices=tuple(_device(found, index) for index in range(len(found.devices))),
        findings=findings_of(found, caveats) if has_gpu else (),
        class_table=tuple(
            {**asdict(row), "window_frac": found.frac(row.time_s / NS)} for row in work.classes
        ),
        matrix=matrix_dict(work.tensor_cores, work.gpu_s) if has_gpu else None,
        tiny_kernels=asdict(work.tiny) if work.tiny is not None else None,
        host=_host(found) if len(trace.host) else None,
        copies=tuple({**asdict(row), "link_frac": row.link_frac} for row in found.copies),
        steps=asdict(found.steps.stats) if found.steps.stats is not None else None,
        phases=tuple(asdict(row) for row in found.steps.phases),
        fusion=tuple(asdict(row) for row in found.fusion),
        variance=() if unreliable(caveats, "kernel_classes") else _variance(work.top, found),
        cpu={
            **asdict(ops),
            "classes": dict(ops.classes),
            "complete": trace.facts.cpu_ops_dropped == 0,
        }
        if ops is not None
        else None,
        timeline=busiest_window(found),
    )


def tensor_core_fracs(cores: TensorCores) -> dict[str, float | None]:
    """Shares of GEMM time by verdict; None where the trace holds no GEMM."""
    total = cores.gemm_s
    if total <= 0:
        return {"yes": None, "no": None, "unknown": None}
    return {
        "yes": cores.yes_s / total,
        "no": cores.no_s / total,
        "unknown": cores.unknown_s / total,
    }


def matrix_dict(cores: TensorCores, gpu_s: float) -> dict[str, float | None]:
    """Seconds behind the tensor-core verdict, with convolution and matrix-vector kernels apart."""
    return {
        **asdict(cores),
        "gemv_frac": cores.gemv_s / gpu_s if gpu_s else None,
        "decided_yes_frac": cores.decided_yes_frac,
    }


def kernel_dict(row: KernelRow) -> dict[str, Any]:
    """One row of `top_kernels`; the class is called `class`."""
    table = asdict(row)
    table["class"] = table.pop("kernel_class")
    return table


def _source(trace: Trace, given: dict[str, Any]) -> dict[str, Any]:
    facts = trace.facts
    return {
        **given,
        "format": trace.format,
        "events": facts.events,
        "gpu_events": len(trace.gpu),
        "host_calls": len(trace.host),
        "cpu_ops": len(trace.ops) + facts.cpu_ops_dropped,
        "rank": facts.rank,
        "world_size": facts.world_size,
        "versions": facts.versions,
        "time_unit": facts.time_unit,
        "rules_version": rules_version(),
    }


def _device(found: Analysis, index: int) -> dict[str, Any]:
    device: DeviceTime = found.devices[index]
    window = device.window_ns or 1
    info = device.info
    return {
        "id": info.id,
        "name": info.name,
        "sm_count": info.sm_count,
        "memory_bytes": info.memory_bytes,
        "compute_capability": list(info.compute_capability) if info.compute_capability else None,
        "window_s": device.window_ns * NS,
        "gpu_events": device.events,
        "kernels": device.kernels,
        "streams": device.streams,
        "busy_s": device.busy_ns * NS,
        "idle_s": device.idle_ns * NS,
        "busy_frac": device.busy_ns / window if device.window_ns else 1.0,
        "idle_frac": device.idle_ns / window,
        "idle_causes": {name: ns / window for name, ns in found.causes[index].items()},
        "kernel_frac": device.kernel_ns / window,
        "compute_frac": device.compute_ns / window,
        "comm_frac": device.comm_ns / window,
        "exposed_comm_frac": device.exposed_comm_ns / window,
        "comm_overlap_frac": 1 - device.exposed_comm_ns / device.comm_ns
        if device.comm_ns
        else None,
        "memcpy_frac": device.memcpy_ns / window,
        "exposed_memcpy_frac": device.exposed_memcpy_ns / window,
        "memset_frac": device.memset_ns / window,
        "gaps": {
            "below_1us": device.gap_counts[0],
            "1_to_10us": device.gap_counts[1],
            "10_to_100us": device.gap_counts[2],
            "100us_to_1ms": device.gap_counts[3],
            "above_1ms": device.gap_counts[4],
        },
        "largest_gap_s": device.largest_gap_ns * NS,
        "same_stream_overlaps": device.same_stream_overlaps,
    }


def _host(found: Analysis) -> dict[str, Any]:
    host = found.host
    window = host.window_s
    launches = host.launches
    return {
        "sync_max_thread_s": host.sync_max_s,
        "sync_max_thread_frac": host.sync_max_s / window if window and found.devices else None,
        "sync_calls": host.sync_calls,
        "sync_threads": host.sync_threads,
        "alloc_calls": host.alloc_calls,
        "alloc_steady_calls": host.alloc_steady_calls,
        "alloc_calls_per_step": host.alloc_steady_calls / found.steps.stats.count
        if found.steps.stats is not None
        else None,
        "alloc_s": host.alloc_s,
        "alloc_steady_s": host.alloc_steady_s,
        "initialisation_s": host.initialisation_s,
        "captures": host.captures,
        "launches": asdict(launches) if launches is not None else None,
        "launches_per_step": launches.calls / found.steps.stats.count
        if launches is not None and found.steps.stats is not None
        else None,
    }


def _variance(top: tuple[KernelRow, ...], found: Analysis) -> tuple[dict[str, Any], ...]:
    """Kernels whose times scatter widely; shapes may differ, so this is context, not a finding."""
    return tuple(
        {"name": row.short, "count": row.count, "cov": row.cov, "frac": row.frac}
        for row in top
        if row.cov is not None
        and row.cov > limit.VARIANCE_COV
        and row.count > limit.VARIANCE_COUNT
        and found.frac(row.time_s / NS) >= limit.VARIANCE_TIME
    )
