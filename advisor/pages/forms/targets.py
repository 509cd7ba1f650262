"""Rows of targets: metric, statistic, limit in the unit a person thinks in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.http import QueryDict

from advisor import units
from gpuagent.wire import SlaTarget
from gpuagent.wire.sla import HIGHER_IS_BETTER, STATISTICS

MAX_TARGETS = 12
FORM_UNITS: dict[str, tuple[str, float]] = {
    "ttft_s": ("ms", 1e-3),
    "itl_s": ("ms", 1e-3),
    "e2e_s": ("ms", 1e-3),
    "output_tok_s": ("tok/s", 1.0),
    "memory_bytes": ("GiB", float(1024**3)),
    "joules_per_token": ("J/token", 1.0),
}
"""Metric -> (unit in the form, factor to SI)."""

_STATISTICS = tuple(dict.fromkeys(s for names in STATISTICS.values() for s in names))


@dataclass(frozen=True, slots=True)
class MetricOption:
    """One choice of a row's metric, with what follows from it."""

    value: str
    name: str
    unit: str
    sign: str
    statistics: str


METRIC_OPTIONS = tuple(
    MetricOption(
        value=metric,
        name=units.METRIC_NAMES[metric],
        unit=FORM_UNITS[metric][0],
        sign="≥" if metric in HIGHER_IS_BETTER else "≤",
        statistics=" ".join(STATISTICS[metric]),
    )
    for metric in STATISTICS
)


class TargetRow(forms.Form):
    """One target. Rendered by hand, since each metric brings its unit and statistics along."""

    metric = forms.CharField(required=False)
    statistic = forms.CharField(required=False)
    limit = forms.CharField(required=False)

    options = METRIC_OPTIONS
    statistics = _STATISTICS

    @property
    def unit(self) -> str:
        return FORM_UNITS.get(self["metric"].value() or "", ("", 1.0))[0]

    @property
    def sign(self) -> str:
        return "≥" if self["metric"].value() in HIGHER_IS_BETTER else "≤"

    def payload(self) -> dict[str, Any]:
        """As the wire wants it; text that is no number stays text and is refused there."""
        self.is_valid()
        data = self.cleaned_data
        limit: float | str = data["limit"]
        try:
            limit = float(data["limit"]) * FORM_UNITS.get(data["metric"], ("", 1.0))[1]
        except ValueError:
            pass
        return {"metric": data["metric"], "statistic": data["statistic"], "limit": limit}


def target_rows(data: QueryDict | None, first: Sequence[SlaTarget] = ()) -> list[TargetRow]:
    """Rows as sent, with one more or one less where the button says so; `first` without data."""
    if data is None:
        return [_row(index, typed_target(target)) for index, target in enumerate(first)]
    rows = [
        tuple(data.get(f"t{index}-{name}", "") for name in ("metric", "statistic", "limit"))
        for index in range(MAX_TARGETS)
        if f"t{index}-metric" in data
    ]
    action, _, number = data.get("action", "").partition(":")
    if action == "add_target" and len(rows) < MAX_TARGETS:
        rows.append(("output_tok_s", "mean", ""))
    if action == "remove_target" and number.isdigit() and int(number) < len(rows):
        del rows[int(number)]
    return [_row(index, values) for index, values in enumerate(rows)]


def typed_target(target: SlaTarget) -> tuple[str, str, str]:
    """Metric, statistic and limit in the form's unit."""
    limit = target.limit / FORM_UNITS[target.metric][1]
    return target.metric, target.statistic, f"{limit:.12g}"


def _row(index: int, values: tuple[str, ...]) -> TargetRow:
    names = ("metric", "statistic", "limit")
    sent = {f"t{index}-{name}": value for name, value in zip(names, values, strict=True)}
    return TargetRow(sent, prefix=f"t{index}")
