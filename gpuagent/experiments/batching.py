"""What a larger batch is worth, what padding wastes, and what prefill in chunks costs.

Padding is timed as it computes: a padded prompt runs as many positions as the longest of its
batch, whatever stands there.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Literal

from gpuagent.engines.base import Engine, InProcessEngine
from gpuagent.errors import AgentError
from gpuagent.experiments.base import RunContext, bytes_quantity, median, timed
from gpuagent.experiments.progress import Progress
from gpuagent.experiments.requests import PromptSource, draw_length
from gpuagent.experiments.warmup import warm_up
from gpuagent.wire import FailureReason, LengthSpec, Quantity, Samples
from gpuagent.wire.inside import (
    BatchingConfig,
    BatchingResult,
    BatchPoint,
    ChunkPoint,
    PaddingPoint,
)

# A workload of fixed length has no padding; the mix then is this wide.
DEFAULT_P95_RATIO = 2.5


def run(context: RunContext) -> BatchingResult:
    """Batch sweep first, smallest batch first, so that running out of memory keeps the others."""
    config = _config(context)
    progress = Progress(
        emit=context.emit,
        clock=context.clock,
        phases={"warmup": 3, "measure:batches": 30, "measure:mixed": 20, "measure:chunks": 10},
    )
    loaded = context.open_engine(context.spec.settings)
    engine, report = loaded.engine, loaded.report
    limit = report.max_context or 1 << 30
    source = PromptSource(
        stream=engine.encode(context.load_text(None).text), vocab_size=report.vocab_size
    )
    rng = random.Random(context.spec.seed)  # noqa: S311  prompts, nothing secret
    tokens = max(1, min(config.input_tokens, limit - config.decode_steps - 1))
    progress.enter("warmup", "Warming up")
    warm = warm_up(
        engine, source.take(tokens, rng), use_cache=True, clock=context.clock, tick=context.tick
    )
    context.facts.warmup_stable = warm.stable
    context.begin_measuring()
    progress.enter("measure:batches", "Batch after batch")
    points = []
    for index, batch in enumerate(sorted(set(config.batch_sizes))):
        points.append(_point(context, config, engine, source, rng, batch, tokens))
        progress.advance(index + 1, len(config.batch_sizes), f"Batch of {batch}")
        if points[-1].reason:
            break
    progress.enter("measure:mixed", "Mixed lengths, padded and sorted")
    padding = _padding(context, config, engine, source, rng, limit - 1)
    progress.enter("measure:chunks", "Prefill in chunks")
    long = max(1, min(config.chunked_input_tokens, limit - 1))
    chunks = _chunks(context, config, engine, source.take(long, rng))
    return BatchingResult(
        model=report.model,
        cold=warm.cold_start(report),
        input_tokens=tokens,
        chunked_input_tokens=long,
        points=tuple(points),
        padding=padding,
        chunks=chunks,
    )


def _config(context: RunContext) -> BatchingConfig:
    config = context.spec.config
    if not isinstance(config, BatchingConfig):
        raise AgentError(FailureReason.CONFIG_ERROR, f"config: {config.experiment} is not batching")
    return config


# --- batch sweep -------------------------------------------------------------------------------


def _point(
    context: RunContext,
    config: BatchingConfig,
    engine: Engine,
    source: PromptSource,
    rng: random.Random,
    batch: int,
    tokens: int,
) -> BatchPoint:
    prefills: list[float] = []
    steps: list[float] = []
    typical: list[float] = []
    reason: str | None = None
    engine.reset_peak_memory()
    try:
        for repeat in range(config.repeats + 1):
            own_prefill, own_steps = _once(context, config, engine, source, rng, batch, tokens)
            if repeat:
                prefills.append(own_prefill)
                steps += own_steps
                typical.append(median(own_steps))
    except AgentError as error:
        if error.reason is not FailureReason.OUT_OF_MEMORY:
            raise
        # A result, not a failure: the largest batch that fits is the one before.
        reason, prefills, steps = f"out of memory: {error}"[:1000], [], []
    middle = median(typical) if typical else 0.0
    if middle > 0:
        context.facts.repeat_ratios.extend(value / middle for value in typical)
    return BatchPoint(
        batch=batch,
        prefill_s=Samples(values=tuple(prefills)),
        decode_step_s=Samples(values=tuple(steps)),
        peak_memory_bytes=bytes_quantity(engine.peak_memory_bytes()),
        reason=reason,
    )


def _once(
    context: RunContext,
    config: BatchingConfig,
    engine: Engine,
    source: PromptSource,
    rng: random.Random,
    size: int,
    tokens: int,
) -> tuple[float, list[float]]:
    context.tick()
    prompts = [source.take(tokens, rng) for _ in range(size)]
    began = context.clock.now()
    batch = engine.prefill(prompts, use_cache=True)
    prefill_s = context.clock.now() - began
    steps = []
    for _ in range(config.decode_steps):
        context.tick()
        steps.append(timed(context.clock, lambda: engine.step(batch)))
    engine.release(batch)
    return prefill_s, steps


# --- padding -----------------------------------------------------------------------------------


def mixed_lengths(workload: LengthSpec, count: int, limit: int, rng: random.Random) -> list[int]:
    """Prompt lengths of the workload; of a fixed one a lognormal mix around it."""
    spec = workload
    if spec.kind == "fixed":
        p95 = round(DEFAULT_P95_RATIO * spec.mean)
        if p95 <= spec.mean:
            p95 = spec.mean + 1
        spec = LengthSpec(kind="lognormal", mean=spec.mean, p95=p95)
    return [max(1, min(limit, draw_length(spec, rng))) for _ in range(count)]


def _padding(
    context: RunContext,
    config: BatchingConfig,
    engine: Engine,
    source: PromptSource,
    rng: random.Random,
    limit: int,
) -> tuple[PaddingPoint, ...]:
    spec = context.spec.workload.input_tokens
    lengths = mixed_lengths(spec, config.mixed_requests, limit, rng)
    orders: dict[Literal["as_they_come", "bucketed"], list[list[int]]] = {
        "as_they_come": _batches(lengths, config.mixed_batch),
        "bucketed": _batches(sorted(lengths), config.mixed_batch),
    }
    seconds: dict[str, list[float]] = {name: [] for name in orders}
    for _ in range(config.repeats):
        # A and B in turn, so that both see the same minutes.
        for name, batches in orders.items():
            seconds[name].append(_prefill_all(context, engine, source, rng, batches))
    return tuple(
        PaddingPoint(
            order=name,
            seconds=Samples(values=tuple(seconds[name])),
            computed_tokens=sum(max(batch) * len(batch) for batch in batches),
            useful_tokens=sum(lengths),
        )
        for name, batches in orders.items()
    )


def _batches(lengths: Sequence[int], size: int) -> list[list[int]]:
    return [list(lengths[start : start + size]) for start in range(0, len(lengths), size)]


def _prefill_all(
    context: RunContext,
    engine: Engine,
    source: PromptSource,
    rng: random.Random,
    batches: Sequence[Sequence[int]],
) -> float:
    total = 0.0
    for lengths in batches:
        context.tick()
        prompts = [source.take(max(lengths), rng) for _ in lengths]
        began = context.clock.now()
        batch = engine.prefill(prompts, use_cache=True)
        total += context.clock.now() - began
        engine.release(batch)
    return total


# --- chunks ------------------------------------------------------------------------------------


def _chunks(
    context: RunContext, config: BatchingConfig, engine: Engine, prompt: tuple[int, ...]
) -> tuple[ChunkPoint, ...]:
    sizes = sorted({*(c for c in config.chunk_tokens if c < len(prompt)), len(prompt)})
    if not isinstance(engine, InProcessEngine):
        reason = f"engine {engine.name} does not run its model in the agent's process"
        return tuple(_no_chunk(size, reason) for size in sizes)
    return tuple(_chunk_point(context, config, engine, prompt, size) for size in sizes)


def _no_chunk(size: int, reason: str) -> ChunkPoint:
    return ChunkPoint(
        chunk_tokens=size,
        seconds=Samples(values=()),
        longest_chunk_s=Quantity(reason=reason),
        reason=reason,
    )


def _chunk_point(
    context: RunContext,
    config: BatchingConfig,
    engine: InProcessEngine,
    prompt: tuple[int, ...],
    size: int,
) -> ChunkPoint:
    totals: list[float] = []
    longest: list[float] = []
    for repeat in range(config.repeats + 1):
        pieces = _prefill_in_chunks(context, engine, prompt, size)
        if repeat:
            totals.append(sum(pieces))
            longest.append(max(pieces))
    return ChunkPoint(
        chunk_tokens=size,
        seconds=Samples(values=tuple(totals)),
        longest_chunk_s=Quantity(value=median(longest)),
    )


def _prefill_in_chunks(
    context: RunContext, engine: InProcessEngine, prompt: tuple[int, ...], size: int
) -> list[float]:
    import torch

    from gpuagent.lab.clock import synchronise

    module, cache_name = engine.module, engine.cache_argument
    cache: Any = None
    times = []
    with torch.inference_mode():
        for start in range(0, len(prompt), size):
            context.tick()
            ids = torch.tensor([prompt[start : start + size]], device=engine.device)
            arguments: dict[str, Any] = {"input_ids": ids, "use_cache": True}
            if cache is not None:
                arguments[cache_name] = cache
            synchronise(engine.device)
            began = context.clock.now()
            output = module(**arguments)
            synchronise(engine.device)
            times.append(context.clock.now() - began)
            cache = output.get(cache_name)
    return times
