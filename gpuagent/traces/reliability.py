"""What limits the trust in a trace, each with the figures it touches and what to record instead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from gpuagent.traces import thresholds as limit
from gpuagent.traces.analysis import Analysis
from gpuagent.traces.intervals import length, union
from gpuagent.traces.model import Trace
from gpuagent.traces.units import pct

Severity = Literal["info", "warn", "unreliable"]


@dataclass(frozen=True, slots=True)
class Caveat:
    """One limit. `affects` names JSON keys; `unreliable` figures must not feed a recommendation."""

    code: str
    severity: Severity
    affects: tuple[str, ...]
    message: str
    record: str | None = None


IDLE_KEYS = ("busy_frac", "idle_frac", "idle_causes")


def caveats_of(found: Analysis) -> tuple[Caveat, ...]:
    """All limits of one timeline, the gravest first."""
    trace = found.trace
    if not found.devices:
        return (_no_gpu(found),)
    caveats = [
        *_recording(found),
        *_window(found),
        *_linking(found),
        *_precision(found),
        *_file(trace),
    ]
    other = found.work.frac("other", "triton")
    if other > limit.OTHER_MAX:
        caveats.append(
            Caveat(
                "unknown_kernels",
                "info",
                ("kernel_classes",),
                f"{pct(other)} of GPU time is in kernels whose names no rule knows.",
            )
        )
    order = {"unreliable": 0, "warn": 1, "info": 2}
    return tuple(sorted(caveats, key=lambda caveat: order[caveat.severity]))


def unreliable(caveats: tuple[Caveat, ...], key: str) -> Caveat | None:
    """The caveat that makes one figure unusable, if any."""
    return next((c for c in caveats if c.severity == "unreliable" and key in c.affects), None)


def _no_gpu(found: Analysis) -> Caveat:
    trace = found.trace
    if trace.facts.counter_ranges:
        reason = "the file holds CUPTI counter ranges, which replay kernels and record no timeline"
    elif found.host.launches is not None:
        reason = (
            f"{found.host.launches.calls:,} launch calls were recorded but no kernel ran on a GPU"
        )
    elif len(trace.ops):
        reason = "the profiler recorded CPU operators only"
    else:
        reason = "the file holds no kernels, copies or sets"
    return Caveat(
        "no_gpu_activity",
        "unreliable",
        (*IDLE_KEYS, "kernel_classes", "tensor_core"),
        f"No GPU activity in this trace: {reason}.",
        "Record with activities=[CPU, CUDA] in torch.profiler, or nsys profile -t cuda,nvtx.",
    )


def _recording(found: Analysis) -> list[Caveat]:
    """Is the GPU work that ran in the file?"""
    caveats = []
    launches = found.host.launches
    facts = found.trace.facts
    if launches is not None:
        recorded = launches.kernels / launches.calls if launches.calls >= 50 else 1.0
        if recorded < limit.CAPTURE_RECORDED_MIN:
            why = (
                "this is a graph capture, which launches nothing"
                if found.host.captures
                else "most kernels are missing from the file"
            )
            caveats.append(
                Caveat(
                    "capture_only",
                    "unreliable",
                    (*IDLE_KEYS, "kernel_classes"),
                    f"{launches.calls:,} launch calls but {launches.kernels:,} kernels: {why}.",
                    "Record replays after the capture: start the profiler after warm-up.",
                )
            )
        elif (
            launches.graph_calls >= 2
            and launches.replays_recorded < limit.REPLAY_RECORDED_MIN * launches.graph_calls
            and not facts.graph_mode_blocks
        ):
            caveats.append(
                Caveat(
                    "replay_under_recorded",
                    "unreliable",
                    (*IDLE_KEYS, "kernel_classes"),
                    f"{launches.graph_calls:,} graph launches but kernels of only "
                    f"{launches.replays_recorded:,}: the other replays look idle and were not.",
                    "Record with --cuda-graph-trace=node (nsys) or a newer CUPTI.",
                )
            )
    if facts.graph_mode_blocks:
        caveats.append(
            Caveat(
                "graph_mode",
                "warn",
                ("kernel_classes", "tensor_core", "top_kernels"),
                f"{facts.graph_mode_blocks:,} graph replays were recorded as one block each: busy "
                "and idle hold, kernel shares do not.",
                "Record with nsys profile --cuda-graph-trace=node.",
            )
        )
    if found.work.kernels < limit.MIN_KERNELS:
        caveats.append(
            Caveat(
                "few_kernels",
                "unreliable",
                IDLE_KEYS,
                f"Too few kernels to judge: the file holds {found.work.kernels}.",
                "Record several whole steps after warm-up.",
            )
        )
    waited = found.frac(found.unrecorded_wait_ns)
    if len(found.devices) == 1 and waited > limit.UNRECORDED_WAIT:
        caveats.append(
            Caveat(
                "window_artefact",
                "unreliable",
                IDLE_KEYS,
                f"The host waited for the device during {pct(waited)} of the window while no work "
                "is recorded on it: GPU work is missing, so idle time is an artefact.",
                "Record several whole steps after warm-up.",
            )
        )
    return caveats


def _window(found: Analysis) -> list[Caveat]:
    caveats = []
    stats = found.steps.stats
    if stats is None:
        caveats.append(
            Caveat(
                "no_steps",
                "info",
                ("steps",),
                "No step marks in the file: figures are for the whole recording.",
                "Call profiler.step(), or keep the engine's step labels.",
            )
        )
    elif stats.count < limit.MIN_STEPS:
        caveats.append(
            Caveat(
                "few_steps",
                "warn",
                IDLE_KEYS,
                f"The window holds {stats.count} step{'s' if stats.count > 1 else ''}; "
                f"{limit.MIN_STEPS} or more are needed to call it typical.",
                "Record 3 to 10 active steps after warm-up.",
            )
        )
    gap = found.largest_gap_frac
    if gap > 0.5 and not any(d.window_ns == 0 for d in found.devices):
        caveats.append(
            Caveat(
                "one_gap",
                "warn",
                IDLE_KEYS,
                f"One gap is {pct(gap)} of the window: its cause decides the figure.",
                "Record a window that starts and ends with the workload.",
            )
        )
    overhead = found.trace.facts.profiler_overhead
    if overhead:
        spans = union(
            np.array([s for s, _e in overhead], np.int64),
            np.array([e for _s, e in overhead], np.int64),
        )
        share = length(spans) / max(found.host.end_ns - found.host.start_ns, 1)
        if share > 0.05:
            caveats.append(
                Caveat(
                    "profiler_overhead",
                    "warn",
                    IDLE_KEYS,
                    f"The profiler itself was active for {pct(share)} of the window.",
                    "Record without stacks and memory.",
                )
            )
    return caveats


def _linking(found: Analysis) -> list[Caveat]:
    if not len(found.trace.host):
        return [
            Caveat(
                "gpu_only",
                "warn",
                ("idle_causes", "api"),
                "The file holds no host calls: idle time is exact, its cause is not known.",
                "Record CPU activity too.",
            )
        ]
    linked = float((found.trace.gpu.launch >= 0).mean())
    if linked < limit.LINKED_MIN:
        return [
            Caveat(
                "unlinked",
                "warn",
                ("idle_causes",),
                f"{pct(linked)} of GPU events have their launch in the file; the rest was launched "
                "before the recording began.",
            )
        ]
    return []


def _precision(found: Analysis) -> list[Caveat]:
    caveats = []
    tiny = found.work.tiny
    if found.trace.facts.time_unit == "µs" and tiny is not None and tiny.median_s < 1e-5:
        caveats.append(
            Caveat(
                "whole_microseconds",
                "info",
                ("kernel_classes", "top_kernels"),
                "Times are whole microseconds in this file: single short kernels are rounded.",
            )
        )
    if found.trace.facts.python_events:
        caveats.append(
            Caveat(
                "with_stack",
                "info",
                ("idle_causes", "api"),
                "Python stacks were recorded, which slows the host: host-bound idle time is an "
                "upper bound.",
                "Record without with_stack for timing.",
            )
        )
    return caveats


def _file(trace: Trace) -> list[Caveat]:
    facts = trace.facts
    caveats = []
    lost = facts.malformed
    if lost:
        share = lost / max(facts.events, 1)
        caveats.append(
            Caveat(
                "malformed_events",
                "warn" if share > 0.01 else "info",
                IDLE_KEYS if share > 0.01 else (),
                f"{lost:,} of {facts.events:,} events could not be read and were left out.",
            )
        )
    if facts.open_ended:
        caveats.append(
            Caveat(
                "open_ended",
                "warn",
                IDLE_KEYS,
                "The event list has no end: the file may have been cut.",
            )
        )
    if facts.names_dropped:
        caveats.append(
            Caveat(
                "many_names",
                "warn",
                ("kernel_classes", "top_kernels"),
                "The file holds more distinct names than are kept; the rest share one row.",
            )
        )
    return caveats
