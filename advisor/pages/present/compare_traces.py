"""Before and after in rows: what changed, by how much, and whether it may be compared."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from advisor import units
from advisor.pages.present.traces import verdict_label
from gpuagent.traces.compare import Comparison, Difference
from gpuagent.traces.idle import CAUSE_LABELS
from gpuagent.traces.kernel_names import CLASS_LABELS

_SHOWN_FROM = 5e-4
NAMES = {
    "step_s": gettext_lazy("Step time, mean"),
    "window_s": gettext_lazy("Window"),
    "busy_frac": gettext_lazy("GPU busy"),
    "idle_frac": gettext_lazy("GPU idle"),
    "memcpy_frac": gettext_lazy("Copies"),
    "exposed_memcpy_frac": gettext_lazy("Exposed copies"),
    "comm_frac": gettext_lazy("Communication"),
    "exposed_comm_frac": gettext_lazy("Exposed communication"),
}


@dataclass(frozen=True, slots=True)
class ChangeLine:
    """One figure in both traces. change: difference in points, or relative for times."""

    name: str
    before: str
    after: str
    change: str
    of: str


@dataclass(frozen=True, slots=True)
class ComparisonPage:
    kind: str
    word: str
    sentence: str
    reasons: tuple[str, ...]
    verdict_before: str
    verdict_after: str
    groups: tuple[tuple[str, tuple[ChangeLine, ...]], ...]
    kernels_new: tuple[str, ...]
    kernels_gone: tuple[str, ...]


_WORDS = {
    "yes": ("good", gettext_lazy("Comparable")),
    "with_care": ("warn", gettext_lazy("Comparable with care")),
    "no": ("bad", gettext_lazy("Not comparable")),
}


def comparison_page(found: Comparison) -> ComparisonPage:
    """Everything the page of two traces shows."""
    kind, word = _WORDS[found.comparable]
    groups = (
        (_("Figures"), _lines(found.figures, NAMES)),
        (_("Idle causes"), _lines(found.idle_causes, CAUSE_LABELS)),
        (_("Kernel classes"), _lines(found.classes, CLASS_LABELS)),
    )
    return ComparisonPage(
        kind=kind,
        word=str(word),
        sentence=found.sentence,
        reasons=found.reasons,
        verdict_before=verdict_label(found.verdict_before),
        verdict_after=verdict_label(found.verdict_after),
        groups=tuple((str(name), lines) for name, lines in groups if lines),
        kernels_new=found.kernels_new,
        kernels_gone=found.kernels_gone,
    )


def _lines(rows: tuple[Difference, ...], names: dict[str, str]) -> tuple[ChangeLine, ...]:
    return tuple(
        ChangeLine(
            name=_sentence_case(str(names.get(row.name, row.name))),
            before=_value(row, row.before),
            after=_value(row, row.after),
            change=_change(row),
            of=row.of,
        )
        for row in rows
        if max(row.before or 0.0, row.after or 0.0) >= (_SHOWN_FROM if row.unit != "s" else 1e-12)
    )


def _value(row: Difference, value: float | None) -> str:
    return units.percent(value, 3) if row.unit == "fraction" else units.seconds(value)


def _change(row: Difference) -> str:
    """Points for shares, percent for times; a dash where there is no base."""
    if row.before is None or row.after is None:
        return units.DASH
    if row.unit == "fraction":
        text = f"{units.number(100 * (row.after - row.before))} points"
        return text if row.after <= row.before else f"+{text}"
    if not row.before:
        return units.DASH
    relative = row.after / row.before - 1
    text = units.percent(relative)
    return text if relative <= 0 else f"+{text}"


def _sentence_case(text: str) -> str:
    return text[:1].upper() + text[1:]
