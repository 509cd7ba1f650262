"""Configs and results of the experiments on the model itself, run in the agent's own process.

Raw samples in seconds; what could not be measured is a Quantity or an entry with its reason.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gpuagent.wire.base import WireModel
from gpuagent.wire.ceilings import Ceilings
from gpuagent.wire.loaded import ColdStart, LoadedModel, Perplexity
from gpuagent.wire.measure import Quantity, Samples
from gpuagent.wire.units import Bytes, Name, PositiveTokens, Text

Repeats = Annotated[int, Field(ge=5, le=100)]
Count = Annotated[int, Field(ge=0)]
Contexts = Annotated[tuple[PositiveTokens, ...], Field(min_length=1, max_length=12)]

# --- calibrate ---------------------------------------------------------------------------------


class CalibrateConfig(WireModel):
    """Ceilings of the device. size_frac scales buffers and matrices, 1 for real use.

    all_reduce is measured where two GPUs or more are visible.
    """

    experiment: Literal["calibrate"] = "calibrate"
    repeats: Repeats = 7
    size_frac: Annotated[float, Field(gt=0, le=1)] = 1.0


class CalibrateResult(WireModel):
    experiment: Literal["calibrate"] = "calibrate"
    ceilings: Ceilings


# --- kernels -----------------------------------------------------------------------------------


class KernelsConfig(WireModel):
    """The model's own GEMM shapes, elementwise operators and decode step.

    batch_sizes: rows of the decode GEMMs; input_tokens: rows of the prefill GEMMs.
    compile: also measure with torch.compile, which takes about a minute where a compiler exists.
    """

    experiment: Literal["kernels"] = "kernels"
    batch_sizes: Annotated[tuple[PositiveTokens, ...], Field(min_length=1, max_length=4)] = (1, 4)
    input_tokens: PositiveTokens = 128
    dtypes: Annotated[tuple[Name, ...], Field(min_length=1, max_length=5)] = ("float32", "bfloat16")
    repeats: Repeats = 7
    compile: bool = True


class GemmShape(WireModel):
    """One matrix product x[rows, k] · w[k, n] of the model, in one dtype.

    per_step: how often one forward pass runs it. ceiling_s: the larger of FLOPs over the GEMM
    ceiling of the dtype and bytes (weights, input, output) over read bandwidth.
    """

    name: Name
    rows: PositiveTokens
    n: PositiveTokens
    k: PositiveTokens
    dtype: Name
    per_step: PositiveTokens
    seconds: Samples
    flops: Annotated[float, Field(gt=0)]
    bytes: Annotated[float, Field(gt=0)]
    ceiling_s: Quantity
    reason: Text | None = None


class FusedOperator(WireModel):
    """An operator chain eager and under torch.compile on the model's own sizes.

    compiled_reason: why there is no compiled time. graph_breaks: pieces minus one that the compiler
    made. ceiling_s: its input and output over read bandwidth.
    """

    name: Name
    rows: PositiveTokens
    per_step: PositiveTokens
    eager_s: Samples
    compiled_s: Samples
    compiled_reason: Text | None = None
    graph_breaks: Count | None = None
    ceiling_s: Quantity


class StepForm(WireModel):
    """One decode step at batch 1 in one form: eager, compiled, cuda_graph. reason: why not run."""

    form: Literal["eager", "compiled", "cuda_graph"]
    seconds: Samples
    reason: Text | None = None


class StepCosts(WireModel):
    """Inside one eager decode step, counted by torch's own profiler.

    copies: calls of copy, cat and contiguous; copy_s their time. allocations: blocks asked of the
    allocator, with their bytes.
    """

    operators: Quantity
    copies: Quantity
    copy_s: Quantity
    allocations: Quantity
    allocated_bytes: Quantity


class KernelsResult(WireModel):
    """ceilings: of the same run. step_bytes: weights that one token reads."""

    experiment: Literal["kernels"] = "kernels"
    model: LoadedModel
    ceilings: Ceilings
    gemms: Annotated[tuple[GemmShape, ...], Field(max_length=120)]
    fused: Annotated[tuple[FusedOperator, ...], Field(max_length=20)]
    steps: Annotated[tuple[StepForm, ...], Field(max_length=5)]
    costs: StepCosts
    step_bytes: Bytes


# --- attention ---------------------------------------------------------------------------------


class AttentionConfig(WireModel):
    """Implementations and structures of attention over context lengths.

    window, global_tokens: of the sliding-window structure. perplexity_tokens: 0 leaves quality out.
    share_s: time for all variants together; each leaves out the lengths whose predicted time
    exceeds its part. None: no limit but the trial's.
    """

    experiment: Literal["attention"] = "attention"
    context_tokens: Contexts = (256, 512, 1024, 2048)
    repeats: Repeats = 5
    window: PositiveTokens = 256
    global_tokens: Count = 16
    perplexity_tokens: Annotated[int, Field(ge=0, le=300_000)] = 2048
    share_s: Annotated[float, Field(gt=0, le=36_000)] | None = None
    text_path: Annotated[str, Field(max_length=1000)] | None = None


class AttentionPoint(WireModel):
    """One layer's causal attention over `context_tokens` queries and keys, batch 1.

    flops: of the two products that are really computed, 4 x head size x heads x pairs.
    cache_bytes: keys and values of all layers at this length. extra_bytes: memory the call needed
    above its inputs and output.
    """

    context_tokens: PositiveTokens
    seconds: Samples
    flops: Annotated[float, Field(gt=0)]
    cache_bytes: Bytes
    extra_bytes: Quantity
    reason: Text | None = None


class AttentionVariant(WireModel):
    """One way to compute attention. `implementation`: same result, other kernel. `structure`:
    another model.

    error, plain_error: largest absolute difference from a float64 reference of the same structure,
    and that of plain PyTorch (matmul, softmax, matmul) at the same precision. reason: why it did
    not run.
    """

    name: Name
    kind: Literal["implementation", "structure"]
    kv_heads: PositiveTokens
    window: PositiveTokens | None = None
    global_tokens: Count | None = None
    points: Annotated[tuple[AttentionPoint, ...], Field(max_length=12)] = ()
    error: Quantity
    plain_error: Quantity
    perplexity: Perplexity | None = None
    perplexity_reason: Text | None = None
    reason: Text | None = None


class AttentionResult(WireModel):
    experiment: Literal["attention"] = "attention"
    model: LoadedModel
    heads: PositiveTokens
    kv_heads: PositiveTokens
    head_size: PositiveTokens
    layers: PositiveTokens
    variants: Annotated[tuple[AttentionVariant, ...], Field(max_length=24)]


# --- quantisation ------------------------------------------------------------------------------

QuantMethod = Literal[
    "float32",
    "bfloat16",
    "float16",
    "int8_weight_only",
    "int8_dynamic",
    "int4_weight_only",
    "float8",
    "as_stored",
]


class QuantisationConfig(WireModel):
    """Weights in fewer bits: speed, memory and quality side by side.

    The first method that runs is the reference of agreement. prompts: greedy answers compared.
    """

    experiment: Literal["quantisation"] = "quantisation"
    methods: Annotated[tuple[QuantMethod, ...], Field(min_length=2, max_length=8)] = (
        "float32",
        "bfloat16",
        "int8_weight_only",
        "int8_dynamic",
        "int4_weight_only",
        "float8",
    )
    input_tokens: PositiveTokens = 64
    decode_steps: Annotated[int, Field(ge=2, le=512)] = 8
    repeats: Repeats = 5
    prompts: Annotated[int, Field(ge=1, le=2000)] = 200
    prompt_tokens: PositiveTokens = 24
    answer_tokens: Annotated[int, Field(ge=1, le=256)] = 12
    perplexity_tokens: Annotated[int, Field(ge=0, le=300_000)] = 2048
    text_path: Annotated[str, Field(max_length=1000)] | None = None


class QuantVariant(WireModel):
    """One format of the weights.

    agreed_tokens: for each prompt, how many tokens of the greedy answer are those of the reference
    before the first that differs. kernel: what multiplies. reason: why it did not run.
    """

    method: QuantMethod
    kernel: Annotated[str, Field(max_length=200)] = ""
    decode_step_s: Samples
    prefill_s: Samples
    weight_bytes: Quantity
    perplexity: Perplexity | None = None
    perplexity_reason: Text | None = None
    agreed_tokens: Annotated[tuple[Count, ...], Field(max_length=2000)] = ()
    agreement_reason: Text | None = None
    reason: Text | None = None


class QuantisationResult(WireModel):
    """decode_step_s of a variant: [repeats x decode_steps]; prefill_s: [repeats]."""

    experiment: Literal["quantisation"] = "quantisation"
    model: LoadedModel
    answer_tokens: PositiveTokens
    variants: Annotated[tuple[QuantVariant, ...], Field(max_length=8)]


# --- batching ----------------------------------------------------------------------------------


class BatchingConfig(WireModel):
    """Batch sweep, padding waste of mixed lengths, prefill in chunks."""

    experiment: Literal["batching"] = "batching"
    batch_sizes: Annotated[tuple[PositiveTokens, ...], Field(min_length=2, max_length=10)] = (
        1,
        2,
        4,
        8,
    )
    input_tokens: PositiveTokens = 64
    decode_steps: Annotated[int, Field(ge=2, le=512)] = 4
    repeats: Repeats = 5
    mixed_requests: Annotated[int, Field(ge=4, le=512)] = 16
    mixed_batch: PositiveTokens = 4
    chunk_tokens: Annotated[tuple[PositiveTokens, ...], Field(max_length=8)] = (64, 128, 256)
    chunked_input_tokens: PositiveTokens = 512


class BatchPoint(WireModel):
    """prefill_s: [repeats]; decode_step_s: [repeats x decode_steps], one token per sequence."""

    batch: PositiveTokens
    prefill_s: Samples
    decode_step_s: Samples
    peak_memory_bytes: Quantity
    reason: Text | None = None


class PaddingPoint(WireModel):
    """The same mixed prompts in batches as they come (padded) or sorted by length (bucketed).

    computed_tokens counts padding; useful_tokens does not.
    """

    order: Literal["as_they_come", "bucketed"]
    seconds: Samples
    computed_tokens: PositiveTokens
    useful_tokens: PositiveTokens


class ChunkPoint(WireModel):
    """Prefill of one prompt in chunks. longest_chunk_s bounds how long other answers wait."""

    chunk_tokens: PositiveTokens
    seconds: Samples
    longest_chunk_s: Quantity
    reason: Text | None = None


class BatchingResult(WireModel):
    experiment: Literal["batching"] = "batching"
    model: LoadedModel
    cold: ColdStart
    input_tokens: PositiveTokens
    chunked_input_tokens: PositiveTokens
    points: Annotated[tuple[BatchPoint, ...], Field(max_length=10)]
    padding: Annotated[tuple[PaddingPoint, ...], Field(max_length=2)]
    chunks: Annotated[tuple[ChunkPoint, ...], Field(max_length=9)]


# --- additions to kv_cache ---------------------------------------------------------------------


class CacheForm(WireModel):
    """Decode steps of one sequence with one implementation of the cache. reason: why not run.

    perplexity: of a text whose later tokens read all earlier ones back from this cache; that of
    "dynamic" is the reference. perplexity_reason: why there is none.
    """

    form: Literal["dynamic", "static", "quantised"]
    seconds: Samples
    cache_bytes: Quantity
    reason: Text | None = None
    perplexity: Perplexity | None = None
    perplexity_reason: Text | None = None


class CacheDtype(WireModel):
    """A growing cache stored in `dtype`, cast back for each step, as without a fused kernel.

    seconds: decode steps of one sequence. reason: why it did not run. perplexity: as in CacheForm.
    """

    dtype: Name
    seconds: Samples
    cache_bytes: Quantity
    reason: Text | None = None
    perplexity: Perplexity | None = None
    perplexity_reason: Text | None = None


class PrefixReuse(WireModel):
    """Prefill of a prompt whose first `shared_tokens` are in a cache already, against all of it."""

    context_tokens: PositiveTokens
    shared_tokens: PositiveTokens
    full_s: Samples
    reused_s: Samples


class CacheDetails(WireModel):
    """Forms, reuse and release of the cache at `context_tokens`.

    held_bytes: memory above the level before the first, after each generation was released: a leak
    grows with the rounds. held_reason: why it was not read. dtypes: the cache in other dtypes.
    """

    context_tokens: PositiveTokens
    forms: Annotated[tuple[CacheForm, ...], Field(max_length=4)]
    prefix: PrefixReuse | None = None
    held_bytes: Samples
    held_reason: Text | None = None
    dtypes: Annotated[tuple[CacheDtype, ...], Field(max_length=6)] = ()


InsideResult = (
    CalibrateResult | KernelsResult | AttentionResult | QuantisationResult | BatchingResult
)


def samples_of(result: InsideResult) -> tuple[Samples, ...]:
    """All times of a result."""
    if isinstance(result, CalibrateResult):
        return tuple(entry.seconds for entry in result.ceilings.entries)
    if isinstance(result, KernelsResult):
        return (
            *(g.seconds for g in result.gemms),
            *(f.eager_s for f in result.fused),
            *(f.compiled_s for f in result.fused),
            *(s.seconds for s in result.steps),
        )
    if isinstance(result, AttentionResult):
        return tuple(point.seconds for v in result.variants for point in v.points)
    if isinstance(result, QuantisationResult):
        return tuple(s for v in result.variants for s in (v.prefill_s, v.decode_step_s))
    return (
        *(p.decode_step_s for p in result.points),
        *(p.prefill_s for p in result.points),
        *(p.seconds for p in result.padding),
        *(c.seconds for c in result.chunks),
    )
