"""Decode steps with other forms and dtypes of the KV cache, and with a prefix that is cached."""

from __future__ import annotations

from advisor import units
from advisor.charts import figure
from advisor.charts.base import Chart, ChartInput, Column, empty, nothing_yet
from advisor.charts.device import in_focus
from advisor.charts.dots import Dot, dots_figure, median_interval
from gpuagent.wire import Quantity, Samples
from gpuagent.wire.inside import CacheDetails
from gpuagent.wire.trial import KvCacheResult

_NAMES = {"dynamic": "Growing", "static": "Static", "quantised": "Quantised"}
_ID, _SHORT, _TITLE = "kv-forms", "Forms", "Decode steps by form of the KV cache"

_Entry = tuple[str, Samples, Quantity, str]
"""Name, step times, bytes, note."""


def forms(data: ChartInput) -> Chart:
    """Median decode step of each form at one context; dtypes are cast back for each step."""
    found = in_focus(data, KvCacheResult)
    details = found[1].details if found is not None else None
    if found is None or details is None:
        return empty(_ID, _SHORT, _TITLE, nothing_yet(data, "forms of the KV cache"))
    entries = _entries(details)
    ran = [(name, median_interval(seconds), size) for name, seconds, size, _ in entries
           if seconds.n]  # fmt: skip
    if not ran:
        return empty(_ID, _SHORT, _TITLE, "No form of the KV cache ran.")
    scale, unit = figure.time_scale(max(span[0] for _, span, _ in ran))
    name, (step_s, *_), _ = min(ran, key=lambda entry: entry[1][0])
    return Chart(
        id=_ID,
        short=_SHORT,
        title=f"{name} is fastest: {units.seconds(step_s)} a step at "
        f"{details.context_tokens:,} tokens of context",
        note=(
            f"Median of one sequence's decode steps in trial {found[0].ordinal}; bars are "
            f"{figure.INTERVALS}. A cache in another dtype is cast back for each step, as an "
            "engine without a kernel for it must; what it costs in quality is not measured here."
        ),
        label="Dot chart of decode step time by form of the KV cache",
        figure=dots_figure(
            [
                Dot(
                    label,
                    middle * scale,
                    low * scale if low is not None else None,
                    high * scale if high is not None else None,
                )
                for label, (middle, low, high), _ in ran
            ],
            f"Decode step ({unit})",
        ),
        columns=(
            Column("Form", False),
            Column("Step"),
            Column("95 % interval"),
            Column("n"),
            Column("Cache"),
            Column("Note", False),
        ),
        rows=tuple(_row(*entry) for entry in entries),
    )


def _entries(details: CacheDetails) -> list[_Entry]:
    found: list[_Entry] = [
        (_NAMES[f.form], f.seconds, f.cache_bytes, f.reason or "") for f in details.forms
    ]
    found += [
        (f"Growing, stored in {d.dtype}", d.seconds, d.cache_bytes, d.reason or "")
        for d in details.dtypes
    ]
    return found


def _row(name: str, seconds: Samples, size: Quantity, note: str) -> tuple[str, ...]:
    middle, low, high = median_interval(seconds) if seconds.n else (None, None, None)
    span = f"{units.seconds(low)} to {units.seconds(high)}" if low is not None else units.DASH
    return (
        name,
        units.seconds(middle),
        span,
        f"{seconds.n}",
        units.memory(size.value) if size.value is not None else units.DASH,
        note,
    )
