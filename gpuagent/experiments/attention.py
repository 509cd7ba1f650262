"""Attention of the model's own size: implementations, then structures that compute or store less.

Time is that of one layer; memory and quality are those of the whole model. Each variant is checked
against a float64 reference of its own structure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpuagent.errors import AgentError
from gpuagent.experiments.base import RunContext
from gpuagent.experiments.inside import HeadShape, Inside, head_shape, open_inside
from gpuagent.experiments.progress import Progress
from gpuagent.experiments.quality import measure_perplexity
from gpuagent.wire import FailureReason, Quantity, Samples
from gpuagent.wire.inside import (
    AttentionConfig,
    AttentionPoint,
    AttentionResult,
    AttentionVariant,
)
from gpuagent.wire.trial import Perplexity

# The float64 reference of a dense mask takes S² numbers per head.
CHECK_TOKENS = 320
# One variant may take this long at one context length.
POINT_LIMIT_S = 20.0


def run(context: RunContext) -> AttentionResult:
    """All implementations at the model's own structure, then all structures."""
    from gpuagent.lab import attention as lab

    config = _config(context)
    progress = Progress(
        emit=context.emit, clock=context.clock, phases={"measure": 30, "finish": 20}
    )
    inside = open_inside(context)
    shape = head_shape(inside.module)
    structures = lab.structures(
        shape.heads, shape.kv_heads, window=config.window, global_tokens=config.global_tokens
    )
    bench = _Bench(context, config, inside, shape)
    context.begin_measuring()
    progress.enter("measure", "Timing attention")
    variants: list[AttentionVariant] = []
    found = lab.implementations(inside.device)
    total = len(found) + len(structures)
    bench.expect(total - sum(isinstance(action, str) for action in found.values()))
    for name, action in found.items():
        variants.append(bench.implementation(name, action, structures[0]))
        progress.advance(len(variants), total, f"Variant {len(variants)} of {total}")
    for structure in structures:
        variants.append(bench.structure(structure))
        progress.advance(len(variants), total, f"Variant {len(variants)} of {total}")
    progress.enter("finish", "Perplexity of each structure")
    measured = [
        bench.with_quality(variant, structure)
        for variant, structure in zip(variants[len(found) :], structures, strict=True)
    ]
    return AttentionResult(
        model=inside.loaded.report.model,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_size=shape.head_size,
        layers=shape.layers,
        variants=(*variants[: len(found)], *measured),
    )


def _config(context: RunContext) -> AttentionConfig:
    config = context.spec.config
    if not isinstance(config, AttentionConfig):
        message = f"config: {config.experiment} is not attention"
        raise AgentError(FailureReason.CONFIG_ERROR, message)
    return config


