"""Forms of a decode step with what happens inside it, and every matrix product to its ceiling."""

from __future__ import annotations

from advisor import units
from advisor.charts import figure
from advisor.charts.base import Chart, ChartInput, Column, empty, nothing_yet
from advisor.charts.device import in_focus
from advisor.charts.dots import Dot, dots_figure, median_interval
from advisor.recoverable import FORMS, step_parts
from gpuagent.wire import Quantity, Samples
from gpuagent.wire.inside import FusedOperator, GemmShape, KernelsResult, StepCosts

_MOST_DOTS = 9


def steps(data: ChartInput) -> Chart:
    """A decode step in each form; fused operators and counts stand in the table."""
    found = in_focus(data, KernelsResult)
    title = "Forms of a decode step"
    if found is None:
        return empty("step-forms", "Forms", title, nothing_yet(data, "forms of a decode step"))
    trial, result = found
    ran = [(FORMS[s.form], *median_interval(s.seconds)) for s in result.steps if s.seconds.n]
    if not ran:
        return empty("step-forms", "Forms", title, "No form of a decode step ran.")
    factor, unit = figure.time_scale(max(row[1] for row in ran))
    name, best_s, *_ = min(ran, key=lambda row: row[1])
    return Chart(
        id="step-forms",
        short="Forms",
        title=f"A decode step takes {units.seconds(best_s)} {name}"
        + (f", {units.seconds(ran[0][1])} {ran[0][0]}" if ran[0][0] != name else ""),
        note=(
            f"Medians at batch 1 with a static cache in trial {trial.ordinal}; bars are "
            f"{figure.INTERVALS}. Operators stand per call; counts are those of one eager step."
        ),
        label="Dot chart of decode step time by form",
        figure=dots_figure(
            [
                Dot(
                    form,
                    middle * factor,
                    None if low is None else low * factor,
                    None if high is None else high * factor,
                )
                for form, middle, low, high in ran
            ],
            f"Decode step ({unit})",
        ),
        columns=(
            Column("What", False),
            Column("Eager"),
            Column("Other form"),
            Column("n"),
            Column("Note", False),
        ),
        rows=(
            *_step_rows(result),
            *_part_rows(result),
            *(_fused_row(operator) for operator in result.fused),
            *_cost_rows(result.costs),
        ),
    )


def _time(seconds: Samples) -> str:
    return units.seconds(median_interval(seconds)[0]) if seconds.n else units.DASH


def _step_rows(result: KernelsResult) -> list[tuple[str, ...]]:
    eager = next((s for s in result.steps if s.form == "eager"), None)
    base = _time(eager.seconds) if eager else units.DASH
    return [
        (
            f"Decode step {FORMS[form.form]}",
            base,
            _time(form.seconds),
            f"{form.seconds.n}",
            form.reason or "",
        )
        for form in result.steps
        if form.form != "eager"
    ]


def _part_rows(result: KernelsResult) -> list[tuple[str, ...]]:
    """The eager step as parts that sum to it."""
    parts = step_parts(result)
    if parts is None:
        return []
    rows = (
        ("Eager step: products at their ceilings", parts.floor_s, "no kernel is faster"),
        ("Eager step: products above them", parts.products_s, "timed apart, layer after layer"),
        ("Eager step: all else", parts.between_s, "attention, norms, launches, allocations"),
    )
    return [
        (name, units.seconds(value), units.DASH, f"{parts.n}", note) for name, value, note in rows
    ]


def _fused_row(operator: FusedOperator) -> tuple[str, ...]:
    breaks = operator.graph_breaks
    note = operator.compiled_reason or ""
    if not note and breaks is not None:
        note = f"compiled, {breaks} graph break{'' if breaks == 1 else 's'}"
    return (
        f"{operator.name}, {operator.rows:,} rows, {operator.per_step} × a pass",
        _time(operator.eager_s),
        _time(operator.compiled_s),
        f"{operator.eager_s.n}",
        note,
    )


def _cost_rows(costs: StepCosts) -> list[tuple[str, ...]]:
    def count(value: Quantity) -> str:
        return f"{value.value:,.0f}" if value.value is not None else units.DASH

    copied = units.seconds(costs.copy_s.value)
    size = units.memory(costs.allocated_bytes.value)
    rows = (
        ("Operators", count(costs.operators), costs.operators.reason or ""),
        ("Copies", count(costs.copies), costs.copies.reason or f"{copied} together"),
        ("Allocations", count(costs.allocations), costs.allocations.reason or f"{size} together"),
    )
    return [(name, value, units.DASH, "1", note) for name, value, note in rows]


# --- products ----------------------------------------------------------------------------------


def products(data: ChartInput) -> Chart:
    """Each matrix product of the model as a share of its ceiling; the longest ones are drawn."""
    found = in_focus(data, KernelsResult)
    title = "Matrix products against their ceiling"
    if found is None:
        return empty("gemm-share", "Products", title, nothing_yet(data, "the matrix products"))
    trial, result = found
    known = [(g, share) for g in result.gemms if (share := _share(g)) is not None]
    if not known:
        return empty("gemm-share", "Products", title, "No product has a ceiling on this device.")
    longest = sorted(known, key=lambda pair: -_total_s(pair[0]))[:_MOST_DOTS]
    gemm, share = longest[0]
    return Chart(
        id="gemm-share",
        short="Products",
        title=f"The longest product, {_name(gemm)}, reaches {units.percent(share)} of its ceiling",
        note=(
            f"Ceiling over median time, trial {trial.ordinal}; the ceiling is the larger of "
            "computing and reading at the rates of the same run. Drawn are the longest, all stand "
            "in the table."
        ),
        label="Dot chart of matrix products as a share of their ceiling",
        figure=dots_figure(
            [Dot(_name(g), value * 100) for g, value in longest], "Share of the ceiling (%)"
        ),
        columns=(
            Column("Product", False),
            Column("n × k"),
            Column("Times a pass"),
            Column("Time of one"),
            Column("n"),
            Column("Share of its ceiling"),
            Column("Note", False),
        ),
        rows=tuple(
            (
                _name(g),
                f"{g.n:,} × {g.k:,}",
                f"{g.per_step}",
                _time(g.seconds),
                f"{g.seconds.n}",
                units.percent(value) if (value := _share(g)) is not None else units.DASH,
                g.reason or g.ceiling_s.reason or "",
            )
            for g in result.gemms
        ),
    )


def _name(gemm: GemmShape) -> str:
    rows = f"{gemm.rows:,} row{'' if gemm.rows == 1 else 's'}"
    return f"{gemm.name}, {rows}, {gemm.dtype}"


def _total_s(gemm: GemmShape) -> float:
    return gemm.per_step * median_interval(gemm.seconds)[0]


def _share(gemm: GemmShape) -> float | None:
    if gemm.ceiling_s.value is None or not gemm.seconds.n:
        return None
    return gemm.ceiling_s.value / median_interval(gemm.seconds)[0]
