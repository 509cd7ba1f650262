"""Prefill and decode speed over input length, one line per batch size."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from advisor import units
from advisor.charts import figure
from advisor.charts.base import Chart, ChartInput, Column, empty, nothing_yet
from advisor.evidence import TrialEvidence
from gpuagent.stats import quantile
from gpuagent.wire.trial import BaselineResult, GridCell

_NO_GAIN = 1.05
"""Below 5 % more speed a larger batch counts as no faster; the grid's medians spread that much."""
_Rated = tuple[GridCell, float | None, float | None, float | None, int]
"""(cell, tok/s, low, high, n)"""
_Rate = Callable[[GridCell], tuple[int, Sequence[float]]]
"""Cell -> (tokens that one timing covers, timings in seconds)."""


def prefill(data: ChartInput) -> Chart:
    """Prompt tokens per second: batch × input tokens ÷ time to the first token of the batch."""
    return _chart(
        data,
        chart_id="prefill-grid",
        short="Prefill",
        word="Prefill",
        rate=lambda cell: (cell.batch * cell.input_tokens, cell.prefill_s.values),
    )


def decode(data: ChartInput) -> Chart:
    """Output tokens per second: batch ÷ time of one decode step."""
    return _chart(
        data,
        chart_id="decode-grid",
        short="Decode",
        word="Decode",
        rate=lambda cell: (cell.batch, cell.decode_step_s.values),
    )


def _chart(data: ChartInput, *, chart_id: str, short: str, word: str, rate: _Rate) -> Chart:
    trial = _trial(data)
    result = trial.measured(BaselineResult) if trial else None
    if trial is None or result is None or not result.cells:
        return empty(chart_id, short, f"{word} speed", nothing_yet(data, f"{word.lower()} speed"))
    rated = [_rated(cell, *rate(cell)) for cell in result.cells]
    counts = sorted({n for *_, n in rated})
    n = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return Chart(
        id=chart_id,
        short=short,
        title=_title(word, rated),
        note=f"Median of {n} timings a point in {data.place(trial)}, warm-up apart{_bands(rated)}.",
        label=f"Line chart of {word.lower()} speed against input length by batch size",
        figure=_figure(word, rated),
        columns=(
            Column("Batch size"),
            Column("Input (tokens)"),
            Column("Speed (tok/s)"),
            Column("95 %"),
            Column("n"),
            Column("Peak memory"),
        ),
        rows=tuple(_row(*entry) for entry in rated),
    )


def _trial(data: ChartInput) -> TrialEvidence | None:
    """The trial in focus, or the first one that measured a grid."""
    for trial in (data.best, data.current, *data.evidence.trials):
        if trial is not None and trial.measured(BaselineResult):
            return trial
    return None


def _rated(cell: GridCell, tokens: int, seconds: Sequence[float]) -> _Rated:
    if not seconds:
        return cell, None, None, None, 0
    q = quantile(seconds, 0.5)
    if q.value is None:
        ordered = sorted(seconds)
        return cell, tokens / ordered[len(ordered) // 2], None, None, q.n
    low = tokens / q.high if q.high else None
    high = tokens / q.low if q.low else None
    return cell, tokens / q.value, low, high, q.n


def _bands(rated: list[_Rated]) -> str:
    if any(low is not None for _, _, low, _, _ in rated):
        return f"; bands are {figure.INTERVALS}"
    return "; too few for an interval, so none is drawn"


def _title(word: str, rated: list[_Rated]) -> str:
    known = [(cell, value) for cell, value, *_ in rated if value is not None]
    if not known:
        return f"{word} speed was not measured"
    cell, value = max(known, key=lambda pair: pair[1])
    singles = [v for c, v in known if c.batch == 1 and c.input_tokens == cell.input_tokens]
    text = f"{word} reaches {units.rate(value)} at batch {cell.batch}"
    if cell.batch == 1:
        return f"{text} and {cell.input_tokens:,} input tokens; larger batches are not faster"
    if singles and value / singles[0] < _NO_GAIN:
        return f"{text}, no more than one sequence alone"
    if singles:
        text += f", {units.number(value / singles[0], 2)}{units.NBSP}× batch 1"
    return text


def _figure(word: str, rated: list[_Rated]) -> figure.Figure:
    traces: list[dict[str, object]] = []
    labels: list[dict[str, object]] = []
    ends: list[float] = []
    batches = sorted({cell.batch for cell, *_ in rated})
    top = max((high or value or 0.0) for _, value, _, high, _ in rated)
    for index, batch in enumerate(batches):
        colour = figure.SERIES[index % len(figure.SERIES)]
        cells = sorted(
            (entry for entry in rated if entry[0].batch == batch and entry[1] is not None),
            key=lambda entry: entry[0].input_tokens,
        )
        if not cells:
            continue
        x = [float(cell.input_tokens) for cell, *_ in cells]
        y = [value or 0.0 for _, value, *_ in cells]
        low = [edge if edge is not None else v for (_, v, edge, *_) in cells for v in [v or 0.0]]
        high = [edge if edge is not None else v or 0.0 for (_, v, _, edge, _) in cells]
        traces += figure.band(x, low, high, colour)
        hover = f"Batch {batch}<br>%{{x}} tokens: %{{y:.4g}} tok/s"
        traces.append(figure.line(x, y, name=f"Batch {batch}", colour=colour, hover=hover))
        # Lines that nearly meet would have their labels on top of each other.
        shift = -14 if any(abs(y[-1] - other) < 0.08 * top for other in ends) else 14
        ends.append(y[-1])
        labels.append(
            figure.label(
                f"Batch {batch}", colour=colour, x=x[-1], y=y[-1], xanchor="right", yshift=shift
            )
        )
    widest = max(cell.input_tokens for cell, *_ in rated)
    return {
        "data": traces,
        "layout": {
            "xaxis": figure.axis("Input length (tokens)", range=[0, widest * 1.05]),
            "yaxis": figure.axis(f"{word} speed (tok/s)", range=[0, top * 1.2]),
            "shapes": [],
            "annotations": labels,
        },
    }


def _row(
    cell: GridCell, value: float | None, low: float | None, high: float | None, n: int
) -> tuple[str, ...]:
    interval = (
        f"{units.number(low)}–{units.number(high)}"
        if low is not None and high is not None
        else units.DASH
    )
    peak = cell.peak_memory_bytes
    memory = units.memory(peak.value) if peak.value is not None else units.DASH
    return (
        str(cell.batch),
        f"{cell.input_tokens:,}",
        units.number(value),
        interval,
        str(n),
        memory,
    )
