"""The traps that misled other planners, one test each, on the smallest config that shows them."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.shapes import ModelShape, ShapeError, shape_from_config

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 704,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
MOE = {**LLAMA, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
LATENT = {
    **LLAMA,
    "model_type": "deepseek_v3",
    "kv_lora_rank": 512,
    "q_lora_rank": 64,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 32,
    "v_head_dim": 48,
}


def make(base: dict[str, Any] = LLAMA, **changes: Any) -> ModelShape:
    return shape_from_config({**base, **changes})


def test_grouped_heads_cache_kv_heads_not_query_heads() -> None:
    assert make().kv_bytes_per_token() == 2 * 3 * 2 * 32 * 2
    assert make().attention == "GQA"


def test_explicit_head_dim_wins_over_hidden_over_heads() -> None:
    assert make(head_dim=64).kv_bytes_per_token() == 2 * make().kv_bytes_per_token()


@pytest.mark.parametrize("item", [1, 2, 4])
def test_latent_cache_counts_the_latent_once(item: int) -> None:
    shape = make(LATENT)
    assert shape.kv_bytes_per_token(item) == 576 * 3 * item
    assert (shape.attention, shape.kv_heads, shape.head_dim) == ("MLA", 1, 576)


def test_latent_attention_is_decided_by_its_ranks_not_by_the_model_type() -> None:
    shape = make(LATENT, model_type="deepseek_v2", use_mla=False, kv_lora_rank=None)
    assert shape.attention == "GQA"


def test_window_layers_stop_growing_but_are_still_charged_before_the_window_fills() -> None:
    shape = make(
        model_type="gpt_oss",
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        sliding_window=128,
    )
    assert shape.kv_bytes_per_token() == 3 * shape.kv_bytes_per_token_growing()
    per_layer = shape.kv_bytes_per_token_growing()
    assert shape.kv_bytes_for(1000) == per_layer * (1000 + 2 * 128)


def test_a_switched_off_window_is_ignored() -> None:
    shape = make(model_type="qwen2", sliding_window=64, use_sliding_window=False)
    assert shape.kv_bytes_per_token() == shape.kv_bytes_per_token_growing()
    assert shape.attention == "GQA"


def test_null_kv_heads_mean_one_per_query_head() -> None:
    assert make(num_key_value_heads=None).attention == "MHA"


def test_falcon_multi_query_flag_beats_its_kv_head_count() -> None:
    shape = make(model_type="falcon", multi_query=True, num_kv_heads=8, num_key_value_heads=None)
    assert (shape.kv_heads, shape.attention) == (1, "MQA")


@pytest.mark.parametrize(
    ("renamed", "original"),
    [
        ("n_head", "num_attention_heads"),
        ("n_embd", "hidden_size"),
        ("n_layer", "num_hidden_layers"),
        ("num_layers", "num_hidden_layers"),
        ("padded_vocab_size", "vocab_size"),
        ("ffn_hidden_size", "intermediate_size"),
    ],
)
def test_other_spellings_give_the_same_shape(renamed: str, original: str) -> None:
    config = {**LLAMA, renamed: LLAMA[original]}
    del config[original]
    assert shape_from_config(config).params_total == make().params_total


def test_total_active_and_memory_of_experts_are_three_numbers() -> None:
    shape = make(MOE)
    expert = 3 * 256 * 704
    assert shape.params_total - shape.params_active == 3 * 6 * expert
    assert shape.weight_bytes("bf16") == 2 * shape.params_total


def test_a_missing_tie_key_takes_the_class_default() -> None:
    tied = {k: v for k, v in LLAMA.items() if k != "tie_word_embeddings"}
    assert not shape_from_config(tied).tied
    gemma = shape_from_config({**tied, "model_type": "gemma"})
    assert gemma.tied
    assert gemma.params_head == 0


def test_cache_type_changes_cache_bytes_and_nothing_else() -> None:
    shape = make()
    assert shape.kv_bytes_per_token(1) * 2 == shape.kv_bytes_per_token(2)
    assert shape.weight_bytes() == 2 * shape.params_total


def test_speculative_modules_are_named_and_not_counted() -> None:
    shape = make(LATENT, num_nextn_predict_layers=1)
    assert shape.params_total == make(LATENT).params_total
    assert any("MTP" in note for note in shape.notes)


def test_fp8_keeps_tables_and_head_at_sixteen_bits() -> None:
    shape = make(quantization_config={"quant_method": "fp8"})
    linear = sum(shape.params_by_group()[p] for p in ("attention", "mlp"))
    assert shape.weight_bytes() == 2 * shape.params_total - linear


def test_experts_only_formats_leave_attention_alone() -> None:
    quant = {"quant_method": "mxfp4"}
    shape = make({**MOE, "model_type": "gpt_oss"}, quantization_config=quant)
    saved = shape.params_experts * (2 - 4.25 / 8)
    assert shape.weight_bytes() == pytest.approx(2 * shape.params_total - saved, abs=1)


def test_formats_that_no_engine_loads_are_said_so() -> None:
    quant = {"quant_method": "exl2", "bits": 2.2, "head_bits": 6}
    assert any("neither vLLM nor SGLang" in n for n in make(quantization_config=quant).notes)


def test_a_quantisation_companion_file_is_honoured() -> None:
    companion = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    shape = make(hf_quant_config=companion)
    assert shape.quant is not None
    assert (shape.quant.method, shape.quant.kv_dtype) == ("fp8", "fp8")


def test_an_unknown_architecture_gives_bounds_and_says_so() -> None:
    shape = make(model_type="brand_new")
    assert not shape.known
    assert shape.params_bounds is not None
    low, high = shape.params_bounds
    assert low < shape.params_total <= high
    assert "brand_new" in shape.notes[0]


def test_no_grouped_attention_is_a_note_not_an_error() -> None:
    shape = make(num_attention_heads=16, num_key_value_heads=16)
    assert any("no grouped attention" in note for note in shape.notes)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"hidden_size": None}, "hidden_size"),
        ({"num_hidden_layers": -1}, "num_hidden_layers"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"num_attention_heads": 7}, "num_attention_heads"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"vocab_size": "many"}, "vocab_size"),
        ({"hidden_size": True}, "hidden_size"),
        ({"vocab_size": float("inf")}, "vocab_size"),
        ({"quantization_config": {"quant_method": "magic"}}, "quantization_config.quant_method"),
        ({"quantization_config": "fp8"}, "quantization_config"),
        ({"model_type": "bert"}, "model_type"),
        ({"model_type": "t5"}, "model_type"),
        ({"is_encoder_decoder": True}, "model_type"),
        ({"_class_name": "StableDiffusionPipeline"}, "_class_name"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"layer_types": ["mystery"] * 3}, "layer_types"),
        ({"text_config": 5}, "text_config"),
    ],
)
def test_bad_configs_name_the_key(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ShapeError) as caught:
        make(**changes)
    assert caught.value.field == field
    assert caught.value.message


def test_more_chosen_experts_than_there_are_is_refused() -> None:
    with pytest.raises(ShapeError, match="more than the 8 experts"):
        make(MOE, num_experts_per_tok=9)


def test_summary_is_one_readable_sentence() -> None:
    text = make().summary()
    assert text.startswith("Dense, 3 layers, ")
    assert "8 query and 2 KV heads of 32" in text
