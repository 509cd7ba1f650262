"""Computed for engines with a paged cache: how much of it stays empty, by block size."""

from __future__ import annotations

import numpy as np

from advisor import units
from advisor.charts import figure
from advisor.charts.base import Chart, ChartInput, Column, empty, nothing_yet
from advisor.evidence import TrialEvidence
from gpuagent.wire.trial import BaselineResult, KvCacheResult

BLOCKS = (1, 8, 16, 32, 64, 128, 256)
_ID, _SHORT, _TITLE = "kv-blocks", "Blocks", "Empty places of a paged cache by block size"
# vLLM's default on GPUs, and a size at which the loss shows.
_USUAL, _LARGE = 16, 128


def waste(data: ChartInput) -> Chart:
    """Internal fragmentation over the life of the study's own requests."""
    lengths = _lengths(data)
    if not data.evidence.succeeded(KvCacheResult) or lengths is None:
        return empty(_ID, _SHORT, _TITLE, nothing_yet(data, "the KV cache and request lengths"))
    trial, requests = lengths
    shares = {block: empty_frac(requests, block) for block in BLOCKS}
    longest = max(prompt + answer for prompt, answer in requests)
    reserved = empty_frac(requests, longest)
    per_token = data.evidence.shape.kv_bytes_per_token(2) if data.evidence.shape else None
    return Chart(
        id=_ID,
        short=_SHORT,
        title=f"Blocks of {_USUAL} tokens would leave {units.percent(shares[_USUAL])} of a paged "
        f"cache empty, blocks of {_LARGE} {units.percent(shares[_LARGE])}",
        note=(
            f"Computed, not measured: the {len(requests):,} requests of trial {trial.ordinal}, "
            "averaged over the tokens of their answers, without shared prefixes. Smaller blocks "
            "need a longer block table; what a kernel pays for that is not computed."
        ),
        label="Line chart of the empty share of a paged cache against block size",
        figure=_figure(shares),
        columns=(
            Column("Block (tokens)"),
            Column("Empty"),
            Column("Blocks of the longest request"),
            Column("Block in 16 bit"),
            Column("Note", False),
        ),
        rows=(
            *(_row(block, share, longest, per_token, "") for block, share in shares.items()),
            _row(longest, reserved, longest, per_token, "one block for the longest request"),
        ),
    )


def empty_frac(requests: list[tuple[int, int]], block: int) -> float:
    """Empty places over allocated places, summed over all steps of all (prompt, answer) pairs."""
    used = allocated = 0.0
    for prompt, answer in requests:
        held = np.arange(prompt, prompt + max(1, answer), dtype=np.float64)
        used += float(held.sum())
        allocated += float((np.ceil(held / block) * block).sum())
    return 1 - used / allocated


def _lengths(data: ChartInput) -> tuple[TrialEvidence, list[tuple[int, int]]] | None:
    for trial in data.evidence.succeeded(BaselineResult):
        result = trial.measured(BaselineResult)
        done = [r for r in result.requests if r.error is None] if result else []
        if done:
            return trial, [(r.input_tokens, r.output_tokens) for r in done]
    return None


def _row(
    block: int, share: float, longest: int, per_token: float | None, note: str
) -> tuple[str, ...]:
    size = units.memory(per_token * block) if per_token is not None else units.DASH
    return (f"{block:,}", units.percent(share), f"{-(-longest // block):,}", size, note)


def _figure(shares: dict[int, float]) -> figure.Figure:
    x, y = [float(b) for b in shares], [share * 100 for share in shares.values()]
    hover = "Blocks of %{x}: %{y:.3g} % empty"
    return {
        "data": [figure.line(x, y, name="Empty", colour=figure.BEST, hover=hover)],
        "layout": {
            "xaxis": figure.axis(
                "Block (tokens, log)",
                type="log",
                tickvals=x,
                ticktext=[str(b) for b in shares],
            ),
            "yaxis": figure.axis("Empty share (%)", range=[0, max(y) * 1.2 or 1.0]),
            "shapes": [],
            "annotations": [],
        },
    }
