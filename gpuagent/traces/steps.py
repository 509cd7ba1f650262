"""Steps and phases: where each step begins, how steady it is, and prefill against decode.

Steps come from ProfilerStep marks, an engine's step labels, or NVTX ranges. vLLM (and SGLang)
label each step `execute_N_context_A(sq..sk..)_generation_B(sq..sk..)`, older vLLM without N, SGLang
also `step[DECODE bs=32]`: the make-up of the batch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuagent.traces.model import Annotation, Trace

I64 = NDArray[np.int64]
_Mark = tuple[Annotation, int | None, int | None]
_ENGINE = re.compile(
    r"execute_(?:\d{1,9}_)?context_(\d{1,9})(?:\(([\w,]{0,200})\))?"
    r"_generation_(\d{1,9})(?:\(([\w,]{0,200})\))?"
)
_SGLANG = re.compile(r"^step\[([A-Z_]{1,30})(?: bs=(\d{1,9}))?(?: toks=(\d{1,12}))?")
_SGLANG_PHASES = {"DECODE": "decode", "EXTEND": "prefill", "MIXED": "mixed"}
_SGLANG_PHASES |= {"TARGET_VERIFY": "decode", "DRAFT_EXTEND": "decode"}
_PROFILER = re.compile(r"^ProfilerStep#\d+")
_RANGE = re.compile(r"^\W*(?:step|iteration|iter|decode_step|forward_step)\b", re.IGNORECASE)
_PHASE = re.compile(r"\b(prefill|decode)\b|^(prefill|decode)|(prefill|decode)$", re.IGNORECASE)
_TOKENS = re.compile(r"(?:sq)?(\d{1,12})(?:(?:sk|_)(\d{1,12}))?")
STEP_LABEL = re.compile(
    r"ProfilerStep#\d{1,9}|"
    + _ENGINE.pattern
    + r"|step\[[A-Z_]{1,30}(?: bs=\d{1,9})?(?: toks=\d{1,12})?\]?"
    + r"|(?:prefill|decode|step|iteration|layer)(?:[ _#]\d{1,9})?",
    re.IGNORECASE,
)
"""Labels that say nothing about the user: all a scrubbed trace keeps of its named ranges."""


@dataclass(frozen=True, slots=True)
class StepStats:
    """Steps of the trace. Durations are between starts on the host, so they tile the run."""

    kind: str
    count: int
    mean_s: float | None
    p50_s: float | None
    p99_s: float | None
    cov: float | None


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """One phase. `gpu_s` is summed time of the GPU events that its host ranges launched."""

    phase: str
    steps: int
    host_s: float
    gpu_s: float | None
    gpu_frac: float | None
    query_tokens: int | None
    kv_tokens: int | None


@dataclass(frozen=True, slots=True)
class Steps:
    """`starts` are step borders on the host in nanoseconds, sorted, shape [steps]."""

    starts: I64
    stats: StepStats | None
    phases: tuple[PhaseRow, ...]


def steps_of(trace: Trace) -> Steps:
    """Steps and phases of the trace; empty where nothing marks them."""
    marks, kind = _marks(trace.annotations)
    starts = np.array(sorted({mark.start_ns for mark in marks}), np.int64)
    return Steps(starts, _stats(starts, marks, kind), _phases(trace))


_MARK_KINDS = (
    ("engine", _ENGINE),
    ("engine", _SGLANG),
    ("profiler", _PROFILER),
    ("range", _RANGE),
)


def _marks(annotations: tuple[Annotation, ...]) -> tuple[list[Annotation], str]:
    """The best kind of mark that is there, host side only."""
    host = [a for a in annotations if not a.on_gpu]
    for kind, pattern in _MARK_KINDS:
        marks = [a for a in host if pattern.search(a.name)]
        if marks:
            return marks, kind
    return [], ""


def _stats(starts: I64, marks: list[Annotation], kind: str) -> StepStats | None:
    if not len(starts):
        return None
    if len(starts) == 1:
        only = (marks[0].end_ns - marks[0].start_ns) * 1e-9
        return StepStats(kind, 1, only, only, None, None)
    # The last step has no following start: its own range ends it.
    last = max(mark.end_ns for mark in marks)
    lengths = np.diff(np.append(starts, max(last, int(starts[-1])))) * 1e-9
    mean = float(lengths.mean())
    return StepStats(
        kind=kind,
        count=len(starts),
        mean_s=mean,
        p50_s=float(np.percentile(lengths, 50)),
        p99_s=float(np.percentile(lengths, 99)) if len(lengths) >= 20 else None,
        cov=float(lengths.std(ddof=1)) / mean if mean > 0 else None,
    )


def _phases(trace: Trace) -> tuple[PhaseRow, ...]:
    found: dict[str, list[_Mark]] = {}
    for mark in trace.annotations:
        if mark.on_gpu:
            continue
        phase, query, kv = _phase_of(mark.name)
        if phase:
            found.setdefault(phase, []).append((mark, query, kv))
    if not found:
        return ()
    gpu, calls = trace.gpu, trace.host
    linked = np.flatnonzero(gpu.launch >= 0)
    launched = calls.start[gpu.launch[linked]] if len(linked) else np.empty(0, np.int64)
    order = np.argsort(launched, kind="stable")
    launched = launched[order]
    time = (gpu.end - gpu.start)[linked][order]
    total = np.concatenate(([0], np.cumsum(time)))
    all_gpu = float((gpu.end - gpu.start).sum()) * 1e-9
    rows = []
    for phase, listed in found.items():
        marks = _outermost(listed)
        begin = np.array([m.start_ns for m, _q, _k in marks], np.int64)
        end = np.array([m.end_ns for m, _q, _k in marks], np.int64)
        spent = total[np.searchsorted(launched, end)] - total[np.searchsorted(launched, begin)]
        gpu_s = float(spent.sum()) * 1e-9 if len(linked) else None
        queries = [q for _m, q, _k in marks if q is not None]
        keys = [k for _m, _q, k in marks if k is not None]
        rows.append(
            PhaseRow(
                phase=phase,
                steps=len(marks),
                host_s=float((end - begin).sum()) * 1e-9,
                gpu_s=gpu_s,
                gpu_frac=gpu_s / all_gpu if gpu_s is not None and all_gpu else None,
                query_tokens=sum(queries) if queries else None,
                kv_tokens=sum(keys) if keys else None,
            )
        )
    return tuple(sorted(rows, key=lambda row: row.phase))


def _outermost(marks: list[_Mark]) -> list[_Mark]:
    """Ranges that lie in no earlier range of the same phase: nested labels count once."""
    kept: list[_Mark] = []
    for mark in sorted(marks, key=lambda m: (m[0].start_ns, -m[0].end_ns)):
        if not kept or mark[0].start_ns >= kept[-1][0].end_ns:
            kept.append(mark)
    return kept


def _phase_of(name: str) -> tuple[str, int | None, int | None]:
    """Phase, query tokens and KV tokens that a label tells; an empty phase where it tells none."""
    engine = _ENGINE.search(name)
    if engine:
        context, generation = int(engine.group(1)), int(engine.group(3))
        phase = "mixed" if context and generation else "prefill" if context else "decode"
        parts = [_TOKENS.match(part or "") for part in (engine.group(2), engine.group(4))]
        known = [part for part in parts if part is not None]
        if not known:
            return phase, None, None
        keys = [int(part.group(2)) for part in known if part.group(2)]
        return phase, sum(int(part.group(1)) for part in known), sum(keys) if keys else None
    sglang = _SGLANG.match(name)
    if sglang:
        phase = _SGLANG_PHASES.get(sglang.group(1), "")
        tokens = sglang.group(3) or (sglang.group(2) if phase == "decode" else None)
        return phase, int(tokens) if tokens else None, None
    found = _PHASE.search(name[:200])
    if found:
        return next(group for group in found.groups() if group).lower(), None, None
    return "", None, None
