"""The workload as a list of requests, fixed before the first is sent.

Lengths and arrival times follow from the spec and the seed alone, so a trial can be repeated. The
prompts are real text where there is a tokenizer, random token ids otherwise.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gpuagent.errors import AgentError
from gpuagent.wire import FailureReason, LengthSpec, Workload

# z of the 95th percentile of a normal distribution.
_Z95 = 1.6448536269514722


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """intended_s: seconds after the start of the window; None in a closed loop.

    prompt: token ids, or text for a server whose tokenizer is not at hand. input_tokens: as
    planned.
    """

    intended_s: float | None
    prompt: tuple[int, ...]
    output_tokens: int
    input_tokens: int = 0


class Prompts(Protocol):
    """Makes a prompt of about so many tokens."""

    def take(self, tokens: int, rng: random.Random) -> Any: ...


class PromptSource:
    """Prompts of any length: slices of a text at random places, or random ids."""

    def __init__(self, *, stream: Sequence[int] | None, vocab_size: int) -> None:
        self._stream = list(stream) if stream else None
        self._vocab_size = vocab_size

    def take(self, tokens: int, rng: random.Random) -> tuple[int, ...]:
        """`tokens` token ids; a text that is too short starts over."""
        if self._stream is None:
            return tuple(rng.randrange(self._vocab_size) for _ in range(tokens))
        start = rng.randrange(len(self._stream))
        size = len(self._stream)
        return tuple(self._stream[(start + offset) % size] for offset in range(tokens))


def draw_length(spec: LengthSpec, rng: random.Random) -> int:
    """One length in tokens, at least 1.

    A lognormal has p95 / mean = exp(z s - s² / 2), which is solved for the smaller s.
    """
    if spec.kind == "fixed" or spec.p95 is None:
        length = spec.mean
    else:
        sigma = _Z95 - math.sqrt(max(0.0, _Z95**2 - 2 * math.log(spec.p95 / spec.mean)))
        mu = math.log(spec.mean) - sigma**2 / 2
        length = round(rng.lognormvariate(mu, sigma))
    if spec.maximum is not None:
        length = min(length, spec.maximum)
    return max(1, length)


def plan_requests(
    workload: Workload,
    *,
    count: int,
    seed: int,
    source: Prompts,
    max_context: int | None,
) -> list[PlannedRequest]:
    """`count` requests of the workload.

    A drawn length that does not fit the model's context is cut; a workload whose mean does not fit
    is refused with AgentError(config_error).
    """
    _refuse_if_too_long(workload, max_context)
    rng = random.Random(seed)  # noqa: S311  reproducible draws, nothing secret
    planned: list[PlannedRequest] = []
    at_s = 0.0
    for _ in range(count):
        intended_s = None
        if workload.request_rate_per_s is not None:
            at_s += rng.expovariate(workload.request_rate_per_s)
            intended_s = at_s
        outputs = draw_length(workload.output_tokens, rng)
        inputs = draw_length(workload.input_tokens, rng)
        if max_context is not None:
            outputs = min(outputs, max_context - 1)
            inputs = min(inputs, max_context - outputs)
        planned.append(PlannedRequest(intended_s, source.take(inputs, rng), outputs, inputs))
    return planned


def _refuse_if_too_long(workload: Workload, max_context: int | None) -> None:
    wanted = workload.input_tokens.mean + workload.output_tokens.mean
    if max_context is not None and wanted > max_context:
        raise AgentError(
            FailureReason.CONFIG_ERROR,
            f"workload: {workload.input_tokens.mean} input and {workload.output_tokens.mean} "
            f"output tokens do not fit the model's context of {max_context}; shorten them",
        )
