"""Predicted cost per million output tokens of the same load on every GPU with a price."""

from __future__ import annotations

from collections.abc import Sequence

from advisor import units
from advisor.charts import figure
from advisor.charts.base import Chart, Column
from advisor.charts.dots import Dot, dots_figure
from advisor.estimates.options import GpuOption

_MOST = 12


def by_gpu(options: Sequence[GpuOption], asked: str) -> Chart | None:
    """The cheapest first; `asked` names the GPU of the question. None below two prices."""
    priced = []
    for option in options:
        usd = option.estimate.usd_per_million_tokens if option.estimate is not None else None
        if usd is not None and option.tp is not None:
            priced.append((option, usd))
    if len(priced) < 2:
        return None
    priced.sort(key=lambda pair: pair[1].value)
    shown = priced[:_MOST]
    if all(option.gpu.name != asked for option, _ in shown):
        shown += [pair for pair in priced[_MOST:] if pair[0].gpu.name == asked]
    least, most = shown[0], shown[-1]
    overlap = [o.gpu.name for o, usd in shown[1:] if usd.low <= least[1].high]
    title = (
        f"Predicted: a million output tokens cost ${units.number(least[1].value, 2)} on "
        f"{least[0].gpu.name} and ${units.number(most[1].value, 2)} on {most[0].gpu.name}"
    )
    note = f"Predicted at list or own prices, not measured; bars are 90{units.NBSP}% intervals."
    if overlap:
        note += f" {len(overlap)} of {len(shown) - 1} overlap the cheapest: no order is claimed."
    dots = [
        Dot(
            _name(option),
            usd.value,
            usd.low,
            usd.high,
            figure.BEST if option.gpu.name == asked else figure.CURRENT,
        )
        for option, usd in shown
    ]
    return Chart(
        id="gpu-cost",
        short="Cost",
        title=title,
        note=note,
        label=f"Dot chart of predicted cost per million output tokens on {len(shown)} GPUs",
        figure=dots_figure(dots, "Cost ($ per M output tokens)"),
        columns=(
            Column("GPU", False),
            Column("GPUs"),
            Column("$ per M tokens"),
            Column("90 % from"),
            Column("to"),
        ),
        rows=tuple(
            (
                option.gpu.name,
                f"{option.tp}",
                units.number(usd.value),
                units.number(usd.low),
                units.number(usd.high),
            )
            for option, usd in shown
        ),
    )


def _name(option: GpuOption) -> str:
    return f"{option.tp} × {option.gpu.name}" if option.tp and option.tp > 1 else option.gpu.name
