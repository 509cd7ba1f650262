"""Parameters of the vision towers that ship inside multimodal checkpoints.

They cost memory but no KV cache and no decode work; counts follow the transformers 5.24 classes.
"""

from __future__ import annotations

from collections.abc import Callable

from advisor.shapes.fields import Fields


def _qwen2_vl(v: Fields, text_hidden: int) -> int:
    e, depth = v.integer("embed_dim", 1280), v.integer("depth", 32)
    ratio = v.integer("mlp_ratio", 4)
    out = v.integer("hidden_size", text_hidden)
    merge = v.integer("spatial_merge_size", 2) ** 2
    patch = 3 * v.integer("temporal_patch_size", 2) * v.integer("patch_size", 14) ** 2 * e
    block = 4 * e + 4 * e * e + 4 * e + 2 * ratio * e * e + ratio * e + e
    merged = merge * e
    return patch + depth * block + 2 * e + merged * merged + merged + merged * out + out


def _qwen2_5_vl(v: Fields, text_hidden: int) -> int:
    e, depth = v.integer("hidden_size", 1280), v.integer("depth", 32)
    width, out = v.integer("intermediate_size", 3420), v.integer("out_hidden_size", text_hidden)
    merged = v.integer("spatial_merge_size", 2) ** 2 * e
    patch = 3 * v.integer("temporal_patch_size", 2) * v.integer("patch_size", 14) ** 2 * e
    block = 2 * e + 4 * e * e + 4 * e + 3 * e * width + 2 * width + e
    return patch + depth * block + e + merged * merged + merged + merged * out + out


def _qwen3_vl(v: Fields, text_hidden: int) -> int:
    e, depth = v.integer("hidden_size", 1152), v.integer("depth", 27)
    width, out = v.integer("intermediate_size", 4304), v.integer("out_hidden_size", text_hidden)
    merged = v.integer("spatial_merge_size", 2) ** 2 * e
    patch = 3 * v.integer("temporal_patch_size", 2) * v.integer("patch_size", 16) ** 2 * e + e
    block = 4 * e + 4 * e * e + 4 * e + 2 * e * width + width + e
    merger = merged * merged + merged + merged * out + out
    deep = len(v.items("deepstack_visual_indexes") or [])
    positions = v.integer("num_position_embeddings", 2304) * e
    return patch + positions + depth * block + (merger + 2 * e) + deep * (merger + 2 * merged)


def _siglip_gemma3(v: Fields, text_hidden: int) -> int:
    e, depth = v.integer("hidden_size", 1152), v.integer("num_hidden_layers", 27)
    width, patch = v.integer("intermediate_size", 4304), v.integer("patch_size", 14)
    positions = (v.integer("image_size", 896) // patch) ** 2
    block = 4 * e + 4 * e * e + 4 * e + 2 * e * width + width + e
    tower = 3 * patch * patch * e + e + positions * e + depth * block + 2 * e
    return tower + e * text_hidden + e


def _gemma4(v: Fields, text_hidden: int) -> int:
    e, depth = v.integer("hidden_size", 1152), v.integer("num_hidden_layers", 27)
    width, head = v.integer("intermediate_size", 4304), v.integer("head_dim", 72)
    q = v.integer("num_attention_heads", 16) * head
    kv = v.integer("num_key_value_heads", 16) * head
    block = 2 * e * q + 2 * e * kv + 2 * head + 3 * e * width + 4 * e
    table = 2 * v.integer("position_embedding_size", 10_240) * e
    patch = 3 * v.integer("patch_size", 16) ** 2 * e
    # `standardize` holds a mean and a deviation as buffers, not parameters.
    return table + patch + depth * block + e * text_hidden


def _llama4(v: Fields, text_hidden: int) -> int:
    e, depth = v.integer("hidden_size", 1408), v.integer("num_hidden_layers", 34)
    width, patch = v.integer("intermediate_size", 5632), v.integer("patch_size", 14)
    positions = (v.integer("image_size", 336) // patch) ** 2 + 1
    out = v.integer("projector_output_dim", 4096)
    block = 4 * e * e + 4 * e + 2 * e * width + width + e + 4 * e
    tower = e + positions * e + e * 3 * patch * patch + 4 * e + depth * block
    adapter = v.integer("intermediate_size", 5632) * v.integer("projector_input_dim", 4096)
    adapter += v.integer("projector_input_dim", 4096) * out
    return tower + adapter + v.integer("vision_output_dim", 4096) * text_hidden


def _mllama(v: Fields, text_hidden: int) -> int:
    e, depth = v.integer("hidden_size", 1280), v.integer("num_hidden_layers", 32)
    deep, width = v.integer("num_global_layers", 8), v.integer("intermediate_size", 5120)
    patch, tiles = v.integer("patch_size", 14), v.integer("max_num_tiles", 4)
    positions = (v.integer("image_size", 448) // patch) ** 2 + 1
    ratios = len(v.items("supported_aspect_ratios") or [0] * 8) + 1
    block = 4 * e * e + 2 * e * width + width + e + 4 * e
    tower = e + 3 * patch * patch * e + 1 + positions * e + ratios * tiles * positions * e
    tower += 2 * (1 + ratios * tiles * e) + 4 * e
    tower += depth * block + deep * (block + 2)
    return tower + v.integer("vision_output_dim", 7680) * text_hidden + text_hidden


def _kimi(v: Fields, text_hidden: int) -> int:
    e, depth = v.integer("vt_hidden_size", 1152), v.integer("vt_num_hidden_layers", 27)
    width, patch = v.integer("vt_intermediate_size", 4304), v.integer("patch_size", 14)
    table = v.integer("init_pos_emb_height", 64) * v.integer("init_pos_emb_width", 64) * e
    block = 4 * e + 4 * e * e + 4 * e + 2 * e * width + width + e
    kernel = v.items("merge_kernel_size") or [2, 2]
    merged = v.integer("mm_hidden_size", e)
    for side in kernel[:2]:
        merged *= side if isinstance(side, int) and 0 < side <= 16 else 1
    projector = 2 * e + merged * merged + merged + merged * text_hidden + text_hidden
    return 3 * patch * patch * e + e + table + depth * block + 2 * e + projector


TOWERS: dict[str, Callable[[Fields, int], int]] = {
    "qwen2_vl": _qwen2_vl,
    "qwen2_5_vl": _qwen2_5_vl,
    "qwen3_vl": _qwen3_vl,
    "qwen3_vl_moe": _qwen3_vl,
    "qwen3_5": _qwen3_vl,
    "qwen3_5_moe": _qwen3_vl,
    "gemma3": _siglip_gemma3,
    "gemma4": _gemma4,
    "llama4": _llama4,
    "mllama": _mllama,
    "kimi_k25": _kimi,
}


def tower_params(model_type: str, config: Fields, text_hidden: int) -> int | None:
    """Parameters of a config's vision part; 0 without one, None when its class is not known."""
    vision = config.child("vision_config")
    if vision is None:
        return 0
    count = TOWERS.get(model_type)
    return None if count is None else count(vision, text_hidden)
