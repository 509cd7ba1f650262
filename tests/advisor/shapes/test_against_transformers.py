"""Closed-form counts against the transformers classes, built small on the meta device.

Covers families and switches that the model index does not hold; skipped without torch.
"""

from __future__ import annotations

from typing import Any

import pytest

from advisor.shapes import shape_from_config

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
torch = pytest.importorskip("torch", reason="torch is not installed")

BASE: dict[str, Any] = {
    "hidden_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "intermediate_size": 160,
    "vocab_size": 512,
    "max_position_embeddings": 256,
}
MOE = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
CASES: dict[str, dict[str, Any]] = {
    "llama with biases": {"model_type": "llama", "attention_bias": True, "mlp_bias": True},
    "llama tied": {"model_type": "llama", "tie_word_embeddings": True},
    "mistral": {"model_type": "mistral", "head_dim": 32, "sliding_window": 64},
    "mixtral": {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2": {"model_type": "qwen2"},
    "qwen2_moe": {"model_type": "qwen2_moe", **MOE, "shared_expert_intermediate_size": 64},
    "qwen3": {"model_type": "qwen3", "head_dim": 24},
    "qwen3_moe": {"model_type": "qwen3_moe", "head_dim": 24, **MOE, "mlp_only_layers": [1]},
    "gemma": {"model_type": "gemma", "head_dim": 24},
    "gemma2": {"model_type": "gemma2", "head_dim": 24},
    "gemma3": {"model_type": "gemma3_text", "head_dim": 24},
    "phi": {"model_type": "phi"},
    "phi3": {"model_type": "phi3", "pad_token_id": 0},
    "gpt2": {"model_type": "gpt2", "n_embd": 96, "n_head": 6, "n_layer": 3, "n_positions": 256},
    "gpt_neox": {"model_type": "gpt_neox"},
    "gpt_bigcode": {
        "model_type": "gpt_bigcode",
        "n_embd": 96,
        "n_head": 6,
        "n_layer": 3,
        "n_positions": 256,
        "n_inner": 160,
    },
    "bloom": {"model_type": "bloom", "n_head": 6, "n_layer": 3},
    "opt": {"model_type": "opt", "ffn_dim": 160, "word_embed_proj_dim": 96, "pad_token_id": 1},
    "falcon": {"model_type": "falcon", "new_decoder_architecture": True, "num_kv_heads": 2},
    "falcon multi-query": {"model_type": "falcon", "multi_query": True},
    "starcoder2": {"model_type": "starcoder2"},
    "stablelm": {"model_type": "stablelm", "use_qkv_bias": True},
    "cohere": {"model_type": "cohere"},
    "olmo2": {"model_type": "olmo2"},
    "granite": {"model_type": "granite"},
    "glm4": {"model_type": "glm4", "head_dim": 16, "attention_bias": True, "pad_token_id": 0},
    "glm4_moe": {
        "model_type": "glm4_moe",
        "head_dim": 16,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 48,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
        "attention_bias": True,
        "use_qk_norm": True,
    },
    "gpt_oss": {"model_type": "gpt_oss", "head_dim": 16, "num_local_experts": 4},
    "smollm3": {"model_type": "smollm3", "pad_token_id": 0},
    "deepseek_v3 without query rank": {
        "model_type": "deepseek_v3",
        "q_lora_rank": None,
        "n_shared_experts": 1,
        "kv_lora_rank": 32,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
        "n_routed_experts": 8,
        "n_group": 1,
        "topk_group": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 48,
        "first_k_dense_replace": 1,
        "num_key_value_heads": 6,
    },
    "exaone4": {"model_type": "exaone4", "head_dim": 16},
    "seed_oss is not known and bounded": {"model_type": "seed_oss", "head_dim": 16},
}


def _count(config: dict[str, Any]) -> int:
    """Parameters of the causal language model, one per tied tensor."""
    kind = transformers.CONFIG_MAPPING[config["model_type"]]
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(kind.from_dict(dict(config)))
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", CASES)
def test_the_closed_form_equals_the_class(name: str) -> None:
    config = {**BASE, **CASES[name]}
    if config["model_type"] in ("gpt2", "gpt_bigcode", "bloom", "opt", "falcon"):
        # These classes read other keys for the width, and four times hidden without them.
        del config["intermediate_size"]
    if config["model_type"] not in transformers.CONFIG_MAPPING:
        pytest.skip(f"this transformers has no {config['model_type']}")
    counted = _count(config)
    shape = shape_from_config(config)
    if shape.known:
        assert shape.params_total == counted
    else:
        assert shape.params_bounds is not None
        low, high = shape.params_bounds
        assert low <= counted <= 1.02 * high