class _Bench:
    def __init__(
        self, context: RunContext, config: AttentionConfig, inside: Inside, shape: HeadShape
    ) -> None:
        self._context, self._config, self._inside, self._shape = context, config, inside, shape
        self._dtype = inside.module.dtype
        self._left_s = config.share_s if config.share_s is not None else float("inf")
        self._variants_left = 1

    def expect(self, variants: int) -> None:
        """How many variants share the time that the config allows."""
        self._variants_left = max(1, variants)

    def _inputs(self, tokens: int, kv_heads: int) -> tuple[Any, Any, Any]:
        import torch

        generator = torch.Generator().manual_seed(self._context.spec.seed)

        def make(heads: int) -> Any:
            x = torch.randn(1, heads, tokens, self._shape.head_size, generator=generator)
            return x.to(device=self._inside.device, dtype=self._dtype)

        return make(self._shape.heads), make(kv_heads), make(kv_heads)

    def implementation(self, name: str, action: Any, own: Any) -> AttentionVariant:
        base: dict[str, Any] = {
            "name": name,
            "kind": "implementation",
            "kv_heads": own.kv_heads,
            "perplexity_reason": "same result as the model's own attention",
        }
        return self._variant(base, action, own)

    def structure(self, structure: Any) -> AttentionVariant:
        from gpuagent.lab import attention as lab

        base: dict[str, Any] = {
            "name": structure.name,
            "kind": "structure",
            "kv_heads": structure.kv_heads,
            "window": structure.window,
            "global_tokens": structure.global_tokens if structure.window else None,
            "perplexity_reason": "not measured yet",
        }
        return self._variant(base, lambda q, k, v: lab.attend(q, k, v, structure), structure)

    def _variant(self, base: dict[str, Any], action: Any, structure: Any) -> AttentionVariant:
        missing = Quantity(reason="it did not run")
        if isinstance(action, str):
            return AttentionVariant(**base, error=missing, plain_error=missing, reason=action)
        from gpuagent.lab.kernels import FAILURES

        try:
            errors = self._errors(action, structure)
        except FAILURES as error:
            first = str(error).splitlines()[0][:300] if str(error) else type(error).__name__
            return AttentionVariant(**base, error=missing, plain_error=missing, reason=first)
        points = self._points(action, structure)
        return AttentionVariant(**base, error=errors[0], plain_error=errors[1], points=points)

    def _errors(self, action: Callable[..., Any], structure: Any) -> tuple[Quantity, Quantity]:
        import torch

        from gpuagent.lab import attention as lab

        tokens = CHECK_TOKENS
        if structure.window:
            # Beyond the window, so that the mask matters.
            tokens = max(tokens, structure.window + 2 * structure.global_tokens + 1)
        with torch.inference_mode():
            inputs = self._inputs(tokens, structure.kv_heads)
            exact = lab.reference(*inputs, structure, torch.float64)
            plain = lab.reference(*inputs, structure, self._dtype)
            got = action(*inputs)
            error = float((got.double() - exact).abs().max())
            plain_error = float((plain.double() - exact).abs().max())
        return Quantity(value=error), Quantity(value=plain_error)

    def _points(self, action: Any, structure: Any) -> tuple[AttentionPoint, ...]:
        """Shortest first; a length whose predicted time exceeds what is left ends it."""
        found: list[AttentionPoint] = []
        began = self._context.clock.now()
        # What quick variants leave goes to those after them.
        limit_s = self._left_s / max(1, self._variants_left)
        for tokens in sorted(set(self._config.context_tokens)):
            self._context.tick()
            left_s = limit_s - (self._context.clock.now() - began)
            skip = self._too_long(found, structure, tokens, left_s)
            found.append(self._point(action, structure, tokens, skip))
        self._variants_left -= 1
        self._left_s -= self._context.clock.now() - began
        return tuple(found)

    def _too_long(
        self, shorter: list[AttentionPoint], structure: Any, tokens: int, left_s: float
    ) -> str | None:
        """Why this length is left out: time is taken to grow with the pairs computed."""
        if not shorter:
            return None
        last = shorter[-1]
        if not last.seconds.n:
            return "a shorter context did not run or was left out"
        # Warm-up and a trial call come with the samples.
        calls = self._config.repeats + 2
        growth = structure.computed_pairs(tokens) / structure.computed_pairs(last.context_tokens)
        predicted_s = calls * max(last.seconds.values) * growth
        limits = (POINT_LIMIT_S, left_s, self._context.remaining_s() / 4)
        if predicted_s <= min(limits):
            return None
        return (
            f"left out: {calls} calls would take about {predicted_s:.1f} s, "
            f"{max(0.0, min(limits)):.1f} s are left for them"
        )

    def _point(self, action: Any, structure: Any, tokens: int, skip: str | None) -> AttentionPoint:
        import torch

        from gpuagent.lab.clock import sample_s
        from gpuagent.lab.kernels import FAILURES

        shape, itemsize = self._shape, self._dtype.itemsize
        seconds: tuple[float, ...] = ()
        extra, reason = Quantity(reason="not run"), skip
        if reason is None:
            try:
                q, k, v = self._inputs(tokens, structure.kv_heads)
                extra = self._extra_bytes(lambda: action(q, k, v), q)
                seconds = sample_s(
                    lambda: action(q, k, v),
                    device=self._inside.device,
                    repeats=self._config.repeats,
                    tick=self._context.tick,
                )
            except FAILURES as error:
                # Out of memory is a result here: the largest context that fits is the one before.
                kind = "out of memory" if isinstance(error, torch.OutOfMemoryError) else "failed"
                reason = f"{kind}: {str(error).splitlines()[0][:200] if str(error) else ''}"
        cached = structure.cached_tokens(tokens)
        return AttentionPoint(
            context_tokens=tokens,
            seconds=Samples(values=seconds),
            flops=4.0 * shape.head_size * shape.heads * structure.computed_pairs(tokens),
            cache_bytes=2 * structure.kv_heads * shape.head_size * itemsize * shape.layers * cached,
            extra_bytes=extra,
            reason=reason,
        )

    def _extra_bytes(self, action: Callable[[], Any], q: Any) -> Quantity:
        import torch

        device = self._inside.device
        if device.type != "cuda":
            return Quantity(reason="the processor's allocator keeps no peak of its own")
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        with torch.inference_mode():
            action()
        torch.cuda.synchronize(device)
        peak = torch.cuda.max_memory_allocated(device) - before
        output = q.numel() * q.element_size()
        return Quantity(value=float(max(0, peak - output)))

    def with_quality(self, variant: AttentionVariant, structure: Any) -> AttentionVariant:
        value, reason = self._perplexity(structure)
        update = {"perplexity": value, "perplexity_reason": reason}
        return variant.model_copy(update=update)

    def _perplexity(self, structure: Any) -> tuple[Perplexity | None, str | None]:
        from gpuagent.lab.attention import StructureInModel

        context, engine = self._context, self._inside.engine
        report = self._inside.loaded.report
        passage = context.load_text(self._config.text_path)
        stream = engine.encode(passage.text)
        try:
            with StructureInModel(self._inside.module, structure) as changed:
                value, reason = measure_perplexity(
                    engine,
                    report,
                    passage,
                    stream,
                    tokens=self._config.perplexity_tokens,
                    tick=context.tick,
                )
        except (AttributeError, KeyError, ImportError, ValueError) as error:
            return None, f"this architecture does not take another attention: {error}"[:400]
        if value is not None and not changed.calls:
            return None, "this architecture does not take another attention by name"
        return value, reason
