"""Does it fit: weights, KV cache, activation peak, graphs and runtime against one GPU's memory.

Five lines that sum to the total. The three overheads are ranges with a source, not constants; the
KV figures separate what the arithmetic needs from what the engine version reserves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from advisor.catalog import GpuSpec
from advisor.estimates.roofline import Placement, Roofline
from advisor.shapes import ModelShape

GIB = 1024**3
BLOCK_TOKENS = 16  # KV block of vLLM and SGLang paging; capacity is rounded down to whole blocks

# Share of the device an engine may fill, by its own default.
# Sources: argument parsers of vLLM 0.33.0 (0.92; 0.9 up to 0.31) and SGLang 0.5.23 (automatic, 0.85
# to 0.90 seen), TensorRT-LLM (0.9 of what is free after the weights), transformers (no pool).
DEFAULT_FRACTION = {"vllm": 0.92, "sglang": 0.88, "trtllm": 0.9, "transformers": 0.95}


@dataclass(frozen=True, slots=True)
class Band:
    """A figure with its low and high; bytes."""

    value: int
    low: int
    high: int
    source: str


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes on ONE GPU of the placement. `weights + kv + activation + graphs + runtime = total`."""

    weights: int
    kv: int  # for the asked context and concurrency
    activation: Band
    graphs: Band
    runtime: Band
    budget: int  # usable memory × fraction
    usable: int
    kv_available: int  # bytes left for the cache; 0 when the weights alone are too large
    kv_available_low: int
    kv_available_high: int
    kv_needed_per_token: int
    kv_reserved_per_token: int
    state_per_seq: int
    kv_capacity_tokens: int
    max_concurrency: int  # sequences of the asked context
    max_context: int  # longest single sequence
    fits: bool
    reason: str  # empty when it fits

    @property
    def total(self) -> int:
        return (
            self.weights + self.kv + self.activation.value + self.graphs.value + self.runtime.value
        )

    def lines(self) -> tuple[tuple[str, int], ...]:
        """The five lines of the budget, in the order they are shown."""
        return (
            ("weights", self.weights),
            ("KV cache", self.kv),
            ("activation peak", self.activation.value),
            ("graphs", self.graphs.value),
            ("runtime overhead", self.runtime.value),
        )


def default_batched_tokens(gpu: GpuSpec, engine: str) -> int:
    """Tokens of one engine step by default: what sizes the activation peak.

    vLLM 0.33: 16,384 from 160 GiB on, 8,192 from 70 GiB on, else 2,048. SGLang chunks alike.
    """
    if engine == "transformers":
        return 2_048
    gib = gpu.usable_bytes / GIB
    if gpu.vendor == "CPU":
        return 2_048
    return 16_384 if gib >= 160 else 8_192 if gib >= 70 else 2_048


def default_max_seqs(gpu: GpuSpec) -> int:
    """Sequences vLLM 0.33 admits by default: 1,024 from 70 GiB on, else 256."""
    return 1_024 if gpu.usable_bytes / GIB >= 70 else 256


