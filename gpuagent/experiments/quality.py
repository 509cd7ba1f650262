"""Perplexity of a text, the check that a faster setting still computes the same model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from gpuagent.engines.base import Engine, LoadReport, Tick
from gpuagent.text import Passage
from gpuagent.wire.trial import Perplexity

WINDOW_TOKENS = 512

Score = Callable[[Sequence[int]], float]
"""Token ids of one window -> negative log likelihood of all but the first, in nats."""


def measure_perplexity(
    engine: Engine,
    report: LoadReport,
    passage: Passage,
    stream: Sequence[int] | None,
    *,
    tokens: int,
    tick: Tick,
    on_window: Callable[[int, int], None] = lambda done, total: None,
    score: Score | None = None,
) -> tuple[Perplexity | None, str | None]:
    """(perplexity, None), or (None, why it was not measured).

    stream: the passage as token ids. The first `tokens` of them are cut into windows of
    WINDOW_TOKENS that share nothing; the first token of a window is context, not predicted.
    Windows of a fixed length make the value comparable between settings, not with published
    numbers, which slide their window. score: where it is not the engine's own.
    """
    if report.model.random_weights:
        return None, report.weights_reason or "random weights"
    if stream is None:
        return None, report.weights_reason or "the model has no tokenizer"
    if tokens == 0:
        return None, "the trial asked for 0 perplexity tokens"
    window = min(WINDOW_TOKENS, report.max_context or WINDOW_TOKENS)
    windows = _windows(stream[:tokens], window)
    if not windows:
        return None, "the text has fewer than two tokens"
    total_nll, predicted = 0.0, 0
    score = score or engine.negative_log_likelihood
    for index, piece in enumerate(windows):
        tick()
        total_nll += score(piece)
        predicted += len(piece) - 1
        on_window(index + 1, len(windows))
    mean = total_nll / predicted
    # exp(709) is the largest double.
    if not math.isfinite(mean) or mean > 700:
        return None, f"the log likelihood is not finite in {report.model.dtype}: it overflows"
    value = Perplexity(
        value=math.exp(mean),
        tokens=predicted,
        text=passage.name,
        text_sha256=passage.sha256,
        window_tokens=window,
    )
    return value, None


def _windows(stream: Sequence[int], window: int) -> list[Sequence[int]]:
    pieces = [stream[start : start + window] for start in range(0, len(stream), window)]
    return [piece for piece in pieces if len(piece) >= 2]
