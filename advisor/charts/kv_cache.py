"""What the KV cache is worth (tok/s with and without it) and what it costs (bytes by context)."""

from __future__ import annotations

import math

from advisor import units
from advisor.charts import figure
from advisor.charts.base import Chart, ChartInput, Column, empty, nothing_yet
from advisor.evidence import TrialEvidence
from gpuagent.stats import Quantile, quantile
from gpuagent.wire.measure import Samples
from gpuagent.wire.trial import KvCacheResult, KvPoint

_ITEMSIZE = {"float32": 4, "bfloat16": 2, "float16": 2, "float8": 1}


def speed(data: ChartInput) -> Chart:
    """Decode speed of one stream with the cache on and off, over the context length."""
    found = _measured(data)
    if found is None:
        return empty(
            "kv-speed", "Speed", "Decode speed with and without the KV cache", _missing(data)
        )
    trial, result = found
    cached = [(p, _rate(p.cached_step_s)) for p in result.points]
    uncached = [(p, _rate(p.uncached_step_s)) for p in result.points]
    return Chart(
        id="kv-speed",
        short="Speed",
        title=_speed_title(cached, uncached),
        note=(
            f"Median over {_counts(result)} decode steps of one sequence in trial {trial.ordinal}; "
            f"bands are {figure.INTERVALS}. Without it every step reads the whole context again."
        ),
        label="Line chart of decode speed against context length with and without the KV cache",
        figure=_speed_figure(cached, uncached),
        columns=(
            Column("Context (tokens)"),
            Column("With cache (tok/s)"),
            Column("95 %"),
            Column("Without (tok/s)"),
            Column("95 %"),
            Column("Ratio"),
        ),
        rows=tuple(_speed_row(p, q, u) for (p, q), (_, u) in zip(cached, uncached, strict=True)),
    )


def memory(data: ChartInput) -> Chart:
    """Cache bytes as allocated against the formula 2 × layers × KV heads × head size × itemsize."""
    found = _measured(data)
    if found is None:
        return empty("kv-memory", "Memory", "Memory of the KV cache", _missing(data))
    trial, result = found
    xs = [p.context_tokens for p in result.points]
    expected = _expected(data, result, xs)
    return Chart(
        id="kv-memory",
        short="Memory",
        title=_memory_title(result, expected),
        note=(
            f"Bytes that the cache of one sequence holds in trial {trial.ordinal} (exact, counted "
            "once per length)."
            + (
                " The dashed line is the formula from the model's config."
                if expected
                else " The config is not known, so there is no formula to compare with."
            )
        ),
        label="Line chart of KV cache memory against context length with the formula's line",
        figure=_memory_figure(result, expected),
        columns=(
            Column("Context (tokens)"),
            Column("Cache"),
            Column("Formula"),
            Column("Difference"),
        ),
        rows=tuple(_memory_row(p, expected, i) for i, p in enumerate(result.points)),
    )


def _measured(data: ChartInput) -> tuple[TrialEvidence, KvCacheResult] | None:
    """The trial in focus where it is a cache experiment, the study's latest one otherwise."""
    candidates = [*data.evidence.succeeded(KvCacheResult)]
    if data.best is not None and data.best.measured(KvCacheResult):
        candidates.append(data.best)
    if not candidates:
        return None
    trial = candidates[-1]
    result = trial.measured(KvCacheResult)
    return (trial, result) if result is not None and result.points else None


def _missing(data: ChartInput) -> str:
    return nothing_yet(data, "the KV cache's effect")


def _rate(steps: Samples) -> Quantile | None:
    """tok/s of one sequence: the inverse of the median step, interval turned round with it."""
    if not steps.values:
        return None
    q = quantile(steps.values, 0.5)
    if q.value is None:
        return q
    low, high = (1 / edge if edge else None for edge in (q.high, q.low))
    return Quantile(p=q.p, n=q.n, value=1 / q.value, low=low, high=high, reason=q.reason)


def _counts(result: KvCacheResult) -> str:
    counts = sorted({p.cached_step_s.n for p in result.points})
    return f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


_Rates = list[tuple[KvPoint, Quantile | None]]


def _known(rates: _Rates) -> list[tuple[int, Quantile]]:
    return [(p.context_tokens, q) for p, q in rates if q is not None and q.value is not None]


def _speed_title(cached: _Rates, uncached: _Rates) -> str:
    on = dict(_known(cached))
    off = dict(_known(uncached))
    both = sorted(set(on) & set(off))
    if not both:
        if not on:
            return "Decode speed with the KV cache: too few steps for a median"
        last, q = max(on.items())
        return (
            f"With the KV cache decode runs at {units.rate(q.value)} at {last:,} tokens of context"
        )
    at = both[-1]
    ratio = (on[at].value or math.nan) / (off[at].value or math.nan)
    if ratio < 1:
        return f"The KV cache costs speed: {units.number(ratio, 2)} × at {at:,} tokens of context"
    return (
        f"The KV cache is worth {units.number(ratio, 2)}{units.NBSP}× at {at:,} tokens of context"
    )


