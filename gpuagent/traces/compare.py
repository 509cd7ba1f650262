"""Before and after: what changed between two reports, and whether they can be compared at all.

Times per step are compared where both traces have steps, else shares. A difference in GPU, format,
step make-up or kernels is named first, because it may be the whole difference.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from gpuagent.traces.report import TraceReport
from gpuagent.traces.units import pct, seconds

_KERNEL_OVERLAP_MIN = 0.5
_STEP_TOKENS_RATIO = 1.2
_NOISE = 0.02
FRACTIONS = (
    "busy_frac",
    "idle_frac",
    "memcpy_frac",
    "exposed_memcpy_frac",
    "comm_frac",
    "exposed_comm_frac",
)


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure in both reports; None where a report lacks it. `of` names the denominator."""

    name: str
    before: float | None
    after: float | None
    change: float | None
    unit: str
    of: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """`comparable` is yes, with_care or no; `reasons` say why; figures follow in any case."""

    comparable: str
    reasons: tuple[str, ...]
    sentence: str
    per_step: bool
    figures: tuple[Difference, ...]
    idle_causes: tuple[Difference, ...]
    classes: tuple[Difference, ...]
    kernels_new: tuple[str, ...]
    kernels_gone: tuple[str, ...]
    findings_new: tuple[str, ...]
    findings_gone: tuple[str, ...]
    verdict_before: str
    verdict_after: str

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)


def compare(before: TraceReport, after: TraceReport) -> Comparison:
    """What changed from `before` to `after`."""
    blocks, cares = _comparability(before, after)
    steps = _steps(before), _steps(after)
    per_step = steps[0] is not None and steps[1] is not None
    figures = [_fraction(name, before, after) for name in FRACTIONS]
    figures.insert(0, _difference("window_s", before.window_s, after.window_s, "s", "the file"))
    step_before, step_after = _step_time(before), _step_time(after)
    if step_before is not None and step_after is not None:
        figures.insert(0, _difference("step_s", step_before, step_after, "s", "mean step"))
    names_before = {row["short"] for row in before.top_kernels}
    names_after = {row["short"] for row in after.top_kernels}
    codes_before = {finding.code for finding in before.findings}
    codes_after = {finding.code for finding in after.findings}
    return Comparison(
        comparable="no" if blocks else "with_care" if cares else "yes",
        reasons=(*blocks, *cares),
        sentence=_sentence(before, after, bool(blocks), step_before, step_after),
        per_step=per_step,
        figures=tuple(figures),
        idle_causes=_table(before.idle_causes, after.idle_causes, "fraction", "window"),
        classes=_classes(before, after, steps),
        kernels_new=tuple(sorted(names_after - names_before)),
        kernels_gone=tuple(sorted(names_before - names_after)),
        findings_new=tuple(sorted(codes_after - codes_before)),
        findings_gone=tuple(sorted(codes_before - codes_after)),
        verdict_before=before.verdict.bottleneck,
        verdict_after=after.verdict.bottleneck,
    )


def _comparability(before: TraceReport, after: TraceReport) -> tuple[list[str], list[str]]:
    """Reasons against a comparison, and reasons for care."""
    blocks, cares = [], []
    for label, report in (("before", before), ("after", after)):
        if report.verdict.bottleneck == "cannot_tell":
            blocks.append(f"The {label} trace abstains: {report.verdict.sentence}")
    if (before.window_s is None) != (after.window_s is None):
        blocks.append("One file is a summary without a timeline, the other has one.")
    gpus = [sorted({d["name"] for d in report.devices if d["name"]}) for report in (before, after)]
    if gpus[0] and gpus[1] and gpus[0] != gpus[1]:
        blocks.append(f"Different GPUs: {', '.join(gpus[0])} and {', '.join(gpus[1])}.")
    elif not (gpus[0] and gpus[1]) and before.devices and after.devices:
        cares.append("A file does not name its GPU, so that it is the same one is assumed.")
    if len(before.devices) != len(after.devices):
        blocks.append(
            f"Different numbers of devices: {len(before.devices)} and {len(after.devices)}."
        )
    if before.source.get("format") != after.source.get("format"):
        cares.append("Different profilers, whose overheads differ.")
    shared = _class_overlap(before, after)
    if shared is not None and shared < _KERNEL_OVERLAP_MIN:
        cares.append(
            f"The kernel classes share {pct(shared)} of GPU time only: the work may differ."
        )
    phases = [{row["phase"] for row in report.phases} for report in (before, after)]
    if phases[0] and phases[1] and phases[0] != phases[1]:
        blocks.append(
            f"Different phases: {'/'.join(sorted(phases[0]))} and {'/'.join(sorted(phases[1]))}."
        )
    tokens = [_tokens_per_step(report) for report in (before, after)]
    if tokens[0] and tokens[1]:
        ratio = max(tokens[0], tokens[1]) / min(tokens[0], tokens[1])
        if ratio > _STEP_TOKENS_RATIO:
            blocks.append(
                f"Different steps: {tokens[0]:.0f} and {tokens[1]:.0f} query tokens each."
            )
    elif _steps(before) is None or _steps(after) is None:
        cares.append("Without step marks in both files, shares are compared, not times per step.")
    return blocks, cares


