"""Perplexity through a server that scores prompts: the quality gate of changed precision."""

from __future__ import annotations

import math

from gpuagent.experiments.base import RunContext
from gpuagent.experiments.quality import WINDOW_TOKENS
from gpuagent.experiments.server_load import Server
from gpuagent.text import Passage
from gpuagent.wire.loaded import Perplexity


def server_perplexity(
    context: RunContext, server: Server, passage: Passage, tokens: int
) -> tuple[Perplexity | None, str | None]:
    """(perplexity, None), or (None, why it was not measured). Windows as in `quality`."""
    if tokens == 0:
        return None, "the trial did not ask for it"
    stream = server.engine.encode(passage.text)
    if stream is None:
        return None, "the model's tokenizer is not at hand"
    window = min(WINDOW_TOKENS, (server.report.max_context or WINDOW_TOKENS + 1) - 1)
    pieces = [stream[at : at + window] for at in range(0, min(tokens, len(stream)), window)]
    total, predicted = 0.0, 0
    for piece in pieces:
        if len(piece) < 2:
            continue
        context.tick()
        nll = server.engine.negative_log_likelihood(piece)
        if nll is None:
            return None, f"{server.engine.name} does not score a text"
        total += nll
        predicted += len(piece) - 1
    if predicted == 0:
        return None, "the text has fewer than two tokens"
    if not math.isfinite(total) or total / predicted > 700:
        return None, "the log likelihood is not finite: it overflows"
    value = Perplexity(
        value=math.exp(total / predicted),
        tokens=predicted,
        text=passage.name,
        text_sha256=passage.sha256,
        window_tokens=window,
    )
    return value, None
