"""What the key-value cache is worth: decode steps with and without it at growing contexts.

Without a cache one step computes the whole context again, so its time grows with the context while
the cached step's hardly does. The cache's own bytes are read from its tensors and can be compared
with the formula 2 x layers x KV heads x head size x bytes per value. Forms of the cache are timed,
and judged by the perplexity of a text that is read back from them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gpuagent.engines.base import Engine, InProcessEngine
from gpuagent.errors import AgentError
from gpuagent.experiments.base import RunContext, bytes_quantity, median, timed
from gpuagent.experiments.progress import Progress
from gpuagent.experiments.quality import Score, measure_perplexity
from gpuagent.experiments.requests import PromptSource
from gpuagent.experiments.warmup import WarmUp, warm_up
from gpuagent.wire import FailureReason, Quantity, Samples
from gpuagent.wire.inside import CacheDetails
from gpuagent.wire.trial import KvCacheConfig, KvCacheResult, KvPoint, Perplexity

# Uncached steps are long and alike: two for every repeat say as much as many.
UNCACHED_STEPS = 2
# Recomputing may use this much time for one context length, and this share of what is left.
UNCACHED_LIMIT_S = 30.0
_UNCACHED_SHARE = 0.25


@dataclass(slots=True)
class _Point:
    """Raw numbers of one context length while they are taken."""

    context_tokens: int
    cached_step_s: list[float] = field(default_factory=list)
    uncached_step_s: list[float] = field(default_factory=list)
    repeat_step_s: list[float] = field(default_factory=list)
    uncached_steps: int = UNCACHED_STEPS
    uncached_reason: str | None = None
    cache_bytes: int = 0
    memory_bytes: int | None = None

    def to_wire(self) -> KvPoint:
        return KvPoint(
            context_tokens=self.context_tokens,
            cached_step_s=Samples(values=tuple(self.cached_step_s)),
            uncached_step_s=Samples(values=tuple(self.uncached_step_s)),
            uncached_reason=self.uncached_reason,
            cache_bytes=self.cache_bytes,
            memory_bytes=bytes_quantity(self.memory_bytes),
        )


def run(context: RunContext) -> KvCacheResult:
    """Measure the spec's settings at the config's context lengths, shortest first."""
    config = _config(context)
    progress = Progress(
        emit=context.emit,
        clock=context.clock,
        phases={"warmup": 3, "measure": 40, "finish": 3},
    )
    loaded = context.open_engine(context.spec.settings)
    engine, report = loaded.engine, loaded.report
    if not engine.capabilities.kv_cache_toggle:
        message = f"engine: {engine.name} cannot decode without its cache"
        raise AgentError(FailureReason.CONFIG_ERROR, message)
    passage = context.load_text(None)
    stream = engine.encode(passage.text)
    source = PromptSource(stream=stream, vocab_size=report.vocab_size)
    rng = random.Random(context.spec.seed)  # noqa: S311  prompts, nothing secret
    points = _points(context, config, report.max_context)

    progress.enter("warmup", "Warming up")
    middle = points[len(points) // 2].context_tokens
    warm = warm_up(
        engine,
        source.take(middle, rng),
        use_cache=True,
        clock=context.clock,
        tick=context.tick,
    )
    context.facts.warmup_stable = warm.stable
    _limit_uncached(context, config, points, warm, middle)
    context.begin_measuring()
    _measure_steps(context, config, engine, points, source, rng, progress)
    progress.enter("finish", "Measuring the cache's memory")
    released = _measure_memory(context, engine, points, source, rng)

    def quality(score: Score) -> tuple[Perplexity | None, str | None]:
        return measure_perplexity(
            engine,
            report,
            passage,
            stream,
            tokens=config.perplexity_tokens,
            tick=context.tick,
            score=score,
        )

    details = _details(
        context, config, engine, source.take(points[-1].context_tokens, rng), quality
    )
    return KvCacheResult(
        model=report.model,
        cold=warm.cold_start(report),
        points=tuple(point.to_wire() for point in points),
        bytes_after_release=released,
        details=details,
    )


def _config(context: RunContext) -> KvCacheConfig:
    config = context.spec.config
    if not isinstance(config, KvCacheConfig):
        raise AgentError(FailureReason.CONFIG_ERROR, f"config: {config.experiment} is not kv_cache")
    return config


def _points(context: RunContext, config: KvCacheConfig, max_context: int | None) -> list[_Point]:
    wanted = sorted(set(config.context_tokens))
    points = [
        _Point(tokens)
        for tokens in wanted
        if max_context is None or tokens + config.decode_steps <= max_context
    ]
    if len(points) < 2:
        raise AgentError(
            FailureReason.CONFIG_ERROR,
            f"context_tokens: fewer than two of {wanted} fit the model's context of {max_context}",
        )
    if len(points) < len(wanted):
        left_out = ", ".join(str(tokens) for tokens in wanted[len(points) :])
        context.facts.notes.append(f"contexts beyond the model's own were left out: {left_out}")
    return points


def _limit_uncached(
    context: RunContext,
    config: KvCacheConfig,
    points: list[_Point],
    warm: WarmUp,
    warm_tokens: int,
) -> None:
    """Shorten or leave out what would take too long. A step is a prefill of the whole context."""
    allowed_s = min(UNCACHED_LIMIT_S, _UNCACHED_SHARE * context.remaining_s())
    for point in points:
        # At least linear in the context; attention adds to that, so this is a lower estimate.
        step_s = warm.prefill_s * point.context_tokens / warm_tokens
        if step_s * config.repeats * UNCACHED_STEPS > allowed_s:
            point.uncached_steps = 1
        if step_s * config.repeats > allowed_s:
            point.uncached_steps = 0
            point.uncached_reason = (
                f"one step without the cache takes about {step_s:.1f} s; "
                f"{config.repeats} repeats would exceed {allowed_s:.0f} s"
            )


def _measure_steps(
    context: RunContext,
    config: KvCacheConfig,
    engine: Engine,
    points: list[_Point],
    source: PromptSource,
    rng: random.Random,
    progress: Progress,
) -> None:
    progress.enter("measure", "Decoding with and without the cache")
    # Long contexts take longer; counting tokens keeps the progress honest.
    total = config.repeats * sum(point.context_tokens for point in points)
    done = 0
    for repeat in range(config.repeats):
        order = list(points)
        rng.shuffle(order)
        for point in order:
            prompt = source.take(point.context_tokens, rng)
            _cached_steps(context, config, engine, point, prompt)
            _uncached_steps(context, engine, point, prompt)
            done += point.context_tokens
            progress.advance(done, total, f"Repeat {repeat + 1} of {config.repeats}")
    typical = [median(point.repeat_step_s) for point in points]
    for repeat in range(config.repeats):
        ratios = [
            point.repeat_step_s[repeat] / middle
            for point, middle in zip(points, typical, strict=True)
            if middle > 0
        ]
        if ratios:
            context.facts.repeat_ratios.append(sum(ratios) / len(ratios))


def _cached_steps(
    context: RunContext,
    config: KvCacheConfig,
    engine: Engine,
    point: _Point,
    prompt: tuple[int, ...],
) -> None:
    context.tick()
    batch = engine.prefill([prompt], use_cache=True)
    steps: list[float] = []
    for _ in range(config.decode_steps):
        context.tick()
        steps.append(timed(context.clock, lambda: engine.step(batch)))
    engine.release(batch)
    point.cached_step_s.extend(steps)
    point.repeat_step_s.append(median(steps))


def _uncached_steps(
    context: RunContext, engine: Engine, point: _Point, prompt: tuple[int, ...]
) -> None:
    """A step without a cache is a forward pass over all tokens so far, and so is the prefill."""
    for _ in range(point.uncached_steps):
        context.tick()
        began = context.clock.now()
        batch = engine.prefill([prompt], use_cache=False)
        point.uncached_step_s.append(context.clock.now() - began)
        engine.release(batch)


def _measure_memory(
    context: RunContext,
    engine: Engine,
    points: list[_Point],
    source: PromptSource,
    rng: random.Random,
) -> Quantity:
    """Cache bytes and memory at each context, apart from the timing: reading them takes time."""
    before = engine.memory_bytes()
    for point in points:
        context.tick()
        batch = engine.prefill([source.take(point.context_tokens, rng)], use_cache=True)
        point.cache_bytes = engine.cache_bytes(batch)
        point.memory_bytes = engine.memory_bytes()
        engine.release(batch)
    after = engine.memory_bytes()
    if before is None or after is None:
        return bytes_quantity(None)
    return Quantity(value=float(max(0, after - before)))


def _details_tokens(config: KvCacheConfig, longest: int, max_context: int | None) -> int:
    """The longest context, less where the decoded tokens would leave the model's own."""
    if max_context is None:
        return longest
    return max(1, min(longest, max_context - config.decode_steps * (config.repeats + 1)))


def _details(
    context: RunContext,
    config: KvCacheConfig,
    engine: Engine,
    prompt: Sequence[int],
    quality: Callable[[Score], tuple[Perplexity | None, str | None]],
) -> CacheDetails | None:
    if not isinstance(engine, InProcessEngine):
        return None
    from gpuagent.lab import caches

    return caches.measure(
        engine,
        prompt,
        steps=config.decode_steps,
        repeats=config.repeats,
        tick=context.tick,
        quality=quality,
    )
