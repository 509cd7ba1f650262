"""A trace's report in words, bars and rows: everything the trace page shows is made here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from advisor import units
from advisor.pages.language import said
from advisor.traces.models import Trace
from gpuagent.traces.findings import SHOWN
from gpuagent.traces.idle import CAUSE_LABELS
from gpuagent.traces.kernel_names import CLASS_LABELS
from gpuagent.traces.verdict import CLASS_LABELS as VERDICT_LABELS

CAUSE_KEYS = {
    "host_launch": "ki1",
    "sync": "ki2",
    "step_border": "ki3",
    "transfer": "ki4",
    "unattributed": "ki5",
    "allocation": "ki6",
    "communication": "ki7",
    "kernel_gap": "ki8",
    "profiler": "ki9",
}
CAUSE_ADVICE = {
    "host_launch": gettext_lazy("Capture CUDA graphs, or compile"),
    "sync": gettext_lazy("Drop .item() and .cpu() from the step"),
    "step_border": gettext_lazy("Schedule and sample while the GPU works"),
    "transfer": gettext_lazy("Pin the memory, copy asynchronously"),
    "allocation": gettext_lazy("Warm up before recording, keep buffers"),
    "communication": gettext_lazy("Overlap it; look for a slow rank"),
    "kernel_gap": gettext_lazy("CUDA graphs shorten it"),
}
_ADVISED_FROM = 0.02
_SHOWN_FROM = 5e-4
# The colour a kernel class has wherever it is free; others take what is left, by share.
CLASS_KEYS = {
    "gemm": 1, "norm": 2, "attention": 3, "comm": 4, "elementwise": 5, "memcpy": 6,
    "copy_cat_index": 6, "moe": 7, "gemv": 7, "other": 8, "graph": 8,
}  # fmt: skip
MOST_CLASSES = 12
MOST_KERNELS = 25
GOOD_CLASSES = ("busy", "compute_bound", "bandwidth_bound")
_BRACKETS = re.compile(r" \([^()]*\)")


@dataclass(frozen=True, slots=True)
class Slice:
    """A piece of a bar and its row: left and width are percent of the bar."""

    key: str
    label: str
    frac: float
    seconds: float | None
    left: float = 0.0
    width: float = 0.0
    relative: float = 0.0
    advice: str = ""
    count: int | None = None
    mean_s: float | None = None

    @property
    def percent(self) -> str:
        return units.percent(self.frac, 3)

    @property
    def time(self) -> str:
        return units.seconds(self.seconds)

    @property
    def mean(self) -> str:
        return units.seconds(self.mean_s)


@dataclass(frozen=True, slots=True)
class KernelLine:
    """A kernel of the table. `core`: yes, no, unknown or not applicable, in words."""

    name: str
    full_name: str
    label: str
    core: str
    percent: str
    count: int
    mean: str
    time: str


@dataclass(frozen=True, slots=True)
class FindingLine:
    """A finding: shape by strength, what it is worth, what to change."""

    kind: str
    title: str
    worth: str
    detail: str
    change: str


@dataclass(frozen=True, slots=True)
class TracePage:
    """All parts; an empty tuple or None leaves a part out."""

    kind: str
    label: str
    title: str
    lede: str
    confidence: str
    facts: tuple[tuple[str, str], ...]
    trust: tuple[str, str]
    caveats: tuple[tuple[str, str, str], ...]
    window: str
    time_slices: tuple[Slice, ...]
    busy: str
    class_slices: tuple[Slice, ...]
    kernels: tuple[KernelLine, ...]
    cores: str
    findings: tuple[FindingLine, ...]
    evidence: tuple[tuple[str, str, str], ...]
    tables: tuple[tuple[str, tuple[str, ...], tuple[tuple[str, ...], ...]], ...]
    experiment: str
    cpu_label: str
    cpu_rows: tuple[tuple[str, str, str, str], ...]

    @property
    def top(self) -> tuple[FindingLine, ...]:
        return self.findings[:SHOWN]

    @property
    def more(self) -> tuple[FindingLine, ...]:
        """Folded away below the others."""
        return self.findings[SHOWN:]


def trace_kind(bottleneck: str, findings: int | None = None) -> str:
    """Shape and colour of a verdict: cannot tell, fine, fine with something to gain, or bound."""
    if bottleneck == "cannot_tell":
        return "na"
    if bottleneck in GOOD_CLASSES:
        return "warn" if findings else "good"
    return "bad"


def verdict_label(bottleneck: str) -> str:
    return VERDICT_LABELS.get(bottleneck, bottleneck)


def trace_page(trace: Trace) -> TracePage:
    """Everything the page of one trace shows."""
    report = trace.report
    verdict = report["verdict"]
    title, lede = split_sentence(verdict["sentence"])
    gpu_s = sum(row["time_s"] or 0.0 for row in report["class_table"])
    kernels = sum(row["count"] for row in report["class_table"])
    cpu = report["cpu"] if not report["devices"] else None
    return TracePage(
        kind=trace_kind(verdict["class"], len(report["findings"])),
        label=verdict["label"],
        title=title,
        lede=lede,
        confidence=f"{verdict['confidence'].capitalize()} confidence: "
        f"{verdict['confidence_reason']}".rstrip(".")
        + ".",
        facts=_facts(report),
        trust=_trust(report),
        caveats=tuple(_caveat(row) for row in report["reliability"]),
        window=units.seconds(report["window_s"]),
        time_slices=_time_slices(report),
        busy=_("Share of {time} of GPU time, {count} kernels and copies").format(
            time=units.seconds(gpu_s), count=f"{kernels:,}"
        ),
        class_slices=class_slices(report),
        kernels=tuple(_kernel(row) for row in report["top_kernels"][:MOST_KERNELS]),
        cores=_cores(report["tensor_core"]),
        findings=tuple(_finding(row) for row in report["findings"]),
        evidence=tuple((row["label"], _amount(row), row["of"]) for row in verdict["evidence"]),
        tables=tuple(table for table in _tables(report) if table[2]),
        experiment=verdict["experiment"],
        cpu_label=_cpu_label(cpu),
        cpu_rows=_cpu_rows(cpu),
    )


def split_sentence(sentence: str) -> tuple[str, str]:
    """(headline, rest): the first sentence without its brackets; the rest keeps everything."""
    first, dot, rest = sentence.partition(". ")
    headline = _BRACKETS.sub("", first).rstrip(".")
    bracketed = "; ".join(part.strip(" ()") for part in _BRACKETS.findall(first))
    detail = f"{bracketed[:1].upper()}{bracketed[1:]}. " if bracketed else ""
    return headline, (detail + rest if dot else detail.strip())


def class_keys(report: dict[str, Any]) -> dict[str, str]:
    """Kernel class -> CSS class of its colour, most time first."""
    taken: dict[str, int] = {}
    free = list(range(1, 8))
    for row in report["class_table"]:
        wanted = CLASS_KEYS.get(row["name"])
        number = wanted if wanted in free else (free[0] if free and wanted != 8 else 8)
        if number in free:
            free.remove(number)
        taken[row["name"]] = number
    return {name: f"k{number}" for name, number in taken.items()}


def class_slices(report: dict[str, Any]) -> tuple[Slice, ...]:
    """Kernel classes by time, the small ones in one row at the end."""
    keys = class_keys(report)
    rows = [row for row in report["class_table"] if (row["frac"] or 0) > 0]
    slices = [
        Slice(
            key=keys[row["name"]],
            label=CLASS_LABELS.get(row["name"], row["name"]),
            frac=row["frac"],
            seconds=row["time_s"],
            count=row["count"],
            mean_s=(row["time_s"] or 0.0) / row["count"] if row["count"] else None,
        )
        for row in rows[:MOST_CLASSES]
    ]
    return _placed(slices)


def _time_slices(report: dict[str, Any]) -> tuple[Slice, ...]:
    causes, window_s = report["idle_causes"], report["window_s"]
    if causes is None or not window_s or report["busy_frac"] is None:
        return ()
    # Fractions are of all devices together; the time is the mean of one.
    total_s = sum(device["window_s"] for device in report["devices"]) / len(report["devices"])
    slices = [Slice("kb", _("GPU busy"), report["busy_frac"], report["busy_frac"] * total_s)]
    ranked = sorted(causes.items(), key=lambda item: -item[1])
    slices += [
        Slice(
            key=CAUSE_KEYS[name],
            label=_sentence_case(CAUSE_LABELS[name]),
            frac=frac,
            seconds=frac * total_s,
            advice=str(CAUSE_ADVICE.get(name, "")) if frac >= _ADVISED_FROM else "",
        )
        for name, frac in ranked
        if frac >= _SHOWN_FROM
    ]
    return _placed(slices)


def _placed(slices: list[Slice]) -> tuple[Slice, ...]:
    """With the place of each in a bar of 100; a gap of 0.25 keeps neighbours apart."""
    largest = max((piece.frac for piece in slices), default=0.0) or 1.0
    placed, left = [], 0.0
    for piece in slices:
        size = 100 * piece.frac
        placed.append(
            Slice(
                **{
                    **{name: getattr(piece, name) for name in piece.__slots__},
                    "left": round(left, 2),
                    "width": round(max(size - 0.25, 0.1), 2),
                    "relative": round(100 * piece.frac / largest, 1),
                }
            )
        )
        left += size
    return tuple(placed)


def _facts(report: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    source, steps = report["source"], report["steps"]
    names = sorted({d["name"] for d in report["devices"] if d["name"]})
    count = len(report["devices"])
    facts = []
    if report["window_s"] is not None:
        text = units.seconds(report["window_s"])
        if steps is not None:
            text += f", {steps['count']:,} " + (_("step") if steps["count"] == 1 else _("steps"))
        facts.append((_("Window"), text))
    if count:
        name = ", ".join(names) or _("name not recorded")
        facts.append((_("GPU"), f"{count} × {name}" if count > 1 else name))
    if steps is not None and steps.get("p50_s") is not None:
        text = f"{units.seconds(steps['p50_s'])} median"
        if steps.get("p99_s") is not None:
            text += f", {units.seconds(steps['p99_s'])} p99"
        facts.append((_("Step time"), text))
    facts.append((_("Format"), FORMATS.get(source["format"], source["format"])))
    if source.get("world_size") and source["world_size"] > 1 and source.get("rank") is not None:
        facts.append((_("Rank"), f"{source['rank']} of {source['world_size']}"))
    return tuple(facts)


FORMATS = {
    "kineto": "PyTorch Profiler",
    "nsys-sqlite": "Nsight Systems",
    "nsys-stats": "nsys stats tables",
}
_SEVERITY = {"unreliable": "bad", "warn": "warn", "info": "info"}


def _trust(report: dict[str, Any]) -> tuple[str, str]:
    severities = {row["severity"] for row in report["reliability"]}
    for severity, kind, word in (
        ("unreliable", "bad", _("some figures are not usable")),
        ("warn", "warn", _("read with care")),
    ):
        if severity in severities:
            return kind, word
    return "good", _("nothing stands against it")


def _caveat(row: dict[str, Any]) -> tuple[str, str, str]:
    return _SEVERITY.get(row["severity"], "info"), row["message"], row["record"] or ""


def _kernel(row: dict[str, Any]) -> KernelLine:
    words = {"yes": _("yes"), "no": _("no"), "unknown": _("unknown")}
    return KernelLine(
        name=row["short"],
        full_name=row["name"],
        label=CLASS_LABELS.get(row["class"], row["class"]),
        core=str(words.get(row["tensor_core"], units.DASH)),
        percent=units.percent(row["frac"], 3),
        count=row["count"],
        mean=units.seconds(row["mean_s"]),
        time=units.seconds(row["time_s"]),
    )


def _cores(cores: dict[str, float | None] | None) -> str:
    if cores is None or cores.get("yes") is None:
        return str(_("No matrix products in this trace, so tensor cores are not judged."))
    parts = [
        f"{units.percent(cores[name], 3)} {word}"
        for name, word in (("yes", "on them"), ("no", "not"), ("unknown", "unknown by name"))
        if cores[name]
    ]
    return str(_("Tensor cores, share of matrix-product time: {parts}.")).format(
        parts=", ".join(parts)
    )


def _finding(row: dict[str, Any]) -> FindingLine:
    worth = _("What it would save is {basis}.").format(basis=said(row["basis"]))
    if row["recoverable_s"] is not None:
        worth = _("{time} recoverable ({basis}).").format(
            time=units.seconds(row["recoverable_s"]), basis=said(row["basis"])
        )
    return FindingLine(
        kind="bad" if row["strength"] == "strong" else "warn",
        title=row["title"],
        worth=worth,
        detail=row["detail"],
        change=row["change"],
    )


def _amount(row: dict[str, Any]) -> str:
    if row["unit"] == "fraction":
        return units.percent(row["value"], 3)
    if row["unit"] == "s":
        return units.seconds(row["value"])
    return f"{row['value']:,.6g}"


def _tables(
    report: dict[str, Any],
) -> list[tuple[str, tuple[str, ...], tuple[tuple[str, ...], ...]]]:
    """Folded tables: devices, phases, copies, API calls, fusion candidates."""
    percent, seconds = units.percent, units.seconds
    devices = report["devices"] if len(report["devices"]) > 1 else []
    api = sorted((report["api"] or {}).items(), key=lambda item: -(item[1]["time_s"] or 0))
    return [
        (
            _("Devices"),
            (_("GPU"), _("Busy"), _("Idle"), _("Exposed communication"), _("Exposed copies")),
            tuple(
                (
                    f"{d['id']} {d['name'] or ''}".strip(),
                    percent(d["busy_frac"], 3),
                    percent(d["idle_frac"], 3),
                    percent(d["exposed_comm_frac"], 3),
                    percent(d["exposed_memcpy_frac"], 3),
                )
                for d in devices
            ),
        ),
        (
            _("Prefill and decode"),
            (_("Phase"), _("Steps"), _("Host time"), _("GPU time")),
            tuple(
                (row["phase"], f"{row['steps']:,}", seconds(row["host_s"]), seconds(row["gpu_s"]))
                for row in report["phases"]
            ),
        ),
        (
            _("Copies"),
            (_("Direction"), _("Count"), _("Time"), _("Bytes"), _("Rate"), _("Share of link")),
            tuple(
                (
                    row["direction"],
                    f"{row['count']:,}",
                    seconds(row["time_s"]),
                    units.memory(row["size_bytes"]),
                    units.bandwidth(row["gb_s"] * 1e9 if row["gb_s"] is not None else None),
                    percent(row["link_frac"]),
                )
                for row in report["copies"]
            ),
        ),
        (
            _("Host calls"),
            (_("Call"), _("Count"), _("Time, all threads"), _("Longest")),
            tuple(
                (name, f"{row['count']:,}", seconds(row["time_s"]), seconds(row["max_s"]))
                for name, row in api[:20]
            ),
        ),
    ]


def _cpu_label(cpu: dict[str, Any] | None) -> str:
    if cpu is None:
        return ""
    return str(
        _("{ops} operators in {time}, busiest thread {busy} busy. No GPU work was recorded.")
    ).format(
        ops=f"{cpu['ops']:,}",
        time=units.seconds(cpu["window_s"]),
        busy=units.percent(cpu["busy_frac"], 3),
    )


def _cpu_rows(cpu: dict[str, Any] | None) -> tuple[tuple[str, str, str, str], ...]:
    if cpu is None:
        return ()
    return tuple(
        (
            row["name"],
            units.percent(row["self_frac"], 3),
            units.seconds(row.get("self_s")),
            f"{row['count']:,}",
        )
        for row in cpu["top"][:MOST_KERNELS]
    )


def _sentence_case(text: str) -> str:
    return text[:1].upper() + text[1:]
