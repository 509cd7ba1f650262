"""Hostile and broken config files: a sentence, quickly, never a crash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.shapes import ShapeError, parse_config_text, read_config, shape_from_config


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("not json", "not valid JSON"),
        ("[1, 2]", "must be a JSON object"),
        ("{}", "empty object"),
        (b"\xff\xfe\x00", "not UTF-8"),
        ('{"a": 1, "a": 2}', "appears twice"),
        ("[" * 5000, "levels deep"),
        ('{"a": ' * 50 + "1" + "}" * 50, "levels deep"),
        ('{"a": [' + "1," * 70_000 + "1]}", "values"),
        (" " * 1_000_001, "limit"),
    ],
)
def test_unusable_text_is_refused_with_a_sentence(text: str | bytes, words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        parse_config_text(text)


def test_infinity_and_a_byte_order_mark_are_tolerated() -> None:
    assert parse_config_text(b'\xef\xbb\xbf{"limit": [0.0, Infinity]}')["limit"][0] == 0.0


def test_a_huge_integer_does_not_stop_the_parser() -> None:
    config = parse_config_text('{"hidden_size": ' + "9" * 5000 + "}")
    with pytest.raises(ShapeError) as caught:
        shape_from_config(config)
    assert caught.value.field == "hidden_size"


@pytest.mark.parametrize("entry", [[], {}, None, 7, ["full_attention"]])
def test_a_layer_type_that_is_no_text_is_refused_by_its_key(entry: Any) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "vocab_size": 10,
        "intermediate_size": 64,
        "layer_types": [entry],
    }
    with pytest.raises(ShapeError) as caught:
        shape_from_config(config)
    assert caught.value.field == "layer_types"


def test_a_folder_without_a_config_and_a_missing_path_are_named(tmp_path: Path) -> None:
    with pytest.raises(ShapeError, match=r"without a config\.json"):
        read_config(tmp_path)
    with pytest.raises(ShapeError, match="does not exist"):
        read_config(tmp_path / "nothing.json")


def test_a_200_megabyte_file_is_refused_without_reading_it(tmp_path: Path) -> None:
    big = tmp_path / "model.safetensors"
    with big.open("wb") as handle:
        handle.truncate(200_000_000)
    with pytest.raises(ShapeError, match="over the limit"):
        read_config(big)


def test_companions_of_a_model_folder_are_merged(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    (tmp_path / "hf_quant_config.json").write_text('{"quantization": {"quant_algo": "FP8"}}')
    index = {"metadata": {"total_size": 1234}, "weight_map": {}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    config = read_config(tmp_path)
    assert config["hf_quant_config"] == {"quantization": {"quant_algo": "FP8"}}
    assert config["_index_total_size"] == 1234


_KEYS = st.sampled_from(
    [
        "model_type",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "intermediate_size",
        "vocab_size",
        "layer_types",
        "sliding_window",
        "num_experts",
        "num_experts_per_tok",
        "kv_lora_rank",
        "q_lora_rank",
        "text_config",
        "vision_config",
        "quantization_config",
        "attn_config",
        "ffn_config",
        "hybrid_override_pattern",
        "block_configs",
        "compress_ratios",
        "torch_dtype",
        "tie_word_embeddings",
        "first_k_dense_replace",
        "decoder_sparse_step",
        "attention_chunk_size",
        "architectures",
        "full_attention_interval",
        "cross_attention_layers",
        "mlp_only_layers",
        "expansion_ratio",
    ]
)
_FAMILIES = st.sampled_from(
    [
        "llama",
        "qwen2",
        "qwen3_moe",
        "deepseek_v3",
        "deepseek_v4",
        "gemma3",
        "gemma4",
        "llama4",
        "mllama",
        "mamba",
        "mamba2",
        "jamba",
        "nemotron_h",
        "nemotron-nas",
        "falcon",
        "falcon_h1",
        "chatglm",
        "gpt2",
        "opt",
        "mpt",
        "dbrx",
        "qwen3_next",
        "qwen3_5",
        "qwen2_vl",
        "kimi_k25",
        "unheard_of",
    ]
)
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 10**12),
    st.sampled_from([1, 2, 8, 64, 128, 4096]),
    st.floats(allow_nan=True),
    st.text(max_size=12),
    _FAMILIES,
    st.sampled_from(["full_attention", "fp8", "M-M*"]),
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=6), st.dictionaries(_KEYS | st.text(max_size=8), inner, max_size=8)
    ),
    max_leaves=20,
)
_PLAUSIBLE = st.fixed_dictionaries(
    {
        "model_type": _FAMILIES,
        "hidden_size": st.sampled_from([64, 256, 4096]),
        "num_hidden_layers": st.integers(1, 100),
        "num_attention_heads": st.sampled_from([1, 4, 8, 64]),
        "vocab_size": st.integers(1, 300_000),
        "intermediate_size": st.integers(1, 30_000),
    }
)


@settings(max_examples=80, deadline=2000, suppress_health_check=[HealthCheck.too_slow])
@given(base=_PLAUSIBLE, changes=st.dictionaries(_KEYS, _VALUES, max_size=8))
def test_any_config_gives_a_shape_or_a_shape_error(
    base: dict[str, Any], changes: dict[str, Any]
) -> None:
    try:
        shape = shape_from_config({**base, **changes})
    except ShapeError:
        return
    assert shape.params_total > 0
    assert 0 < shape.params_active <= shape.params_total
    assert shape.kv_bytes_per_token() >= shape.kv_bytes_per_token_growing() >= 0
    assert shape.weight_bytes("bf16") >= shape.params_total
    assert shape.summary()


@settings(max_examples=120, deadline=2000)
@given(st.binary(max_size=400) | st.text(max_size=400))
def test_any_bytes_give_a_dict_or_a_shape_error(text: str | bytes) -> None:
    try:
        config = parse_config_text(text)
    except ShapeError:
        return
    assert config
