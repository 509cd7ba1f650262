"""A model's own matrix products, elementwise operators and decode step, taken apart.

Weights are the model's own, layer after layer, so that no product finds its matrix in a cache that
a real step would have evicted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from gpuagent.engines.base import Tick
from gpuagent.lab.clock import sample_s, synchronise
from gpuagent.wire import Quantity, Samples
from gpuagent.wire.ceilings import Ceilings
from gpuagent.wire.inside import FusedOperator, GemmShape, StepCosts, StepForm

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
# Decode positions that a static cache is given; a step reads all of them.
STATIC_TOKENS = 128
# What torch raises where a kernel, a compiler or an operator is missing.
FAILURES = (RuntimeError, ValueError, TypeError, AttributeError, ImportError, OSError)
_NO_COMPILER = "torch.compile does not work here"
_COPIES = frozenset({"aten::copy_", "aten::cat"})


@dataclass(slots=True)
class LinearGroup:
    """Linear layers of one shape. weights: [n, k] each, in the model's dtype."""

    names: list[str]
    weights: list[torch.Tensor]

    @property
    def label(self) -> str:
        return " / ".join(dict.fromkeys(self.names))[:200]


def linear_groups(module: Any) -> list[LinearGroup]:
    """The model's linear layers by shape, those with most weights first."""
    groups: dict[tuple[int, int], LinearGroup] = {}
    for name, child in module.named_modules():
        weight = getattr(child, "weight", None)
        if not isinstance(child, torch.nn.Linear) or not isinstance(weight, torch.Tensor):
            continue
        n, k = weight.shape
        group = groups.setdefault((n, k), LinearGroup([], []))
        group.names.append(name.rpartition(".")[2])
        group.weights.append(weight)
    return sorted(groups.values(), key=lambda g: -sum(w.numel() for w in g.weights))


def measure_gemm(
    group: LinearGroup,
    *,
    rows: int,
    dtype: str,
    ceilings: Ceilings,
    repeats: int,
    tick: Tick,
) -> GemmShape:
    """Mean time of one product over all layers of the group, [repeats]."""
    n, k = group.weights[0].shape
    device = group.weights[0].device
    itemsize = DTYPES[dtype].itemsize
    weights = [weight.to(DTYPES[dtype]) for weight in group.weights]
    x = torch.randn(rows, k, device=device).to(DTYPES[dtype])

    def sweep() -> None:
        for weight in weights:
            torch.nn.functional.linear(x, weight)

    seconds = sample_s(sweep, device=device, repeats=repeats, tick=tick)
    flops, size = 2.0 * rows * n * k, float(itemsize * (n * k + rows * (n + k)))
    return GemmShape(
        name=group.label,
        rows=rows,
        n=n,
        k=k,
        dtype=dtype,
        per_step=len(weights),
        seconds=Samples(values=tuple(s / len(weights) for s in seconds)),
        flops=flops,
        bytes=size,
        ceiling_s=_ceiling_s(flops, size, dtype, ceilings),
    )


def _ceiling_s(flops: float, size: float, dtype: str, ceilings: Ceilings) -> Quantity:
    rate, bandwidth = ceilings.rate("gemm", dtype), ceilings.rate("read")
    if rate is None or bandwidth is None:
        return Quantity(reason=f"no GEMM ceiling in {dtype} or no read bandwidth was measured")
    return Quantity(value=max(flops / rate, size / bandwidth))


# --- elementwise operators ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Chain:
    """A chain of elementwise operators: what is called, on what, how often in a forward pass."""

    name: str
    action: Callable[..., torch.Tensor]
    inputs: tuple[torch.Tensor, ...]
    per_step: int


def operator_chains(module: Any, rows: int, heads: int, head_size: int) -> list[_Chain]:
    """Norm, gated activation, rotary embedding and softmax at the model's sizes and dtype."""
    config = module.config.get_text_config()
    layers, hidden = config.num_hidden_layers, config.hidden_size
    inner = getattr(config, "intermediate_size", None) or 4 * hidden
    weight = next(module.parameters())
    options = {"device": weight.device, "dtype": weight.dtype}

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, **options)  # type: ignore[call-overload]

    scale = random(hidden)
    return [
        _Chain("norm", _rms_norm, (random(rows, hidden), scale), 2 * layers + 1),
        _Chain("gated activation", _gated, (random(rows, inner), random(rows, inner)), layers),
        _Chain(
            "rotary embedding",
            _rotary,
            (random(heads, rows, head_size), random(rows, head_size), random(rows, head_size)),
            2 * layers,
        ),
        _Chain("softmax", _softmax, (random(heads, rows, rows),), layers),
    ]