def _speed_figure(cached: _Rates, uncached: _Rates) -> figure.Figure:
    on, off = _known(cached), _known(uncached)
    values = [q.value or 0.0 for _, q in (*on, *off)]
    log = bool(values) and min(values) > 0 and max(values) / min(values) > 10
    traces: list[dict[str, object]] = []
    labels: list[dict[str, object]] = []
    for series, name, colour, dashed in (
        (off, "Without cache", figure.CURRENT, True),
        (on, "With cache", figure.BEST, False),
    ):
        if not series:
            continue
        x = [float(tokens) for tokens, _ in series]
        y = [q.value or 0.0 for _, q in series]
        low = [q.low if q.low is not None else v for (_, q), v in zip(series, y, strict=True)]
        high = [q.high if q.high is not None else v for (_, q), v in zip(series, y, strict=True)]
        traces += figure.band(x, low, high, colour)
        hover = f"{name}<br>%{{x}} tokens: %{{y:.3g}} tok/s"
        traces.append(figure.line(x, y, name=name, colour=colour, hover=hover, dashed=dashed))
        at = math.log10(y[-1]) if log and y[-1] > 0 else y[-1]
        labels.append(
            figure.label(
                name, colour=colour, x=x[-1], y=at, xanchor="right", yshift=-16 if dashed else 14
            )
        )
    top = max(values, default=1.0)
    word = "Decode speed (tok/s"
    contexts = [p.context_tokens for p, _ in cached]
    return {
        "data": traces,
        "layout": {
            "xaxis": figure.axis("Context (tokens)", range=[0, max(contexts) * 1.05]),
            "yaxis": figure.log_axis(f"{word}, log)", min(values) * 0.55, top * 1.6)
            if log
            else figure.axis(f"{word})", range=[0, top * 1.2]),
            "shapes": [],
            "annotations": labels,
        },
    }


def _speed_row(point: KvPoint, on: Quantile | None, off: Quantile | None) -> tuple[str, ...]:
    ratio = on.value / off.value if on and off and on.value and off.value else None
    return (
        f"{point.context_tokens:,}",
        _cell(on),
        _interval(on),
        _cell(off) if off else f"{units.DASH} ({point.uncached_reason or 'not measured'})",
        _interval(off),
        f"{units.number(ratio, 2)} ×" if ratio else units.DASH,
    )


def _cell(q: Quantile | None) -> str:
    return units.number(q.value) if q else units.DASH


def _interval(q: Quantile | None) -> str:
    if q is None or q.low is None or q.high is None:
        return units.DASH
    return f"{units.number(q.low)}–{units.number(q.high)}"


def _expected(data: ChartInput, result: KvCacheResult, contexts: list[int]) -> list[int] | None:
    itemsize = _ITEMSIZE.get(result.model.dtype.removeprefix("torch."))
    if data.evidence.shape is None or itemsize is None:
        return None
    return [data.evidence.shape.kv_bytes_for(tokens, itemsize) for tokens in contexts]


def _memory_title(result: KvCacheResult, expected: list[int] | None) -> str:
    first, last = result.points[0], result.points[-1]
    tokens = last.context_tokens - first.context_tokens
    if tokens <= 0:
        return (
            f"The KV cache holds {units.memory(last.cache_bytes)} at {last.context_tokens:,} tokens"
        )
    per_token = (last.cache_bytes - first.cache_bytes) / tokens
    text = f"The KV cache grows by {units.memory(per_token)} per token"
    if expected is None:
        return text
    formula = (expected[-1] - expected[0]) / tokens
    if formula <= 0:
        return text
    off = per_token / formula - 1
    if abs(off) < 0.005:
        return f"{text}, as the formula says"
    return f"{text}, {units.percent(abs(off))} {'more' if off > 0 else 'less'} than the formula"


def _memory_figure(result: KvCacheResult, expected: list[int] | None) -> figure.Figure:
    xs = [float(p.context_tokens) for p in result.points]
    largest = max(*(p.cache_bytes for p in result.points), *(expected or [0]))
    factor, unit = figure.byte_scale(largest)
    ys = [p.cache_bytes * factor for p in result.points]
    hover = f"%{{x}} tokens: %{{y:.4g}} {unit}"
    traces = []
    labels = []
    if expected:
        formula = [value * factor for value in expected]
        traces.append(
            figure.line(
                xs, formula, name="Formula", colour=figure.CURRENT, hover=f"Formula<br>{hover}",
                dashed=True, markers=False,
            )
        )  # fmt: skip
        labels.append(
            figure.label(
                "Formula", colour=figure.CURRENT, x=xs[-1], y=formula[-1], xanchor="right",
                yshift=-16,
            )
        )  # fmt: skip
    traces.append(
        figure.line(xs, ys, name="Measured", colour=figure.BEST, hover=f"Measured<br>{hover}")
    )
    labels.append(
        figure.label("Measured", colour=figure.BEST, x=xs[-1], y=ys[-1], xanchor="right", yshift=16)
    )
    return {
        "data": traces,
        "layout": {
            "xaxis": figure.axis("Context (tokens)", range=[0, max(xs) * 1.05]),
            "yaxis": figure.axis(
                f"Cache of one sequence ({unit})", range=[0, largest * factor * 1.2]
            ),
            "shapes": [],
            "annotations": labels,
        },
    }


def _memory_row(point: KvPoint, expected: list[int] | None, index: int) -> tuple[str, ...]:
    formula = expected[index] if expected else None
    off = point.cache_bytes / formula - 1 if formula else None
    return (
        f"{point.context_tokens:,}",
        units.memory(point.cache_bytes),
        units.memory(formula),
        units.DASH if off is None else units.percent(off),
    )
