"""Bytes and FLOPs of a step in closed form, against counts made by hand."""

from __future__ import annotations

import pytest

from advisor.catalog import find_gpu
from advisor.estimates.models import resolve_model
from advisor.estimates.roofline import Placement, Roofline


def roofline(name: str, gpus: int = 1, gpu: str = "H100 SXM", **changes: object) -> Roofline:
    place = Placement(find_gpu(gpu), gpus=gpus, tp=gpus, **changes)  # type: ignore[arg-type]
    return Roofline(resolve_model(name).shape, place)


def test_batch_one_decode_reads_the_weights_once() -> None:
    model = roofline("Qwen/Qwen3-8B")
    shape = model.shape
    read = 2 * (shape.params_total - shape.params_embedding)
    assert model.decode(1, 1).weights_s == pytest.approx(read / 3.35e12)
    assert model.decode(1, 1).bound_by == "memory"


def test_a_tied_head_is_still_multiplied_and_a_lookup_is_not() -> None:
    model = roofline("meta-llama/Llama-3.2-1B")
    head = 2 * 128_256 * 2048
    assert model.head_flops == head
    body = 2 * (model.shape.params_total - 128_256 * 2048)
    assert model.matmul_flops_per_token == pytest.approx(body, rel=1e-3)


def test_prefill_counts_the_head_once_per_prompt() -> None:
    model = roofline("meta-llama/Llama-3.2-1B")
    one = model.prefill(1000).compute_s * model.peak_flops
    assert one == pytest.approx(1000 * model.matmul_flops_per_token + model.head_flops)


def test_expert_flops_follow_active_parameters() -> None:
    model = roofline("mistralai/Mixtral-8x7B-v0.1")
    per_token = model.matmul_flops_per_token + model.head_flops
    assert per_token == pytest.approx(2 * 12.88e9, rel=0.02)


def test_a_growing_batch_touches_more_experts_up_to_all() -> None:
    model = roofline("Qwen/Qwen3-30B-A3B")
    one, many, all_ = (model.expert_bytes(n) for n in (1, 16, 10_000))
    assert one == pytest.approx(all_ * 8 / 128)
    assert one < many < all_
    assert all_ == pytest.approx(2 * model.shape.params_experts)


def test_causal_attention_overtakes_the_weights_at_long_context() -> None:
    model = roofline("meta-llama/Llama-3.1-8B")
    for tokens, ratio in ((131_072, 2.3), (1024, 0.018)):
        attention = model.attention_flops(tokens, tokens / 2, decode=False)
        weights = (model.matmul_flops_per_token + model.head_flops) * tokens
        assert attention / weights == pytest.approx(ratio, rel=0.02)


def test_windows_cap_what_decode_reads() -> None:
    model = roofline("openai/gpt-oss-120b")
    short, long = model.kv_read_bytes(128), model.kv_read_bytes(10_000)
    assert long - short == pytest.approx((10_000 - 128) * 36_864)


def test_latent_cache_is_read_whole_on_every_gpu_unless_attention_is_data_parallel() -> None:
    assert roofline("deepseek-ai/DeepSeek-V3", 8).kv_shard() == 1.0
    assert roofline("deepseek-ai/DeepSeek-V3", 8, attention_dp=True).kv_shard() == 1 / 8
    assert roofline("Qwen/Qwen3-30B-A3B", 8).kv_shard() == 1 / 4


def test_old_chips_compute_fp8_weights_in_16_bit_but_read_half_the_bytes() -> None:
    fp8 = roofline("Qwen/Qwen3-8B", gpu="A100", dtype="fp8")
    bf16 = roofline("Qwen/Qwen3-8B", gpu="A100", dtype="bf16")
    assert fp8.compute_dtype == "bf16"
    assert fp8.decode(1, 1).weights_s < 0.6 * bf16.decode(1, 1).weights_s
    assert fp8.prefill(512).compute_s == pytest.approx(bf16.prefill(512).compute_s)


def test_links_cost_nothing_on_one_gpu_and_more_over_pcie() -> None:
    assert roofline("Qwen/Qwen3-8B").decode(8, 100).comm_s == 0.0
    nvlink = roofline("Qwen/Qwen3-8B", 4).decode(8, 100).comm_s
    assert roofline("Qwen/Qwen3-8B", 4, gpu="L40S").decode(8, 100).comm_s > 10 * nvlink