def _rms_norm(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    return scale * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def _gated(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu(gate) * up


def _rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin


def _softmax(scores: torch.Tensor) -> torch.Tensor:
    return torch.softmax(scores.float() * 0.125, dim=-1).to(scores.dtype)


def measure_chain(
    chain: _Chain,
    *,
    rows: int,
    ceilings: Ceilings,
    repeats: int,
    tick: Tick,
    no_compile: str | None,
) -> FusedOperator:
    """Eager and compiled times. no_compile: why the compiler is not used."""
    device = chain.inputs[0].device
    eager = sample_s(lambda: chain.action(*chain.inputs), device=device, repeats=repeats, tick=tick)
    compiled: tuple[float, ...] = ()
    breaks: int | None = None
    reason = no_compile
    if reason is None:
        try:
            with torch.inference_mode():
                breaks = int(torch._dynamo.explain(chain.action)(*chain.inputs).graph_break_count)
            fused = torch.compile(chain.action)
            compiled = sample_s(
                lambda: fused(*chain.inputs), device=device, repeats=repeats, tick=tick
            )
        except FAILURES as error:
            reason = compiler_reason(error)
    output = chain.action(*chain.inputs)
    moved = sum(t.numel() * t.element_size() for t in (*chain.inputs, output))
    bandwidth = ceilings.rate("read")
    floor = Quantity(reason="no read bandwidth was measured")
    if bandwidth is not None:
        floor = Quantity(value=moved / bandwidth)
    return FusedOperator(
        name=chain.name,
        rows=rows,
        per_step=chain.per_step,
        eager_s=Samples(values=eager),
        compiled_s=Samples(values=compiled),
        compiled_reason=reason,
        graph_breaks=breaks,
        ceiling_s=floor,
    )


def compiler_reason(error: Exception) -> str:
    """One line for why torch.compile did not work. A lack of memory is raised on."""
    if isinstance(error, torch.OutOfMemoryError):
        raise error
    first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return f"{_NO_COMPILER}: {first.strip()[:300]}"


# --- decode step -------------------------------------------------------------------------------


@dataclass(slots=True)
class DecodeStep:
    """One token through the module with a static cache, whose tensors never move."""

    module: Any
    device: torch.device
    cache: Any
    arguments: dict[str, Any]

    @classmethod
    def of(cls, module: Any, cache_argument: str) -> DecodeStep:
        from transformers import StaticCache

        device = next(module.parameters()).device
        token = torch.ones(1, 1, dtype=torch.long, device=device)
        cache = StaticCache(config=module.config, max_cache_len=STATIC_TOKENS)
        arguments = {"input_ids": token, cache_argument: cache, "use_cache": True}
        return cls(module, device, cache, arguments)

    def eager(self) -> Callable[[], object]:
        return lambda: self.module.forward(**self.arguments).logits

    def compiled(self) -> Callable[[], object]:
        mode = "reduce-overhead" if self.device.type == "cuda" else None
        forward = torch.compile(self.module.forward, mode=mode)
        return lambda: forward(**self.arguments).logits

    def cuda_graph(self) -> Callable[[], object]:
        if self.device.type != "cuda":
            raise RuntimeError("CUDA graphs need a CUDA device")
        run = self.eager()
        stream = torch.cuda.Stream(self.device)
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.cache.reset()
                run()
        stream.synchronize()
        self.cache.reset()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        return graph.replay

    def timed_s(self, action: Callable[[], object]) -> float:
        """One step on an empty cache, which is emptied outside of the time."""
        self.cache.reset()
        synchronise(self.device)
        began = time.perf_counter()
        action()
        synchronise(self.device)
        return time.perf_counter() - began


def step_forms(
    module: Any, cache_argument: str, *, repeats: int, tick: Tick, no_compile: str | None
) -> tuple[StepForm, ...]:
    """Eager, captured as a CUDA graph and compiled, in turn, so that all see the same minutes.

    A form that fails has a reason. no_compile: why the compiler is not used.
    """
    step = DecodeStep.of(module, cache_argument)
    makers: dict[Any, Callable[[], Callable[[], object]]] = {
        "eager": step.eager,
        "cuda_graph": step.cuda_graph,
        "compiled": step.compiled,
    }
    ready: dict[str, Callable[[], object]] = {}
    reasons: dict[str, str] = {}
    seconds: dict[str, list[float]] = {form: [] for form in makers}
    with torch.inference_mode():
        for form, make in makers.items():
            tick()
            if form == "compiled" and no_compile is not None:
                reasons[form] = no_compile
                continue
            try:
                action = make()
                # The compiler specialises on the second call, too.
                for _ in range(3):
                    step.timed_s(action)
                ready[form] = action
            except FAILURES as error:
                reason = compiler_reason(error)
                if form != "compiled":
                    reason = reason.removeprefix(f"{_NO_COMPILER}: ")
                reasons[form] = reason
        for _ in range(repeats):
            for form, action in ready.items():
                tick()
                seconds[form].append(step.timed_s(action))
    torch._dynamo.reset()
    return tuple(
        StepForm(form=form, seconds=Samples(values=tuple(seconds[form])), reason=reasons.get(form))
        for form in makers
    )


def step_costs(module: Any, cache_argument: str) -> StepCosts:
    """Counts inside one eager step with a growing cache, as plain decoding runs it."""
    token = torch.ones(1, 1, dtype=torch.long, device=next(module.parameters()).device)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.inference_mode():
        cache = module(input_ids=token, use_cache=True).get(cache_argument)
        arguments = {"input_ids": token, cache_argument: cache, "use_cache": True}
        module(**arguments)
        with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
            module(**arguments)
    events = profile.events() or []
    operators = [e for e in events if e.name.startswith("aten::") and not _nested(e)]
    copies = [e for e in events if e.name in _COPIES]
    cuda = token.device.type == "cuda"
    sizes = [
        int(e.self_device_memory_usage if cuda else e.self_cpu_memory_usage)
        for e in events
        if e.name.startswith("aten::")
    ]
    taken = [size for size in sizes if size > 0]
    return StepCosts(
        operators=Quantity(value=float(len(operators))),
        copies=Quantity(value=float(len(copies))),
        copy_s=Quantity(value=sum(float(e.self_cpu_time_total) for e in copies) / 1e6),
        allocations=Quantity(value=float(len(taken))),
        allocated_bytes=Quantity(value=float(sum(taken))),
    )


def _nested(event: Any) -> bool:
    parent = event.cpu_parent
    return parent is not None and parent.name.startswith("aten::")