def activation_peak(
    shape: ModelShape, gpu: GpuSpec, *, engine: str, tp: int, batched_tokens: int | None = None
) -> Band:
    """Peak of temporary tensors in the engine's profiling step.

    tokens × (6 hidden + 3 widest MLP / tp) × 2 B + sequences × vocabulary × 8 B of logits, all
    × 1.5 for workspaces. Runs of vLLM on 80 to 141 GB cards report 2.1 to 7.4 GiB (llm-d-benchmark
    issues 621 and 732); the band covers them.
    """
    tokens = batched_tokens or default_batched_tokens(gpu, engine)
    width = shape.intermediate_size
    if shape.is_moe:
        per_expert = max(
            (layer.expert_params // (3 * shape.hidden_size) for _, layer in shape.groups), default=0
        )
        width = max(per_expert * max(shape.experts_per_token, 1), 0)
    hidden = tokens * (6 * shape.hidden_size + 3 * width / tp) * 2
    logits = min(default_max_seqs(gpu), tokens) * shape.vocab_size * 8 / tp
    value = 1.5 * (hidden + logits)
    return Band(
        round(value),
        round(0.5 * value),
        round(2.2 * value),
        "tokens per step × widths; band from vLLM profiling logs",
    )


def graph_memory(shape: ModelShape, gpu: GpuSpec, *, engine: str) -> Band:
    """CUDA graph pools: 0.65 GiB in a vLLM log, about 1.3 GiB unaccounted in another (PR 21489)."""
    if engine == "transformers" or gpu.vendor == "CPU":
        return Band(0, 0, 0, "no graphs captured by default")
    scale = min(1.5, 0.4 + shape.layers / 80)
    value = 0.65 * GIB * scale
    return Band(round(value), round(0.4 * value), round(2.0 * value), "vLLM issues 27951 and 45178")


def runtime_overhead(gpu: GpuSpec, *, tp: int) -> Band:
    """CUDA context, libraries, and communication buffers when GPUs share a model."""
    if gpu.vendor == "CPU":
        return Band(GIB, GIB // 2, 2 * GIB, "process and thread pools")
    value = 0.6 * GIB + (0.7 * GIB if tp > 1 else 0)
    return Band(round(value), round(0.6 * value), round(2.2 * value), "driver context and NCCL")


def reserved_bytes_per_token(shape: ModelShape, *, kv_itemsize: float, engine: str) -> int:
    """Bytes per token that the engine sets aside for a growing sequence, over all GPUs.

    vLLM and SGLang page every attention layer alike, window or not (vLLM log for gpt-oss-120b:
    5.38 GiB = 78,384 tokens, all 36 layers); transformers' hybrid cache stops at the window.
    """
    if engine == "transformers":
        return shape.kv_bytes_per_token_growing(kv_itemsize)
    return shape.kv_bytes_per_token(kv_itemsize)


def frees_window_blocks(engine: str, version: str) -> bool:
    """Whether blocks behind a sliding window are given back in models that also have full layers.

    vLLM kept them until its hybrid cache manager (pull request 14097 says so; design document of
    0.10.1). An unknown version is read as a current one.
    """
    found = re.match(r"v?(\d+)\.(\d+)", version)
    if engine != "vllm" or found is None:
        return True
    return (int(found[1]), int(found[2])) >= (0, 10)


def kv_tokens_in(kv_bytes: int, per_token_per_gpu: float) -> int:
    """Whole-block tokens that `kv_bytes` of one GPU hold."""
    if per_token_per_gpu <= 0:
        return 0
    return int(kv_bytes / per_token_per_gpu) // BLOCK_TOKENS * BLOCK_TOKENS


def plan_memory(
    roofline: Roofline,
    *,
    engine: str = "vllm",
    engine_version: str = "",
    context: int,
    concurrency: int = 1,
    fraction: float | None = None,
    batched_tokens: int | None = None,
) -> MemoryPlan:
    """The memory of one GPU of a placement, for sequences of `context` tokens."""
    shape, place = roofline.shape, roofline.place
    gpu, item = place.gpu, place.kv_itemsize
    share = DEFAULT_FRACTION.get(engine, 0.9) if fraction is None else fraction
    weights = weight_bytes_per_gpu(roofline)
    tp = max(1, place.gpus // place.pp)
    act = activation_peak(shape, gpu, engine=engine, tp=tp, batched_tokens=batched_tokens)
    graphs = graph_memory(shape, gpu, engine=engine)
    runtime = runtime_overhead(gpu, tp=tp)
    budget = round(gpu.usable_bytes * share)

    def left(activation: int, graph: int, rest: int) -> int:
        # Context and graphs live partly outside the engine's share: the device bounds them too.
        inside = budget - weights - activation
        device = gpu.usable_bytes - weights - activation - graph - rest
        return max(0, min(inside, device))

    available = left(act.value, graphs.value, runtime.value)
    split = roofline.kv_shard() if not place.attention_dp else 1.0
    reserved = reserved_bytes_per_token(shape, kv_itemsize=item, engine=engine)
    frees = frees_window_blocks(engine, engine_version)
    # Under attention data parallelism each GPU serves its own sequences with a whole cache line.
    copies = place.gpus if place.attention_dp else 1
    state = math.ceil(shape.state_bytes_per_seq(2) / (1 if place.attention_dp else tp))

    def per_sequence(tokens: int) -> float:
        needed = shape.kv_bytes_for(tokens, item) if frees else reserved * tokens
        if engine != "transformers":
            needed = max(needed, reserved * min(tokens, BLOCK_TOKENS))
        return needed * split + state

    one = per_sequence(context)
    most = int(available / one) * copies if one > 0 else 0
    if one <= 0:
        most = default_max_seqs(gpu) * copies
    capacity = kv_tokens_in(available, reserved * split) * copies
    longest = _longest(available, per_sequence, shape.max_context or 1 << 22)
    fits, reason = True, ""
    if available <= 0:
        fits = False
        need = (weights + act.value) / GIB
        reason = (
            f"weights and activations need {need:.1f} GiB per GPU where {budget / GIB:.1f} GiB "
            f"may be filled ({share:.0%} of {gpu.usable_bytes / GIB:.1f} GiB)"
        )
    elif most < 1:
        fits = False
        reason = (
            f"the weights fit but one sequence of {context:,} tokens does not; "
            f"the longest that does has {longest:,} tokens"
        )
    per_gpu_sequences = math.ceil(concurrency / copies)
    return MemoryPlan(
        weights=weights,
        kv=round(one * per_gpu_sequences),
        activation=act,
        graphs=graphs,
        runtime=runtime,
        budget=budget,
        usable=gpu.usable_bytes,
        kv_available=available,
        kv_available_low=left(act.high, graphs.high, runtime.high),
        kv_available_high=left(act.low, graphs.low, runtime.low),
        kv_needed_per_token=math.ceil(shape.kv_bytes_per_token(item) * split),
        kv_reserved_per_token=math.ceil(reserved * split),
        state_per_seq=state,
        kv_capacity_tokens=capacity,
        max_concurrency=most,
        max_context=longest,
        fits=fits,
        reason=reason,
    )


def weight_bytes_per_gpu(roofline: Roofline) -> int:
    """Weights one GPU holds: an equal share; attention whole under attention data parallelism."""
    place = roofline.place
    total = roofline.weight_bytes
    if not place.attention_dp:
        return math.ceil(total / place.gpus)
    attention = roofline.attention_bytes
    return math.ceil((total - attention) / place.gpus + attention)


def allowed_tp(shape: ModelShape, limit: int = 8) -> tuple[int, ...]:
    """Tensor-parallel sizes up to `limit` that divide the heads and suit the KV heads."""
    return tuple(size for size in range(1, limit + 1) if tp_problem(shape, size) is None)


def tp_problem(shape: ModelShape, tp: int) -> str | None:
    """Why this tensor-parallel size cannot work, naming the sizes that do; None when it can."""
    if tp <= 1 or shape.heads == 0:
        return None
    kv = shape.kv_heads
    if shape.heads % tp == 0 and (shape.is_mla or kv % tp == 0 or tp % kv == 0):
        return None
    good = [
        size
        for size in range(1, min(shape.heads, 128) + 1)
        if shape.heads % size == 0 and (shape.is_mla or kv % size == 0 or size % kv == 0)
    ]
    what = f"{shape.heads} attention heads" if shape.heads % tp else f"{kv} KV heads"
    return (
        f"tensor parallel size {tp} does not divide the {what}; "
        f"sizes that work: {', '.join(map(str, good))}"
    )


def smallest_tp(
    shape: ModelShape,
    gpu: GpuSpec,
    *,
    dtype: str = "auto",
    kv_itemsize: float = 2.0,
    engine: str = "vllm",
    context: int,
    limit: int | None = None,
) -> int | None:
    """The smallest tensor-parallel size whose GPUs hold the model and one sequence, or None."""
    for size in allowed_tp(shape, limit or gpu.gpus_per_node):
        place = Placement(gpu, gpus=size, tp=size, dtype=dtype, kv_itemsize=kv_itemsize)
        if plan_memory(Roofline(shape, place), engine=engine, context=context).fits:
            return size
    return None


def _longest(available: int, cost: Callable[[int], float], limit: int) -> int:
    """The most tokens of one sequence that `available` bytes hold, by bisection."""
    if available <= 0 or cost(1) > available:
        return 0
    low, high = 1, limit
    if cost(high) <= available:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost(middle) <= available else (low, middle)
    return low
