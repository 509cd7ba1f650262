"""Formats of the weights: decode step against perplexity."""

from __future__ import annotations

from advisor import units
from advisor.charts import figure
from advisor.charts.base import Chart, ChartInput, Column, empty, nothing_yet
from advisor.charts.device import in_focus
from advisor.charts.dots import Dot, dots_figure, median_interval
from advisor.rules.checks.p002_format_faster import identical_answers, name_of
from advisor.thresholds import MAX_PERPLEXITY_INCREASE
from gpuagent.wire.inside import QuantisationResult, QuantVariant


def tradeoff(data: ChartInput) -> Chart:
    """Decode step by format; a format whose perplexity is too high is drawn in the bad colour."""
    found = in_focus(data, QuantisationResult)
    title = "Speed and quality of weight formats"
    if found is None:
        return empty("format-tradeoff", "Formats", title, nothing_yet(data, "weight formats"))
    trial, result = found
    ran = [v for v in result.variants if v.decode_step_s.n]
    if not ran:
        return empty("format-tradeoff", "Formats", title, "No format ran on this device.")
    spans = {v.method: median_interval(v.decode_step_s) for v in ran}
    factor, unit = figure.time_scale(max(high or value for value, _, high in spans.values()))
    rows = [
        Dot(
            name_of(v.method),
            spans[v.method][0] * factor,
            *(end * factor if end is not None else None for end in spans[v.method][1:]),
            colour="token:bad" if _worse(ran, v) else figure.BEST,
        )
        for v in ran
    ]
    good = [v for v in ran if not _worse(ran, v)]
    fastest = min(good or ran, key=lambda v: spans[v.method][0])
    worse = [name_of(v.method) for v in ran if _worse(ran, v)]
    tail = f"; {', '.join(worse)} worse in quality" if worse else ""
    return Chart(
        id="format-tradeoff",
        short="Formats",
        title=f"{name_of(fastest.method)} decodes fastest: "
        f"{units.seconds(spans[fastest.method][0])} a step{tail}",
        note=(
            f"Median decode step of one sequence in trial {trial.ordinal}; bars are "
            f"{figure.INTERVALS}. Red: perplexity more than "
            f"{units.percent(MAX_PERPLEXITY_INCREASE.value)} above the least."
        ),
        label="Dot chart of decode step time by weight format",
        figure=dots_figure(rows, f"Decode step ({unit})"),
        columns=(
            Column("Format", False),
            Column("Decode step"),
            Column("Prefill"),
            Column("Weights"),
            Column("Perplexity"),
            Column("Same answers"),
            Column("Note", False),
        ),
        rows=tuple(_row(v, result.answer_tokens) for v in result.variants),
    )


def _worse(ran: list[QuantVariant], variant: QuantVariant) -> bool:
    known = [v.perplexity.value for v in ran if v.perplexity is not None]
    if variant.perplexity is None or not known:
        return False
    return variant.perplexity.value > min(known) * (1 + MAX_PERPLEXITY_INCREASE.value)


def _row(variant: QuantVariant, answer_tokens: int) -> tuple[str, ...]:
    def middle(samples: object) -> str:
        values = getattr(samples, "values", ())
        return units.seconds(median_interval(samples)[0]) if values else units.DASH  # type: ignore[arg-type]

    same, prompts = identical_answers(variant, answer_tokens)
    return (
        name_of(variant.method),
        middle(variant.decode_step_s),
        middle(variant.prefill_s),
        units.memory(variant.weight_bytes.value),
        units.number(variant.perplexity.value, 4) if variant.perplexity else units.DASH,
        f"{same} of {prompts}" if prompts else units.DASH,
        variant.reason or variant.agreement_reason or variant.kernel,
    )
