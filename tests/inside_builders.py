"""Synthetic results of the experiments on the model itself; see `tests.builders`."""

from __future__ import annotations

from typing import Any

from gpuagent.wire import Quantity, Samples
from gpuagent.wire.ceilings import Ceiling, CeilingKind, Ceilings
from gpuagent.wire.inside import (
    AttentionPoint,
    AttentionResult,
    AttentionVariant,
    BatchingResult,
    BatchPoint,
    CacheDetails,
    CacheDtype,
    CacheForm,
    CalibrateResult,
    ChunkPoint,
    FusedOperator,
    GemmShape,
    KernelsResult,
    PaddingPoint,
    PrefixReuse,
    QuantisationResult,
    QuantVariant,
    StepCosts,
    StepForm,
)
from gpuagent.wire.parallel import TensorParallelPoint, TensorParallelResult
from tests.builders import START, make_cold, make_loaded, make_perplexity, make_samples

NONE = Samples(values=())


def make_ceiling(
    kind: CeilingKind, rate: float | None, variant: str = "", work: float = 1e9
) -> Ceiling:
    """Seven runs at `rate`, or an absent ceiling."""
    if rate is None:
        return Ceiling(
            kind=kind, variant=variant, work=1.0, seconds=NONE, rate=Quantity(reason="not here")
        )
    seconds = (rate if kind == "launch" else work / rate,) * 7
    return Ceiling(
        kind=kind,
        variant=variant,
        work=work,
        seconds=Samples(values=seconds),
        rate=Quantity(value=rate),
    )


def make_ceilings(
    *, read: float | None = 40e9, float32: float = 180e9, bfloat16: float = 90e9, **overrides: Any
) -> Ceilings:
    """A small processor: 40 GB/s, 180 GFLOP/s in float32, half of it in bfloat16."""
    fields: dict[str, Any] = {
        "device": "cpu",
        "threads": 2,
        "clock_hz": Quantity(value=2.6e9),
        "memory_clock_hz": Quantity(reason="the host's memory clock is not readable"),
        "versions": {"torch": "2.13.0"},
        "measured_at_s": START.timestamp(),
        "entries": (
            make_ceiling("read", read),
            make_ceiling("copy", 24e9),
            make_ceiling("gemm", float32, "float32"),
            make_ceiling("gemm", bfloat16, "bfloat16"),
            make_ceiling("gemm", None, "float8"),
            make_ceiling("launch", 2.6e-6, work=1.0),
        ),
    }
    return Ceilings(**{**fields, **overrides})


def make_calibrate_result(**ceilings: Any) -> CalibrateResult:
    return CalibrateResult(ceilings=make_ceilings(**ceilings))


def make_gemm(
    name: str = "gate_proj / up_proj",
    *,
    seconds: float = 300e-6,
    efficiency: float = 0.2,
    rows: int = 1,
    dtype: str = "float32",
    per_step: int = 60,
) -> GemmShape:
    return GemmShape(
        name=name,
        rows=rows,
        n=1536,
        k=576,
        dtype=dtype,
        per_step=per_step,
        seconds=make_samples(seconds, 7),
        flops=2.0 * rows * 1536 * 576,
        bytes=4.0 * 1536 * 576,
        ceiling_s=Quantity(value=seconds * efficiency),
    )


def make_kernels_result(
    *,
    eager_s: float = 0.06,
    compiled_s: float | None = 0.04,
    gemms: tuple[GemmShape, ...] | None = None,
    compiled_reason: str = "torch.compile does not work here: no compiler",
    **overrides: Any,
) -> KernelsResult:
    """GEMMs at a fifth of their ceiling; compiling saves a third of a step."""
    compiled = StepForm(
        form="compiled",
        seconds=make_samples(compiled_s, 7) if compiled_s else NONE,
        reason=None if compiled_s else compiled_reason,
    )
    fields: dict[str, Any] = {
        "model": make_loaded("float32"),
        "ceilings": make_ceilings(),
        "gemms": gemms
        if gemms is not None
        else (
            make_gemm(),
            make_gemm("lm_head", seconds=0.01, per_step=1),
            make_gemm(rows=128, seconds=2e-3, efficiency=0.7),
            make_gemm(dtype="bfloat16", seconds=130e-6),
        ),
        "fused": (
            FusedOperator(
                name="norm",
                rows=128,
                per_step=61,
                eager_s=make_samples(60e-6, 7),
                compiled_s=make_samples(20e-6, 7) if compiled_s else NONE,
                compiled_reason=None if compiled_s else compiled_reason,
                graph_breaks=0 if compiled_s else None,
                ceiling_s=Quantity(value=10e-6),
            ),
        ),
        "steps": (
            StepForm(form="eager", seconds=make_samples(eager_s, 7)),
            StepForm(form="cuda_graph", seconds=NONE, reason="CUDA graphs need a CUDA device"),
            compiled,
        ),
        "costs": StepCosts(
            operators=Quantity(value=1675),
            copies=Quantity(value=246),
            copy_s=Quantity(value=0.0007),
            allocations=Quantity(value=1220),
            allocated_bytes=Quantity(value=2.4e6),
        ),
        "step_bytes": 538_060_288,
    }
    return KernelsResult(**{**fields, **overrides})


