"""Tokens per second over the batch size; padding and chunked prefill stand in the table."""

from __future__ import annotations

from advisor import units
from advisor.charts import figure
from advisor.charts.base import Chart, ChartInput, Column, empty, nothing_yet
from advisor.charts.device import in_focus
from advisor.charts.dots import median_interval
from gpuagent.wire.inside import BatchingResult, BatchPoint


def scaling(data: ChartInput) -> Chart:
    """Decode throughput by batch, with the interval turned round from the step's."""
    found = in_focus(data, BatchingResult)
    title = "Throughput over the batch size"
    if found is None:
        return empty("batch-scaling", "Batch size", title, nothing_yet(data, "batching"))
    trial, result = found
    ran = [p for p in result.points if p.decode_step_s.n]
    if not ran:
        return empty("batch-scaling", "Batch size", title, "No batch ran on this device.")
    first, last = _rate(ran[0])[0], _rate(ran[-1])[0]
    return Chart(
        id="batch-scaling",
        short="Batch size",
        title=f"Decode rises from {units.rate(first)} at batch {ran[0].batch} to "
        f"{units.rate(last)} at batch {ran[-1].batch}",
        note=(
            f"Median over {ran[0].decode_step_s.n} steps for each batch in trial {trial.ordinal}; "
            f"bands are {figure.INTERVALS}. The dashed line grows with the batch."
        ),
        label="Line chart of decode throughput against batch size",
        figure=_figure(ran),
        columns=(
            Column("What", False),
            Column("Time"),
            Column("n"),
            Column("Result", False),
        ),
        rows=(*_batch_rows(result), *_padding_rows(result), *_chunk_rows(result)),
    )


def _rate(point: BatchPoint) -> tuple[float, float | None, float | None]:
    middle, low, high = median_interval(point.decode_step_s)
    return (
        point.batch / middle,
        point.batch / high if high else None,
        point.batch / low if low else None,
    )


def _figure(ran: list[BatchPoint]) -> figure.Figure:
    x = [float(p.batch) for p in ran]
    rates = [_rate(p) for p in ran]
    y = [rate for rate, _, _ in rates]
    low = [low if low is not None else rate for rate, low, _ in rates]
    high = [high if high is not None else rate for rate, _, high in rates]
    ideal = [y[0] * batch / x[0] for batch in x]
    return {
        "data": [
            *figure.band(x, low, high, figure.BEST),
            figure.line(
                x, ideal, name="In proportion", colour=figure.CURRENT, dashed=True,
                hover="in proportion<br>batch %{x}: %{y:.3g} tok/s",
            ),
            figure.line(
                x, y, name="Measured", colour=figure.BEST,
                hover="batch %{x}: %{y:.3g} tok/s",
            ),
        ],
        "layout": {
            "xaxis": figure.axis("Batch (sequences)", range=[0, max(x) * 1.05]),
            "yaxis": figure.axis("Decode (tok/s)", range=[0, max(*ideal, *high) * 1.1]),
            "shapes": [],
            "annotations": [],
        },
    }  # fmt: skip


def _batch_rows(result: BatchingResult) -> list[tuple[str, ...]]:
    return [
        (
            f"Decode step, batch {p.batch}",
            units.seconds(median_interval(p.decode_step_s)[0]) if p.decode_step_s.n else units.DASH,
            f"{p.decode_step_s.n}",
            p.reason or f"{units.rate(_rate(p)[0])}",
        )
        for p in result.points
    ]


def _padding_rows(result: BatchingResult) -> list[tuple[str, ...]]:
    names = {"as_they_come": "Mixed prompts as they come", "bucketed": "Mixed prompts sorted"}
    return [
        (
            names[p.order],
            units.seconds(median_interval(p.seconds)[0]),
            f"{p.seconds.n}",
            f"{units.percent(1 - p.useful_tokens / p.computed_tokens)} padding",
        )
        for p in result.padding
    ]


def _chunk_rows(result: BatchingResult) -> list[tuple[str, ...]]:
    return [
        (
            f"Prefill of {result.chunked_input_tokens:,} tokens in chunks of {c.chunk_tokens:,}",
            units.seconds(median_interval(c.seconds)[0]) if c.seconds.n else units.DASH,
            f"{c.seconds.n}",
            c.reason or f"longest wait {units.seconds(c.longest_chunk_s.value)}",
        )
        for c in result.chunks
    ]
