"""The highest rate of each trial that looked for one, with the bracket that the search left."""

from __future__ import annotations

from advisor import units
from advisor.charts import figure
from advisor.charts.base import Chart, ChartInput, Column, empty, nothing_yet
from advisor.charts.boundary import boundary_of, with_doubt
from advisor.charts.dots import Dot, dots_figure
from advisor.charts.rate_curve import rate_text
from advisor.evidence import TrialEvidence
from gpuagent.wire.serving import RateBoundary


def highest(data: ChartInput) -> Chart:
    """The highest rate of every trial that looked for one, with its bracket."""
    name = "Highest rate within the targets"
    found = [(t, b) for t in data.evidence.trials if t.usable and (b := boundary_of(t)) is not None]
    drawn = [(t, b, b.rate_per_s) for t, b in found if b.rate_per_s is not None]
    if not drawn:
        reason = nothing_yet(data, "a highest rate") if not found else f"{ended(found[0][1])}."
        return empty("highest-rate", "Highest rate", name, reason)
    best = max(drawn, key=lambda one: one[2])
    dots = [
        Dot(
            data.name(trial),
            rate,
            b.low,
            b.high,
            colour=_colour(data, trial),
            symbol="square" if data.is_current(trial) else "circle",
            value_text=rate_text(rate),
        )
        for trial, b, rate in drawn
    ]
    title = f"{data.name(best[0])} takes the most load within the targets: {rate_text(best[2])}"
    return Chart(
        id="highest-rate",
        short="Highest rate",
        title=with_doubt(title, best[1], (b for _, b, _ in drawn)),
        note=(
            "Where the fitted curve crosses a limit; bars span the highest rate that kept all "
            "targets to the lowest that did not."
        ),
        label=f"{name} of {len(drawn)} trials",
        figure=dots_figure(dots, f"{name} (req/s)", names_px=84),
        columns=(
            Column("Trial", False),
            Column("Highest rate (req/s)"),
            Column("Keeps and misses at (req/s)"),
            Column("Proven at (req/s)"),
            Column("Rates"),
            Column("How the search ended", False),
        ),
        rows=tuple(
            (
                f"{t.ordinal} · {t.title}",
                units.number(b.rate_per_s),
                f"{units.number(b.low)} and {units.number(b.high)}",
                units.number(b.proven_per_s),
                f"{len(b.points)}",
                ended(b),
            )
            for t, b in found
        ),
    )


def _colour(data: ChartInput, trial: TrialEvidence) -> str:
    if data.is_current(trial):
        return figure.CURRENT
    return figure.BEST if data.is_best(trial) else figure.SERIES[1]


def ended(found: RateBoundary) -> str:
    """How the search ended, and what a proof needs."""
    text = found.reason
    if found.proven_per_s is None and found.needed_requests is not None:
        text += f"; not proven, needs {found.needed_requests:,} requests in one run"
    return text[:1].upper() + text[1:]