def make_variant(
    name: str = "sdpa",
    kind: str = "implementation",
    *,
    seconds_per_token: float = 20e-6,
    kv_heads: int = 3,
    cache_bytes: int = 47_185_920,
    error: float | None = 6e-7,
    perplexity: float | None = None,
    reason: str | None = None,
    **overrides: Any,
) -> AttentionVariant:
    points = tuple(
        AttentionPoint(
            context_tokens=tokens,
            seconds=make_samples(seconds_per_token * tokens, 5, seed=tokens),
            flops=4.0 * 64 * 9 * tokens**2 / 2,
            cache_bytes=cache_bytes * tokens // 1024,
            extra_bytes=Quantity(reason="the processor's allocator keeps no peak of its own"),
        )
        for tokens in (256, 1024)
    )
    missing = Quantity(reason="it did not run")
    fields: dict[str, Any] = {
        "name": name,
        "kind": kind,
        "kv_heads": kv_heads,
        "points": () if reason else points,
        "error": missing if error is None or reason else Quantity(value=error),
        "plain_error": missing if reason else Quantity(value=7e-7),
        "perplexity": make_perplexity(perplexity) if perplexity else None,
        "perplexity_reason": None if perplexity else "same result as the model's own attention",
        "reason": reason,
    }
    return AttentionVariant(**{**fields, **overrides})


def make_attention_result(
    *variants: AttentionVariant, attention: str = "eager", **overrides: Any
) -> AttentionResult:
    """Eager at 90 µs per token of context, sdpa at 20; a window that keeps the quality, MQA not."""
    loaded = make_loaded("float32").model_copy(update={"attention": attention})
    own = make_variant("GQA, 3 K/V heads", "structure", perplexity=32.0)
    fields: dict[str, Any] = {
        "model": loaded,
        "heads": 9,
        "kv_heads": 3,
        "head_size": 64,
        "layers": 30,
        "variants": variants
        or (
            make_variant("eager", seconds_per_token=90e-6),
            make_variant("sdpa"),
            make_variant("sdpa cuDNN", reason="this backend needs a CUDA device"),
            own,
            make_variant(
                "MQA, 1 K/V head",
                "structure",
                kv_heads=1,
                cache_bytes=15_728_640,
                perplexity=16_000.0,
            ),
            make_variant(
                "window 256 + 16 global",
                "structure",
                seconds_per_token=12e-6,
                cache_bytes=12_533_760,
                perplexity=32.1,
                window=256,
                global_tokens=16,
            ),
        ),
    }
    return AttentionResult(**{**fields, **overrides})


def make_format(
    method: str = "int8_weight_only",
    *,
    step_s: float = 0.02,
    perplexity: float | None = 32.1,
    identical: int = 190,
    reason: str | None = None,
    reference: bool = False,
    **overrides: Any,
) -> QuantVariant:
    """A format whose answers are those of the reference for `identical` of 200 prompts."""
    agreed = (12,) * identical + (5,) * (200 - identical)
    fields: dict[str, Any] = {
        "method": method,
        "kernel": "" if reason else "torch",
        "decode_step_s": NONE if reason else make_samples(step_s, 40),
        "prefill_s": NONE if reason else make_samples(0.1, 5),
        "weight_bytes": Quantity(reason="it did not run") if reason else Quantity(value=2e8),
        "perplexity": make_perplexity(perplexity) if perplexity and not reason else None,
        "perplexity_reason": None if perplexity and not reason else "it did not run",
        "agreed_tokens": () if reason or reference else agreed,
        "agreement_reason": "it is the reference" if reference else None,
        "reason": reason,
    }
    return QuantVariant(**{**fields, **overrides})


def make_quantisation_result(*variants: QuantVariant, **overrides: Any) -> QuantisationResult:
    """float32 as reference, int8 three times as fast and as good, dynamic int8 fast and worse."""
    fields: dict[str, Any] = {
        "model": make_loaded("float32"),
        "answer_tokens": 12,
        "variants": variants
        or (
            make_format("float32", step_s=0.06, perplexity=32.0, reference=True),
            make_format(),
            make_format("int8_dynamic", step_s=0.03, perplexity=117.0, identical=1),
            make_format("float8", reason="torchao is not installed: pip install torchao"),
        ),
    }
    return QuantisationResult(**{**fields, **overrides})


