"""Fit: five lines that sum, sizes that divide, and the figures of real engine logs."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.catalog import find_gpu
from advisor.estimates.memory import (
    GIB,
    allowed_tp,
    kv_tokens_in,
    plan_memory,
    reserved_bytes_per_token,
    smallest_tp,
    tp_problem,
)
from advisor.estimates.models import resolve_model
from advisor.estimates.roofline import Placement, Roofline
from advisor.shapes import ModelShape, shape_from_config

H100 = find_gpu("H100 SXM")


def shape(name: str) -> ModelShape:
    return resolve_model(name).shape


def roofline(name: str, tp: int = 1, gpu: str = "H100 SXM", **changes: Any) -> Roofline:
    return Roofline(shape(name), Placement(find_gpu(gpu), gpus=tp, tp=tp, **changes))


def test_the_five_lines_sum_to_the_total() -> None:
    plan = plan_memory(roofline("Qwen/Qwen3-8B"), context=4096, concurrency=8)
    assert [name for name, _ in plan.lines()] == [
        "weights",
        "KV cache",
        "activation peak",
        "graphs",
        "runtime overhead",
    ]
    assert sum(size for _, size in plan.lines()) == plan.total


def test_overheads_are_bands_with_a_source() -> None:
    plan = plan_memory(roofline("Qwen/Qwen3-8B"), context=4096)
    for band in (plan.activation, plan.graphs, plan.runtime):
        assert band.low < band.value < band.high
        assert band.source
    assert plan.kv_available_low < plan.kv_available < plan.kv_available_high


@pytest.mark.parametrize(
    ("model", "tp", "itemsize", "log_gib", "log_tokens"),
    [
        # hf-mem issue 60: vLLM log for gpt-oss-120b on one GPU, windows charged in full.
        ("openai/gpt-oss-120b", 1, 2.0, 5.38, 78_384),
        # vLLM issue 21348: Qwen3-235B-A22B-FP8 on 4 GPUs, 48,681 B per token and GPU.
        ("Qwen/Qwen3-235B-A22B", 4, 2.0, 178_880 * 48_128 / GIB, 178_880),
    ],
)
def test_cache_tokens_match_the_engine_log(
    model: str, tp: int, itemsize: float, log_gib: float, log_tokens: int
) -> None:
    place = roofline(model, tp)
    reserved = reserved_bytes_per_token(place.shape, kv_itemsize=itemsize, engine="vllm")
    tokens = kv_tokens_in(round(log_gib * GIB), reserved * place.kv_shard())
    assert tokens == pytest.approx(log_tokens, rel=0.01)


def test_needed_and_reserved_differ_for_windows() -> None:
    model = shape("openai/gpt-oss-120b")
    assert reserved_bytes_per_token(model, kv_itemsize=2, engine="vllm") == 73_728
    assert reserved_bytes_per_token(model, kv_itemsize=2, engine="transformers") == 36_864


@pytest.mark.parametrize(
    ("engine", "version", "frees"),
    [
        ("vllm", "0.9.2", False),
        ("vllm", "0.33.0", True),
        ("vllm", "", True),
        ("sglang", "0.5.23", True),
    ],
)
def test_an_engine_version_that_keeps_what_is_behind_the_window_holds_fewer_sequences(
    engine: str, version: str, frees: bool
) -> None:
    place = roofline("openai/gpt-oss-120b")
    plan = plan_memory(place, engine=engine, engine_version=version, context=16_384)
    needed = place.shape.kv_bytes_for(16_384, 2)
    held = needed if frees else 73_728 * 16_384
    assert plan.max_concurrency == plan.kv_available // held


def test_per_gpu_cache_is_split_by_heads_but_a_latent_is_replicated() -> None:
    plan = plan_memory(roofline("Qwen/Qwen3-235B-A22B", 4), context=4096)
    assert plan.kv_needed_per_token == 48_128
    for tp in (1, 8):
        plan = plan_memory(roofline("deepseek-ai/DeepSeek-V3", tp), context=4096)
        assert plan.kv_needed_per_token == 70_272


@pytest.mark.parametrize(
    ("model", "tp", "good"),
    [
        ("Qwen/Qwen2.5-7B", 8, "1, 2, 4"),
        ("microsoft/phi-4", 4, "1, 2, 5, 10"),
        ("microsoft/phi-4", 8, "1, 2, 5, 10"),
        ("tiiuae/falcon-7b-instruct", 2, "1, 71"),
    ],
)
def test_a_size_that_does_not_divide_names_the_ones_that_do(model: str, tp: int, good: str) -> None:
    problem = tp_problem(shape(model), tp)
    assert problem is not None
    assert f"sizes that work: {good}" in problem


def test_sizes_that_divide_are_allowed() -> None:
    assert allowed_tp(shape("Qwen/Qwen2.5-7B")) == (1, 2, 4)
    assert [size for size in (2, 5, 10) if tp_problem(shape("microsoft/phi-4"), size)] == []
    thirteen = shape_from_config(
        {
            "model_type": "llama",
            "hidden_size": 6656,
            "num_hidden_layers": 60,
            "num_attention_heads": 52,
            "intermediate_size": 17920,
            "vocab_size": 32000,
        }
    )
    assert tp_problem(thirteen, 3) is not None


def test_the_smallest_size_that_fits_really_fits_and_the_next_smaller_does_not() -> None:
    model = shape("meta-llama/Llama-3.1-70B")
    size = smallest_tp(model, H100, context=8192)
    assert size is not None
    for tp, fits in ((size, True), (size // 2, False)):
        plan = plan_memory(Roofline(model, Placement(H100, gpus=tp, tp=tp)), context=8192)
        assert plan.fits is fits


def test_a_context_that_is_too_long_gets_a_length_that_fits() -> None:
    place = roofline("Qwen/Qwen3-32B")
    plan = plan_memory(place, context=40_000, fraction=0.9)
    assert not plan.fits
    assert f"{plan.max_context:,}" in plan.reason
    assert plan_memory(place, context=plan.max_context, fraction=0.9).fits
    assert not plan_memory(place, context=plan.max_context + 64, fraction=0.9).fits


def test_a_small_cache_type_doubles_the_tokens_and_changes_nothing_else() -> None:
    wide = plan_memory(roofline("Qwen/Qwen3-8B"), context=4096)
    narrow = plan_memory(roofline("Qwen/Qwen3-8B", kv_itemsize=1.0), context=4096)
    assert narrow.kv_capacity_tokens == pytest.approx(2 * wide.kv_capacity_tokens, abs=32)
    assert narrow.weights == wide.weights
    assert narrow.kv_available == wide.kv_available


def test_state_not_context_limits_a_hybrid() -> None:
    place = roofline("nvidia/Nemotron-H-56B-Base-8K", 8)
    short, long = plan_memory(place, context=1000), plan_memory(place, context=2000)
    assert short.state_per_seq > 10_000_000
    assert long.max_concurrency > 0.6 * short.max_concurrency


def test_a_ten_million_token_model_limit_does_not_blow_up() -> None:
    plan = plan_memory(roofline("meta-llama/Llama-4-Scout-17B-16E-Instruct", 8), context=8192)
    assert plan.fits
    assert 8192 < plan.max_context <= 10_485_760


def test_weights_that_are_too_large_say_how_large() -> None:
    plan = plan_memory(roofline("meta-llama/Llama-3.1-70B"), context=1000)
    assert not plan.fits
    assert plan.kv_capacity_tokens == 0
    assert "GiB per GPU" in plan.reason