def _class_overlap(before: TraceReport, after: TraceReport) -> float | None:
    one, other = before.kernel_classes, after.kernel_classes
    if one is None or other is None:
        return None
    return sum(min(one.get(name, 0.0), other.get(name, 0.0)) for name in one)


def _tokens_per_step(report: TraceReport) -> float | None:
    rows = [row for row in report.phases if row["query_tokens"] is not None]
    steps = sum(row["steps"] for row in rows)
    return sum(row["query_tokens"] for row in rows) / steps if steps else None


def _steps(report: TraceReport) -> int | None:
    return int(report.steps["count"]) if report.steps is not None else None


def _step_time(report: TraceReport) -> float | None:
    value = report.steps.get("mean_s") if report.steps is not None else None
    return float(value) if value is not None else None


def _fraction(name: str, before: TraceReport, after: TraceReport) -> Difference:
    return _difference(name, getattr(before, name), getattr(after, name), "fraction", "window")


def _difference(
    name: str, before: float | None, after: float | None, unit: str, of: str
) -> Difference:
    change = None if before is None or after is None else after - before
    return Difference(name, before, after, change, unit, of)


def _table(
    before: dict[str, float] | None, after: dict[str, float] | None, unit: str, of: str
) -> tuple[Difference, ...]:
    if before is None or after is None:
        return ()
    names = list(dict.fromkeys([*before, *after]))
    rows = [
        _difference(name, before.get(name, 0.0), after.get(name, 0.0), unit, of) for name in names
    ]
    return tuple(sorted(rows, key=lambda row: -abs(row.change or 0.0)))


def _classes(
    before: TraceReport, after: TraceReport, steps: tuple[int | None, int | None]
) -> tuple[Difference, ...]:
    """Seconds per step where both have steps, shares of GPU time otherwise."""
    if steps[0] and steps[1]:
        return _table(
            {row["name"]: row["time_s"] / steps[0] for row in before.class_table},
            {row["name"]: row["time_s"] / steps[1] for row in after.class_table},
            "s",
            "step",
        )
    return _table(before.kernel_classes, after.kernel_classes, "fraction", "GPU time")


def _sentence(
    before: TraceReport,
    after: TraceReport,
    blocked: bool,
    step_before: float | None,
    step_after: float | None,
) -> str:
    if blocked:
        return "These traces cannot be compared as before and after."
    if step_before and step_after:
        change = step_after / step_before - 1
        word = "longer" if change > 0 else "shorter"
        size = "unchanged within 2 %" if abs(change) < _NOISE else f"{pct(abs(change))} {word}"
        return (
            f"A step takes {seconds(step_after)} after {seconds(step_before)}: {size}."
            + _idle_change(before, after)
        )
    return "Times per step are not in both files." + _idle_change(before, after)


def _idle_change(before: TraceReport, after: TraceReport) -> str:
    if before.idle_frac is None or after.idle_frac is None:
        return ""
    return f" GPU idle {pct(before.idle_frac)} before, {pct(after.idle_frac)} after."
