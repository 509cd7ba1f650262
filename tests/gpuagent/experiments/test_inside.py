"""The experiments on the model itself, for real, on a two-layer Llama with random weights."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from gpuagent.engines.transformers_engine import TransformersEngine
from gpuagent.errors import AgentError, CancelledByServer
from gpuagent.experiments import batching
from gpuagent.lab import attention, caches, ceilings, formats, kernels
from gpuagent.models import resolve
from gpuagent.runner import run_trial
from gpuagent.wire import FailureReason, LengthSpec
from gpuagent.wire.inside import (
    AttentionConfig,
    AttentionResult,
    BatchingConfig,
    BatchingResult,
    CalibrateConfig,
    CalibrateResult,
    KernelsConfig,
    KernelsResult,
    QuantisationConfig,
    QuantisationResult,
)
from gpuagent.wire.trial import ExperimentConfig, KvCacheConfig, KvCacheResult, TrialResult
from tests.gpuagent.fakes import TINY_CONFIG, FakeClock, FakeEngine, fake_context, tiny_spec

CPU = torch.device("cpu")


def measured(
    config: ExperimentConfig, *, cancel: Callable[[], bool] = lambda: False
) -> TrialResult:
    return run_trial(
        tiny_spec(config=config), emit=lambda *a, **k: None, should_cancel=cancel, model_roots=[]
    )


# --- calibrate ---------------------------------------------------------------------------------


def test_ceilings_are_the_best_of_their_samples_and_say_what_is_missing() -> None:
    result = measured(CalibrateConfig(repeats=5, size_frac=0.02))
    assert isinstance(result.measurements, CalibrateResult)
    found = result.measurements.ceilings
    for entry in found.entries:
        assert (entry.rate.value is None) == (entry.seconds.n == 0)
        if entry.kind == "launch":
            assert entry.rate.value == min(entry.seconds.values)
        elif entry.rate.value is not None:
            assert entry.rate.value == pytest.approx(entry.work / min(entry.seconds.values))
    assert found.rate("read")
    assert found.rate("gemm", "float32")
    assert found.rate("gemm", "float8") is None
    assert found.rate("all_reduce") is None
    assert result.environment.device == "cpu"
    assert result.environment.threads == found.threads


def test_only_the_kinds_that_are_asked_for_are_measured() -> None:
    found = ceilings.measure(
        CPU, repeats=5, size_frac=0.01, tick=lambda: None, only=frozenset({"launch"})
    )
    assert [entry.kind for entry in found.entries] == ["launch"]
    assert found.clock_hz.value is None


def test_a_cancel_stops_between_samples() -> None:
    with pytest.raises(CancelledByServer):
        measured(CalibrateConfig(size_frac=0.01), cancel=lambda: True)


# --- kernels -----------------------------------------------------------------------------------


def test_every_linear_layer_of_the_model_is_timed_against_its_ceiling() -> None:
    config = KernelsConfig(
        batch_sizes=(1,), input_tokens=8, dtypes=("float32",), repeats=5, compile=False
    )
    result = measured(config).measurements
    assert isinstance(result, KernelsResult)
    decode = [g for g in result.gemms if g.rows == 1]
    # Seven projections in each of two layers, and the head.
    assert sum(g.per_step for g in decode) == 2 * 7 + 1
    for gemm in result.gemms:
        assert gemm.flops == 2 * gemm.rows * gemm.n * gemm.k
        assert gemm.seconds.n == 5
        assert gemm.ceiling_s.value is not None
    eager, graph, compiled = result.steps
    assert eager.form == "eager"
    assert eager.seconds.n == 3 * 5
    assert graph.reason == "CUDA graphs need a CUDA device"
    assert compiled.reason == "the trial asked for none"
    assert result.costs.operators.value
    assert result.costs.allocations.value
    assert all(f.compiled_reason and not f.compiled_s.n for f in result.fused)


def test_a_compiler_that_fails_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no C++ compiler\nstack")

    monkeypatch.setattr(torch, "compile", broken)
    x = torch.ones(2, 4)
    found = kernels.measure_chain(
        kernels._Chain("norm", lambda a: a * 2, (x,), 3),
        rows=2,
        ceilings=ceilings.measure(
            CPU, repeats=5, size_frac=0.01, tick=lambda: None, only=frozenset({"read"})
        ),
        repeats=5,
        tick=lambda: None,
        no_compile=None,
    )
    assert found.compiled_s.n == 0
    assert found.compiled_reason == "torch.compile does not work here: no C++ compiler"


def test_an_unknown_dtype_is_refused_by_name() -> None:
    with pytest.raises(AgentError, match="dtypes: int3") as caught:
        measured(KernelsConfig(dtypes=("int3",)))
    assert caught.value.reason is FailureReason.CONFIG_ERROR


# --- attention ---------------------------------------------------------------------------------


def test_variants_are_exact_and_windows_store_and_compute_less() -> None:
    config = AttentionConfig(
        context_tokens=(64, 600), window=128, global_tokens=4, perplexity_tokens=0
    )
    result = measured(config).measurements
    assert isinstance(result, AttentionResult)
    ran = [v for v in result.variants if v.reason is None]
    assert {"eager", "sdpa", "sdpa math"} <= {v.name for v in ran}
    for variant in ran:
        assert variant.error.value is not None
        assert variant.plain_error.value is not None
        assert variant.error.value <= 2 * variant.plain_error.value + 1e-12, variant.name
        assert [p.seconds.n for p in variant.points] == [5, 5]
    own, mqa, window = [v for v in ran if v.kind == "structure"]
    assert [own.kv_heads, mqa.kv_heads, window.kv_heads] == [2, 1, 2]
    assert mqa.points[1].cache_bytes * 2 == own.points[1].cache_bytes
    assert window.points[1].cache_bytes == own.points[1].cache_bytes * 132 // 600
    assert window.points[1].flops < own.points[1].flops
    assert own.perplexity_reason


def test_lengths_that_would_take_too_long_are_left_out_with_their_time() -> None:
    config = AttentionConfig(
        context_tokens=(16, 64, 65_536), repeats=5, window=16, perplexity_tokens=0, share_s=0.5
    )
    result = measured(config).measurements
    assert isinstance(result, AttentionResult)
    for variant in result.variants:
        if variant.reason is None:
            first, *_, last = variant.points
            assert first.seconds.n == 5
            assert last.seconds.n == 0
            assert "left out" in (last.reason or "")
            assert last.cache_bytes > 0  # exact without a run


@pytest.mark.parametrize("tokens", [100, 128, 129, 400])
@pytest.mark.parametrize("global_tokens", [0, 7])
def test_block_skipping_gives_what_the_dense_mask_gives(tokens: int, global_tokens: int) -> None:
    structure = attention.Structure("w", 2, window=60, global_tokens=global_tokens)
    torch.manual_seed(0)
    q = torch.randn(1, 4, tokens, 16)
    k, v = torch.randn(1, 2, tokens, 16), torch.randn(1, 2, tokens, 16)
    got = attention.attend(q, k, v, structure)
    exact = attention.reference(q, k, v, structure, torch.float64)
    assert torch.allclose(got.double(), exact, atol=1e-5)
    mask = attention.causal_mask(tokens, 60, global_tokens, CPU)
    assert structure.pairs(tokens) == int(mask.sum())
    assert structure.pairs(tokens) <= structure.computed_pairs(tokens)


def test_pooling_keys_is_pooling_their_weights() -> None:
    torch.manual_seed(0)
    weight, x = torch.randn(4 * 8, 16), torch.randn(5, 16)
    heads = (x @ weight.t()).view(5, 4, 8).permute(1, 0, 2)[None]
    pooled_weight = weight.view(2, 2, 8, 16).mean(dim=1).reshape(2 * 8, 16)
    expected = (x @ pooled_weight.t()).view(5, 2, 8).permute(1, 0, 2)[None]
    assert torch.allclose(attention.pool_heads(heads, 2), expected, atol=1e-5)


# --- cache -------------------------------------------------------------------------------------


def test_forms_of_the_cache_reuse_and_release_are_measured() -> None:
    result = measured(KvCacheConfig(context_tokens=(16, 64), decode_steps=2)).measurements
    assert isinstance(result, KvCacheResult)
    details = result.details
    assert details is not None
    dynamic, static, quantised = details.forms
    assert dynamic.seconds.n == static.seconds.n == 5 * 2
    # 2 tensors x 2 layers x 2 heads x 16 values x 4 bytes, for 64 tokens and 6 rounds of 2 more.
    assert dynamic.cache_bytes.value == 512 * 76
    assert static.cache_bytes.value is not None
    assert 512 * 76 <= static.cache_bytes.value <= 512 * 76 + 64
    assert quantised.reason or quantised.seconds.n
    assert details.prefix is not None
    assert details.prefix.shared_tokens == 48
    assert details.prefix.full_s.n == details.prefix.reused_s.n == 5
    assert details.held_bytes.n == 8 or details.held_reason
    # The same tokens in other dtypes than the model's float32: 2, 2 and 1 bytes a value.
    stored = {d.dtype: d for d in details.dtypes}
    assert "float32" not in stored
    assert stored["bfloat16"].cache_bytes.value == stored["float16"].cache_bytes.value == 256 * 76
    float8 = stored["float8_e4m3fn"]
    assert float8.reason or float8.cache_bytes.value == 128 * 76
    assert stored["bfloat16"].seconds.n == 10
    # Random weights have no quality.
    assert dynamic.perplexity is stored["bfloat16"].perplexity is None
    assert dynamic.perplexity_reason


@pytest.mark.parametrize("tokens", [2, 65, 66, 130])
def test_a_text_read_back_from_the_cache_scores_as_without_one(tokens: int) -> None:
    """Windows of one chunk, of a chunk and its border, and of several."""
    engine = TransformersEngine()
    spec = tiny_spec()
    engine.load(resolve(spec.model, []), spec.settings, seed=0, tick=lambda: None)
    window = [index * 7 % 60 for index in range(tokens)]
    bench = caches._Bench(engine, window, 2, 5, lambda: None, lambda score: (None, None))

    def scored(dtype: torch.dtype) -> float:
        return bench.negative_log_likelihood(window, caches.cast(engine.module, dtype))

    with torch.inference_mode():
        plain = engine.negative_log_likelihood(window)
        assert scored(torch.float32) == pytest.approx(plain, rel=1e-5)
        if tokens > 2:
            narrow = scored(torch.float8_e4m3fn)
            assert narrow != pytest.approx(plain, rel=1e-6)
            assert narrow == pytest.approx(plain, rel=0.1)


def test_a_cast_cache_answers_as_the_model_does_in_its_own_dtype() -> None:
    config = LlamaConfig(**{k: v for k, v in TINY_CONFIG.items() if k not in ("model_type",)})
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).eval()
    ids = torch.arange(24)[None]
    exact = model(ids[:, :20], past_key_values=caches.cast(model, torch.float32))
    plain = model(ids[:, :20])
    assert torch.equal(exact.logits, plain.logits)
    narrow = caches.cast(model, torch.bfloat16)
    model(ids[:, :20], past_key_values=narrow)
    step = model(ids[:, 20:21], past_key_values=narrow)
    whole = model(ids[:, :21])
    assert torch.allclose(step.logits[:, -1], whole.logits[:, -1], atol=0.05)
    assert not torch.equal(step.logits[:, -1], whole.logits[:, -1])


# --- quantisation ------------------------------------------------------------------------------


def test_formats_are_compared_with_the_first_that_runs() -> None:
    config = QuantisationConfig(
        methods=("float8", "float32", "int8_weight_only", "int8_dynamic", "int4_weight_only"),
        decode_steps=2,
        prompts=3,
        answer_tokens=3,
        prompt_tokens=5,
        input_tokens=8,
    )
    result = measured(config).measurements
    assert isinstance(result, QuantisationResult)
    float8, float32, weight_only, dynamic, int4 = result.variants
    assert float8.reason
    assert float32.agreement_reason == "it is the reference"
    for variant in (weight_only, dynamic, int4):
        assert len(variant.agreed_tokens) == 3
        assert max(variant.agreed_tokens) <= 3
        assert variant.decode_step_s.n == 5 * 2
        assert variant.weight_bytes.value is not None
        assert float32.weight_bytes.value is not None
        assert variant.weight_bytes.value < float32.weight_bytes.value
        assert "random weights" in (variant.perplexity_reason or "")


def test_int8_rows_are_off_by_half_a_level_at_most() -> None:
    torch.manual_seed(0)
    linear = torch.nn.Linear(64, 32, bias=True).requires_grad_(False)
    changed = formats.Int8Linear(linear)
    restored = changed.quantised.float() * changed.scale[:, None]
    half = changed.scale[:, None] / 2
    assert bool(((restored - linear.weight).abs() <= half * 1.001).all())
    x = torch.randn(3, 64)
    expected = x @ restored.t() + linear.bias
    assert torch.allclose(changed(x), expected, atol=1e-4)


def test_int4_groups_are_off_by_half_a_level_at_most() -> None:
    torch.manual_seed(0)
    linear = torch.nn.Linear(64, 32, bias=True).to(torch.bfloat16).requires_grad_(False)
    x = torch.randn(3, 64, dtype=torch.bfloat16)
    got = formats.Int4Linear(linear)(x).float()
    weight = linear.weight.float()
    groups = weight.view(32, 2, 32)
    half = ((groups.amax(-1) - groups.amin(-1)) / 30)[..., None].expand_as(groups).reshape(32, 64)
    # Rounding of the weights, and of bfloat16 scales, zero points and sums.
    bound = x.float().abs() @ half.t() * 1.2 + 0.05
    exact = x.float() @ weight.t() + linear.bias.float()
    assert bool(((got - exact).abs() <= bound).all())
    assert float((got - exact).abs().max()) > 0


def test_where_no_format_runs_the_trial_fails_with_the_reason() -> None:
    with pytest.raises(AgentError, match="methods: none of float8, as_stored"):
        measured(QuantisationConfig(methods=("float8", "as_stored")))


# --- batching ----------------------------------------------------------------------------------


def test_batches_padding_and_chunks_are_measured() -> None:
    config = BatchingConfig(
        batch_sizes=(1, 2),
        input_tokens=8,
        decode_steps=2,
        mixed_requests=8,
        chunk_tokens=(16,),
        chunked_input_tokens=40,
    )
    result = measured(config).measurements
    assert isinstance(result, BatchingResult)
    assert [p.batch for p in result.points] == [1, 2]
    assert all(p.decode_step_s.n == 10 for p in result.points)
    mixed, sorted_ = result.padding
    assert sorted_.computed_tokens <= mixed.computed_tokens
    assert mixed.useful_tokens == sorted_.useful_tokens <= sorted_.computed_tokens
    chunked, whole = result.chunks
    assert (chunked.chunk_tokens, whole.chunk_tokens) == (16, 40)
    assert chunked.longest_chunk_s.value is not None
    assert chunked.longest_chunk_s.value < max(chunked.seconds.values)


class _SmallMemory(FakeEngine):
    def prefill(self, prompts, *, use_cache):  # type: ignore[no-untyped-def]
        if len(prompts) == 4 and len(prompts[0]) == 8:
            raise AgentError(FailureReason.OUT_OF_MEMORY, "needs 9 GiB")
        return super().prefill(prompts, use_cache=use_cache)


def test_a_batch_that_does_not_fit_is_a_result() -> None:
    clock = FakeClock()
    config = BatchingConfig(batch_sizes=(1, 4, 8), input_tokens=8)
    context = fake_context(
        tiny_spec(config=config), clock=clock, engine=_SmallMemory(clock, step_s=0.02)
    )
    result = batching.run(context)
    assert [p.batch for p in result.points] == [1, 4]
    assert result.points[0].decode_step_s.values == pytest.approx([0.02] * 20)
    assert "needs 9 GiB" in (result.points[1].reason or "")
    assert all("process" in (chunk.reason or "") for chunk in result.chunks)


def test_a_fixed_length_is_mixed_around_its_mean() -> None:
    lengths = batching.mixed_lengths(LengthSpec(mean=100), 400, 10_000, random.Random(1))
    assert len(set(lengths)) > 50
    assert 85 < sum(lengths) / len(lengths) < 115
    assert max(batching.mixed_lengths(LengthSpec(mean=1), 50, 3, random.Random(1))) <= 3
