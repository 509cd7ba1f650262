"""Decode steps with other forms and dtypes of the KV cache, and with a prefix that is cached."""

from __future__ import annotations

from advisor import units
from advisor.charts import figure
from advisor.charts.base import Chart, ChartInput, Column, empty, nothing_yet
from advisor.charts.device import in_focus
from advisor.charts.dots import Dot, dots_figure, median_interval
from gpuagent.wire.inside import CacheDetails, CacheDtype, CacheForm
from gpuagent.wire.trial import KvCacheResult

_NAMES = {"dynamic": "Growing", "static": "Static", "quantised": "Quantised"}
_ID, _SHORT, _TITLE = "kv-forms", "Forms", "Decode steps by form of the KV cache"

_Entry = tuple[str, CacheForm | CacheDtype]


def forms(data: ChartInput) -> Chart:
    """Median decode step of each form at one context; dtypes are cast back for each step."""
    found = in_focus(data, KvCacheResult)
    details = found[1].details if found is not None else None
    if found is None or details is None:
        return empty(_ID, _SHORT, _TITLE, nothing_yet(data, "forms of the KV cache"))
    entries = _entries(details)
    ran = [(name, median_interval(form.seconds)) for name, form in entries if form.seconds.n]
    if not ran:
        return empty(_ID, _SHORT, _TITLE, "No form of the KV cache ran.")
    scale, unit = figure.time_scale(max(span[0] for _, span in ran))
    name, (step_s, *_) = min(ran, key=lambda entry: entry[1][0])
    return Chart(
        id=_ID,
        short=_SHORT,
        title=f"{name} is fastest: {units.seconds(step_s)} a step at "
        f"{details.context_tokens:,} tokens of context",
        note=(
            f"Median of one sequence's decode steps in trial {found[0].ordinal}; bars are "
            f"{figure.INTERVALS}. A cache in another dtype is cast back for each step, as an "
            "engine without a kernel for it must. Perplexity is that of a text read back from the "
            "cache in chunks."
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
                for label, (middle, low, high) in ran
            ],
            f"Decode step ({unit})",
        ),
        columns=(
            Column("Form", False),
            Column("Step"),
            Column("95 % interval"),
            Column("n"),
            Column("Cache"),
            Column("Perplexity"),
            Column("Note", False),
        ),
        rows=tuple(_row(*entry) for entry in entries),
    )


def _entries(details: CacheDetails) -> list[_Entry]:
    found: list[_Entry] = [(_NAMES[form.form], form) for form in details.forms]
    return [*found, *((f"Growing, stored in {d.dtype}", d) for d in details.dtypes)]


def _row(name: str, form: CacheForm | CacheDtype) -> tuple[str, ...]:
    seconds, size, quality = form.seconds, form.cache_bytes, form.perplexity
    middle, low, high = median_interval(seconds) if seconds.n else (None, None, None)
    span = f"{units.seconds(low)} to {units.seconds(high)}" if low is not None else units.DASH
    return (
        name,
        units.seconds(middle),
        span,
        f"{seconds.n}",
        units.memory(size.value) if size.value is not None else units.DASH,
        units.number(quality.value, 4) if quality is not None else units.DASH,
        form.reason or form.perplexity_reason or "",
    )
