"""Attention time over the context, one line for each way to compute it."""

from __future__ import annotations

from advisor import units
from advisor.charts import figure
from advisor.charts.base import Chart, ChartInput, Column, empty, nothing_yet
from advisor.charts.device import in_focus
from advisor.charts.dots import Dot, dots_figure, median_interval
from advisor.crossover import crossover_text, faster_from
from advisor.rules.checks.a001_attention_slower import longest
from gpuagent.wire.inside import AttentionPoint, AttentionResult, AttentionVariant

_MOST_LINES = len(figure.SERIES)


def time(data: ChartInput) -> Chart:
    """One layer's time by context, implementations and structures alike."""
    found = in_focus(data, AttentionResult)
    title = "Attention time over the context"
    if found is None:
        return empty("attention-time", "Time", title, nothing_yet(data, "attention"))
    trial, result = found
    drawn = [v for v in result.variants if longest(v) is not None][:_MOST_LINES]
    if not drawn:
        return empty("attention-time", "Time", title, "No variant of attention ran.")
    ends = {v.name: (at.context_tokens, median_interval(at.seconds)[0]) for v in drawn
            if (at := longest(v)) is not None}  # fmt: skip
    fastest = min(ends, key=lambda name: ends[name][1] / ends[name][0] ** 2)
    tokens, seconds = ends[fastest]
    return Chart(
        id="attention-time",
        short="Time",
        title=f"{fastest} is fastest: {units.seconds(seconds)} a layer at {tokens:,} tokens",
        note=(
            f"Median of one layer's causal attention, batch 1, in trial {trial.ordinal}; bands "
            f"are {figure.INTERVALS} where there are enough repeats.{_crossovers(result)}"
        ),
        label="Line chart of attention time against context length",
        figure=_time_figure(drawn),
        columns=(
            Column("Variant", False),
            Column("Context (tokens)"),
            Column("Time of a layer"),
            Column("n"),
            Column("GFLOP"),
            Column("Cache, all layers"),
            Column("Largest error"),
            Column("Note", False),
        ),
        rows=tuple(row for variant in result.variants for row in _rows(variant)),
    )


def _crossovers(result: AttentionResult) -> str:
    """Where the other variants overtake the model's own implementation and structure."""
    told = []
    for kind in ("implementation", "structure"):
        ran = [v for v in result.variants if v.kind == kind and longest(v) is not None]
        own = next((v for v in ran if v.name == result.model.attention), ran[0] if ran else None)
        told += [
            f" {variant.name} is {crossover_text(own, variant)} compared with {own.name}."
            for variant in ran
            if own is not None and variant is not own and faster_from(own, variant) is not None
        ]
    return "".join(told)


def _time_figure(drawn: list[AttentionVariant]) -> figure.Figure:
    values = [median_interval(p.seconds)[0] for v in drawn for p in v.points if p.seconds.n]
    factor, unit = figure.time_scale(max(values))
    traces: list[dict[str, object]] = []
    for index, variant in enumerate(drawn):
        points = [p for p in variant.points if p.seconds.n]
        x = [float(p.context_tokens) for p in points]
        spans = [median_interval(p.seconds) for p in points]
        y = [middle * factor for middle, _, _ in spans]
        colour = figure.SERIES[index]
        if all(low is not None and high is not None for _, low, high in spans):
            low = [(low or 0.0) * factor for _, low, _ in spans]
            high = [(high or 0.0) * factor for _, _, high in spans]
            traces += figure.band(x, low, high, colour)
        hover = f"{variant.name}<br>%{{x}} tokens: %{{y:.3g}} {unit}"
        traces.append(
            figure.line(
                x,
                y,
                name=variant.name,
                colour=colour,
                hover=hover,
                dashed=variant.kind == "structure",
            )
        )
    contexts = [p.context_tokens for v in drawn for p in v.points]
    return {
        "data": traces,
        "layout": {
            "xaxis": figure.axis("Context (tokens)", range=[0, max(contexts) * 1.05]),
            "yaxis": figure.log_axis(
                f"Time of a layer ({unit}, log)",
                min(values) * factor * 0.6,
                max(values) * factor * 1.6,
            ),
            "shapes": [],
            "annotations": [],
        },
    }


def _rows(variant: AttentionVariant) -> list[tuple[str, ...]]:
    dash = units.DASH
    if not variant.points:
        return [(variant.name, dash, dash, "0", dash, dash, dash, variant.reason or "")]
    error = f"{variant.error.value:.2g}" if variant.error.value is not None else dash
    return [
        (
            variant.name,
            f"{p.context_tokens:,}",
            units.seconds(median_interval(p.seconds)[0]) if p.seconds.n else dash,
            f"{p.seconds.n}",
            units.number(p.flops / 1e9),
            units.memory(p.cache_bytes),
            error,
            p.reason or "",
        )
        for p in variant.points
    ]


def _at_one_length(
    variants: list[AttentionVariant],
) -> list[tuple[AttentionVariant, AttentionPoint]]:
    """Each variant at the longest context that all of those that ran have in common."""
    ran = {v.name: {p.context_tokens: p for p in v.points if p.seconds.n} for v in variants}
    lengths = [set(points) for points in ran.values() if points]
    common = set.intersection(*lengths) if lengths else set()
    if not common:
        return []
    tokens = max(common)
    return [(v, ran[v.name][tokens]) for v in variants if ran[v.name]]


def structures(data: ChartInput) -> Chart:
    """Cache bytes of each structure at the longest context, with time and quality in the table."""
    found = in_focus(data, AttentionResult)
    title = "Memory and quality of attention structures"
    if found is None:
        return empty("attention-memory", "Memory", title, nothing_yet(data, "attention"))
    trial, result = found
    ran = _at_one_length([v for v in result.variants if v.kind == "structure"])
    if not ran:
        return empty("attention-memory", "Memory", title, "No structure of attention ran.")
    factor, unit = figure.byte_scale(max(at.cache_bytes for _, at in ran))
    least, at = min(ran, key=lambda pair: pair[1].cache_bytes)
    return Chart(
        id="attention-memory",
        short="Memory",
        title=f"{least.name} needs {units.memory(at.cache_bytes)} of cache at "
        f"{at.context_tokens:,} tokens, the model's own {units.memory(ran[0][1].cache_bytes)}",
        note=(
            f"Keys and values of all {result.layers} layers, exact, trial {trial.ordinal}. "
            "K/V heads are mean-pooled and windows cut without training, so perplexity is the "
            "worst case; it is taken over windows of 512 tokens."
        ),
        label="Dot chart of cache memory by attention structure",
        figure=dots_figure(
            [Dot(v.name, p.cache_bytes * factor) for v, p in ran], f"Cache ({unit})"
        ),
        columns=(
            Column("Structure", False),
            Column("Cache"),
            Column("Time of a layer"),
            Column("GFLOP"),
            Column("Perplexity"),
            Column("Note", False),
        ),
        rows=tuple(
            (
                v.name,
                units.memory(p.cache_bytes),
                units.seconds(median_interval(p.seconds)[0]),
                units.number(p.flops / 1e9),
                units.number(v.perplexity.value, 4) if v.perplexity else units.DASH,
                v.perplexity_reason or "",
            )
            for v, p in ran
        ),
    )
