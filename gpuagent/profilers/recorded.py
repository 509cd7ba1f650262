"""From a recorded file to what travels: scrubbed, analysed, announced."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Literal

from gpuagent.traces.analyse import analyse_file
from gpuagent.traces.errors import TraceError
from gpuagent.traces.kernel_names import CLASS_LABELS
from gpuagent.traces.report import TraceReport
from gpuagent.traces.scrub import scrub_file, scrub_text
from gpuagent.traces.units import pct, seconds
from gpuagent.wire import Quantity
from gpuagent.wire.trial import Artifact, ProfiledShare, RecordedTrace, TraceFinding

MOST_BYTES = 256 * 1024 * 1024
_MOST_SHARES = 25
_CPU_ONLY = "no GPU work was recorded"


def recorded_trace(
    raw: Path, target: Path, recorder: Literal["torch", "nsys"]
) -> tuple[RecordedTrace | None, str | None]:
    """Scrub `raw` into `target`, delete `raw`, analyse the copy. (trace, reason for none).

    The file as the profiler wrote it holds environment, paths and output of the process, so it
    leaves the disk here, whatever happens.
    """
    try:
        target.unlink(missing_ok=True)
        scrub_file(raw, target)
        report = analyse_file(target)
    except TraceError as error:
        target.unlink(missing_ok=True)
        return None, f"the recording cannot be analysed: {error.message}"
    finally:
        raw.unlink(missing_ok=True)
    artifact, reason = _announce(target)
    fields: dict[str, Any] = {"artifact": artifact, "artifact_reason": reason}
    if not report.devices and report.cpu is not None:
        return _cpu_trace(report, recorder, fields), None
    return _gpu_trace(report, recorder, fields), None


def _announce(path: Path) -> tuple[Artifact | None, str | None]:
    size = path.stat().st_size
    if size > MOST_BYTES:
        path.unlink()
        return None, f"the file has {size / 1e6:,.0f} MB, more than is sent"
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Artifact(name=path.name, sha256=digest, size_bytes=size), None


def _gpu_trace(
    report: TraceReport, recorder: Literal["torch", "nsys"], fields: dict[str, Any]
) -> RecordedTrace:
    verdict = report.verdict
    return RecordedTrace(
        recorder=recorder,
        work="gpu",
        bottleneck=verdict.bottleneck,
        confidence=verdict.confidence,  # type: ignore[arg-type]
        confidence_reason=verdict.confidence_reason,
        sentence=verdict.sentence,
        window_s=_quantity(report.window_s),
        busy_frac=_quantity(report.busy_frac),
        idle_frac=_quantity(report.idle_frac),
        shares=tuple(
            ProfiledShare(
                name=CLASS_LABELS.get(row["name"], row["name"]),
                count=row["count"],
                time_s=row["time_s"],
                frac=row["frac"],
            )
            for row in report.class_table[:_MOST_SHARES]
        ),
        findings=tuple(
            TraceFinding(
                code=row.code,
                title=row.title,
                detail=row.detail,
                change=row.change,
                strength=row.strength,
                basis=row.basis,
                recoverable_s=_quantity(row.recoverable_s, row.basis),
                recoverable_frac=_quantity(row.recoverable_frac, row.basis),
            )
            for row in report.findings
        ),
        **fields,
    )


def _cpu_trace(
    report: TraceReport, recorder: Literal["torch", "nsys"], fields: dict[str, Any]
) -> RecordedTrace:
    """The same for CPU operators: what takes the time, and no claim about a GPU."""
    cpu = report.cpu or {}
    classes = sorted(cpu["classes"].items(), key=lambda item: -item[1])
    top = cpu["top"][0] if cpu["top"] else None
    parts = ", ".join(f"{pct(frac)} {_word(name)}" for name, frac in classes[:3])
    largest = f" The largest is {top['name']} with {pct(top['self_frac'])}." if top else ""
    return RecordedTrace(
        recorder=recorder,
        work="cpu",
        bottleneck="cpu_work",
        confidence="medium",
        confidence_reason="operator times of the CPU, without hardware counters",
        sentence=(
            f"CPU work, {seconds(cpu['window_s'])}, busiest thread {pct(cpu['busy_frac'])} in "
            f"operators: {parts}.{largest}"
        ),
        window_s=_quantity(cpu["window_s"]),
        busy_frac=Quantity(reason=_CPU_ONLY),
        idle_frac=Quantity(reason=_CPU_ONLY),
        shares=tuple(
            ProfiledShare(
                name=scrub_text(row["name"])[:200] or "unnamed",
                count=row["count"],
                time_s=row["self_s"],
                frac=row["self_frac"],
            )
            for row in cpu["top"][:_MOST_SHARES]
        ),
        **fields,
    )


def _word(name: str) -> str:
    """A class inside a sentence: "copy, concat and index", but "GEMM"."""
    label = CLASS_LABELS.get(name, name)
    return label if label.isupper() else label[:1].lower() + label[1:]


def _quantity(value: float | None, reason: str = "not computable from this recording") -> Quantity:
    return Quantity(reason=reason) if value is None else Quantity(value=value)