def make_batching_result(
    *, wasted: float = 0.45, saved: float = 0.3, growth: float = 1.3, **overrides: Any
) -> BatchingResult:
    """Each doubling of the batch makes the step `growth` times as long. wasted: share of computed
    tokens that is padding; saved: share of the time that sorting by length saves."""
    fields: dict[str, Any] = {
        "model": make_loaded("float32"),
        "cold": make_cold(),
        "input_tokens": 64,
        "chunked_input_tokens": 512,
        "points": tuple(
            BatchPoint(
                batch=batch,
                prefill_s=make_samples(0.1 * batch, 5),
                decode_step_s=make_samples(0.06 * growth**index, 20, seed=batch),
                peak_memory_bytes=Quantity(value=1e9),
            )
            for index, batch in enumerate((1, 2, 4, 8))
        ),
        "padding": (
            PaddingPoint(
                order="as_they_come",
                seconds=make_samples(2.0, 5),
                computed_tokens=round(1000 / (1 - wasted)),
                useful_tokens=1000,
            ),
            PaddingPoint(
                order="bucketed",
                seconds=make_samples(2.0 * (1 - saved), 5, seed=1),
                computed_tokens=1050,
                useful_tokens=1000,
            ),
        ),
        "chunks": tuple(
            ChunkPoint(
                chunk_tokens=tokens,
                seconds=make_samples(seconds, 5),
                longest_chunk_s=Quantity(value=seconds * tokens / 512),
            )
            for tokens, seconds in ((64, 1.6), (256, 1.1), (512, 1.0))
        ),
    }
    return BatchingResult(**{**fields, **overrides})


def make_cache_details(*, leak_bytes: float = 0.0, **overrides: Any) -> CacheDetails:
    """Eight generations, each of which keeps `leak_bytes`; a static cache is a tenth faster."""
    fields: dict[str, Any] = {
        "context_tokens": 512,
        "forms": (
            CacheForm(
                form="dynamic", seconds=make_samples(0.06, 40), cache_bytes=Quantity(value=1e7)
            ),
            CacheForm(
                form="static",
                seconds=make_samples(0.054, 40, seed=1),
                cache_bytes=Quantity(value=1.1e7),
            ),
            CacheForm(
                form="quantised",
                seconds=NONE,
                cache_bytes=Quantity(reason="it did not run"),
                reason="optimum-quanto is not installed",
            ),
        ),
        "dtypes": (
            CacheDtype(
                dtype="float32",
                seconds=make_samples(0.07, 40, seed=2),
                cache_bytes=Quantity(value=2e7),
            ),
            CacheDtype(
                dtype="float8_e4m3fn",
                seconds=NONE,
                cache_bytes=Quantity(reason="it did not run"),
                reason="no concatenation of float8",
            ),
        ),
        "prefix": PrefixReuse(
            context_tokens=512,
            shared_tokens=384,
            full_s=make_samples(0.4, 5),
            reused_s=make_samples(0.1, 5, seed=1),
        ),
        "held_bytes": Samples(values=tuple(leak_bytes * (i + 1) for i in range(8))),
    }
    return CacheDetails(**{**fields, **overrides})


def make_split_point(
    size: int, step_s: float | None, *, same_tokens: int = 8, reason: str | None = None
) -> TensorParallelPoint:
    """A size whose decode steps take `step_s`; None: it did not run for `reason`."""
    if step_s is None:
        missing = Quantity(reason="it did not run")
        return TensorParallelPoint(
            size=size,
            prefill_s=NONE,
            decode_step_s=NONE,
            weight_bytes=missing,
            peak_memory_bytes=missing,
            reason=reason,
        )
    return TensorParallelPoint(
        size=size,
        prefill_s=make_samples(3 * step_s, 5, seed=size),
        decode_step_s=make_samples(step_s, 40, seed=size),
        weight_bytes=Quantity(value=16e9 / size),
        peak_memory_bytes=Quantity(value=18e9 / size),
        same_tokens=same_tokens,
        answer_tokens=8,
    )


def make_split_result(**overrides: Any) -> TensorParallelResult:
    fields: dict[str, Any] = {
        "model": make_loaded(device="cuda"),
        "backend": "nccl",
        "input_tokens": 64,
        "points": (make_split_point(1, 0.02), make_split_point(2, 0.0125)),
        "threads": 8,
        "versions": {"torch": "2.13.0", "transformers": "5.24.0"},
    }
    return TensorParallelResult(**{**fields, **overrides})
