"""Weights in fewer bits: decode and prefill times, bytes, perplexity and agreement side by side.

One format is loaded at a time. The first that runs is the reference whose greedy answers the
others are compared with.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from gpuagent.engines.base import Engine, LoadReport
from gpuagent.errors import AgentError
from gpuagent.experiments.base import RunContext, median, timed
from gpuagent.experiments.inside import Inside, open_inside
from gpuagent.experiments.progress import Progress
from gpuagent.experiments.quality import measure_perplexity
from gpuagent.experiments.requests import PromptSource
from gpuagent.text import Passage
from gpuagent.wire import FailureReason, Quantity, Samples
from gpuagent.wire.inside import QuantisationConfig, QuantisationResult, QuantVariant
from gpuagent.wire.trial import LoadedModel

# Prompts of one length are answered together.
ANSWER_BATCH = 25
_EMPTY = Samples(values=())


@dataclass(slots=True)
class _Reference:
    """Greedy answers of the first method that ran. watched: whether the window was opened."""

    answers: list[tuple[int, ...]] | None = None
    watched: bool = False


def run(context: RunContext) -> QuantisationResult:
    """Every method that works here; one that does not is an entry with its reason."""
    config = _config(context)
    progress = Progress(emit=context.emit, clock=context.clock, phases={"measure": 120})
    progress.enter("measure", "Comparing formats")
    passage = context.load_text(config.text_path)
    reference = _Reference()
    variants: list[QuantVariant] = []
    model: LoadedModel | None = None
    inside: Inside | None = None
    for index, method in enumerate(config.methods):
        context.tick()
        if inside is not None:
            # One copy of the weights at a time.
            inside.engine.close()
        inside, variant = _one(context, config, method, passage, reference)
        variants.append(variant)
        if model is None and variant.reason is None and inside is not None:
            model = inside.loaded.report.model
        progress.advance(index + 1, len(config.methods), f"{method} measured")
    if model is None:
        message = f"methods: none of {', '.join(config.methods)} runs here: {variants[0].reason}"
        raise AgentError(FailureReason.CONFIG_ERROR, message)
    return QuantisationResult(
        model=model, answer_tokens=config.answer_tokens, variants=tuple(variants)
    )


def _config(context: RunContext) -> QuantisationConfig:
    config = context.spec.config
    if not isinstance(config, QuantisationConfig):
        message = f"config: {config.experiment} is not quantisation"
        raise AgentError(FailureReason.CONFIG_ERROR, message)
    return config


def _one(
    context: RunContext,
    config: QuantisationConfig,
    method: Any,
    passage: Passage,
    reference: _Reference,
) -> tuple[Inside | None, QuantVariant]:
    from gpuagent.lab import formats

    inside: Inside | None = None
    try:
        inside, prepared = _open(context, method)
        inside.engine.replace_module(prepared.module)
        return inside, _measure(context, config, method, prepared, inside, passage, reference)
    except formats.FormatUnavailableError as error:
        return inside, _absent(method, str(error))
    except AgentError as error:
        if error.reason not in (FailureReason.OUT_OF_MEMORY, FailureReason.MODEL_UNSUPPORTED):
            raise
        return inside, _absent(method, str(error)[:1000])


def _open(context: RunContext, method: str) -> tuple[Inside, Any]:
    import torch

    from gpuagent.lab import formats

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = formats.base_dtype(method, device)
    settings = context.spec.settings.model_copy(update={"dtype": dtype})
    inside = open_inside(context, settings)
    return inside, formats.prepare(inside.module, method)


def _absent(method: Any, reason: str) -> QuantVariant:
    return QuantVariant(
        method=method,
        decode_step_s=_EMPTY,
        prefill_s=_EMPTY,
        weight_bytes=Quantity(reason="it did not run"),
        perplexity_reason="it did not run",
        agreement_reason="it did not run",
        reason=reason,
    )


def _measure(
    context: RunContext,
    config: QuantisationConfig,
    method: Any,
    prepared: Any,
    inside: Inside,
    passage: Passage,
    reference: _Reference,
) -> QuantVariant:
    engine, report = inside.engine, inside.loaded.report
    stream = engine.encode(passage.text)
    # The same prompts for every method.
    rng = random.Random(context.spec.seed)  # noqa: S311  prompts, nothing secret
    source = PromptSource(stream=stream, vocab_size=report.vocab_size)
    prompt = source.take(_fits(config.input_tokens, config.decode_steps, report), rng)
    if not reference.watched:
        reference.watched = True
        context.begin_measuring()
    prefill_s, steps_s = _times(context, config, engine, prompt)
    answers = _answers(context, config, engine, source, rng)
    agreed: tuple[int, ...] = ()
    agreement_reason: str | None = None
    if reference.answers is None:
        reference.answers = answers
        agreement_reason = "it is the reference"
    else:
        agreed = tuple(map(_agreed, reference.answers, answers))
    perplexity, reason = measure_perplexity(
        engine, report, passage, stream, tokens=config.perplexity_tokens, tick=context.tick
    )
    return QuantVariant(
        method=method,
        kernel=prepared.kernel,
        decode_step_s=Samples(values=steps_s),
        prefill_s=Samples(values=prefill_s),
        weight_bytes=Quantity(value=float(prepared.weight_bytes)),
        perplexity=perplexity,
        perplexity_reason=reason,
        agreed_tokens=agreed,
        agreement_reason=agreement_reason,
    )


def _fits(tokens: int, more: int, report: LoadReport) -> int:
    limit = (report.max_context or 1 << 30) - more - 1
    return max(1, min(tokens, limit))


def _times(
    context: RunContext, config: QuantisationConfig, engine: Engine, prompt: tuple[int, ...]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    prefills: list[float] = []
    steps: list[float] = []
    typical: list[float] = []
    # The first round warms up and is discarded.
    for repeat in range(config.repeats + 1):
        context.tick()
        began = context.clock.now()
        batch = engine.prefill([prompt], use_cache=True)
        prefill = context.clock.now() - began
        own = []
        for _ in range(config.decode_steps):
            context.tick()
            own.append(timed(context.clock, lambda batch=batch: engine.step(batch)))  # type: ignore[misc]
        engine.release(batch)
        if repeat:
            prefills.append(prefill)
            steps += own
            typical.append(median(own))
    middle = median(typical)
    if middle > 0:
        context.facts.repeat_ratios.extend(value / middle for value in typical)
    return tuple(prefills), tuple(steps)


def _answers(
    context: RunContext,
    config: QuantisationConfig,
    engine: Any,
    source: PromptSource,
    rng: random.Random,
) -> list[tuple[int, ...]]:
    """Greedy answers, the first token of a prompt from its prefill."""
    found: list[tuple[int, ...]] = []
    left = config.prompts
    while left > 0:
        count = min(ANSWER_BATCH, left)
        prompts = [source.take(config.prompt_tokens, rng) for _ in range(count)]
        context.tick()
        batch = engine.prefill(prompts, use_cache=True)
        for _ in range(config.answer_tokens - 1):
            context.tick()
            engine.step(batch)
        found += [tuple(row[config.prompt_tokens :]) for row in engine.tokens(batch)]
        engine.release(batch)
        left -= count
    return found


def _agreed(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    for index, (a, b) in enumerate(zip(first, second, strict=True)):
        if a != b:
            return index
    return len(first)
