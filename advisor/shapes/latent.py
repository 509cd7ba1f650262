"""Layers with multi-head latent attention, read in full, sparsely or compressed."""

from __future__ import annotations

from advisor.shapes.blocks import latent_attention, sparse_indexer
from advisor.shapes.decoder import (
    Dims,
    has_experts,
    mlp_part,
    norm_width,
    read_experts,
)
from advisor.shapes.fields import Fields
from advisor.shapes.model import LayerShape
from advisor.shapes.traits import Traits

LATENT_FAMILIES = frozenset(
    [
        "deepseek_v2",
        "deepseek_v3",
        "deepseek_v32",
        "kimi_k2",
        "minicpm3",
        "glm_moe_dsa",
        "glm4_moe_lite",
    ]
)


def uses_latent(fields: Fields, family: str) -> bool:
    """MLA is decided by its ranks, not by model_type: DeepSeek-V2 exists with `use_mla: false`."""
    if family not in LATENT_FAMILIES or not fields.flag("use_mla", True):
        return False
    return fields.opt_int("kv_lora_rank", minimum=0) not in (None, 0)


def latent_layers(fields: Fields, family: str, traits: Traits, dims: Dims) -> list[LayerShape]:
    kv_lora = fields.integer("kv_lora_rank")
    rope = fields.integer("qk_rope_head_dim", 64)
    nope = fields.integer("qk_nope_head_dim", 128)
    v_dim = fields.integer("v_head_dim", dims.hidden // dims.heads if family == "minicpm3" else 128)
    q_lora = fields.opt_int("q_lora_rank", minimum=0) or None
    linear, other = latent_attention(
        dims.hidden,
        dims.heads,
        q_lora=q_lora,
        kv_lora=kv_lora,
        nope=nope,
        rope=rope,
        v_dim=v_dim,
        bias=fields.flag("attention_bias", False),
    )
    index_heads = fields.opt_int("index_n_heads", minimum=0) or 0
    if index_heads and q_lora:
        more, extra = sparse_indexer(
            dims.hidden, q_lora, index_heads, fields.integer("index_head_dim", 128)
        )
        linear, other = linear + more, other + extra
    other += 2 * norm_width(traits, dims.hidden)
    experts = read_experts(fields, traits, dims, family)
    built: dict[bool, LayerShape] = {}
    result = []
    for index in range(dims.layers):
        moe = experts.present and has_experts(fields, index, dims)
        if moe not in built:
            rest = mlp_part(fields, traits, dims, experts, index, family)
            built[moe] = LayerShape(
                kind="mla",
                heads=dims.heads,
                kv_heads=1,
                qk_dim=nope + rope,
                v_dim=v_dim,
                kv_elements=kv_lora + rope,
                mixer_linear=linear,
                **{**rest, "other": rest.get("other", 0) + other},
            )
        result.append(built[moe])
    return result


def compressed_layers(fields: Fields, traits: Traits, dims: Dims) -> tuple[list[LayerShape], int]:
    """DeepSeek-V4 layers and the parameters of the final stream mixer.

    Each layer keeps one shared vector of head_dim per cached entry: a window in full, and one entry
    per `compress_ratios[i]` tokens beyond it (0: the window alone). What an engine stores lies
    between the two, so callers show bounds.
    """
    h, d = dims.hidden, dims.head_dim
    q_lora = fields.integer("q_lora_rank")
    groups, o_lora = fields.integer("o_groups", 8), fields.integer("o_lora_rank", 1024)
    index_heads = fields.integer("index_n_heads", 64, minimum=0)
    index_dim = fields.integer("index_head_dim", 128)
    streams = fields.integer("hc_mult", 4)
    experts = read_experts(fields, traits, dims, "deepseek_v4")
    ratios = fields.items("compress_ratios") or []
    if len(ratios) < dims.layers:
        raise fields.error(
            "compress_ratios",
            f"names {len(ratios)} layers where num_hidden_layers is {dims.layers}",
        )
    base = h * q_lora + q_lora * dims.heads * d + h * d
    base += dims.heads * d * o_lora + groups * o_lora * h
    mixer_rows = 2 * streams + streams * streams
    other = dims.heads + q_lora + d + 2 * h + 2 * (mixer_rows * (streams * h + 1) + 3)
    window = fields.integer("sliding_window", 128)
    built: dict[int, LayerShape] = {}
    result = []
    for index in range(dims.layers):
        ratio = ratios[index]
        if isinstance(ratio, bool) or not isinstance(ratio, int) or not 0 <= ratio <= 1 << 20:
            raise fields.error("compress_ratios", "must hold whole numbers of 0 or more")
        if ratio not in built:
            linear, extra = base, other
            # Ratio 4 layers overlap their blocks (double width) and select entries by an indexer.
            overlapped = 0 < ratio <= 4
            if ratio:
                width = 2 * d if overlapped else d
                linear += 2 * h * width
                extra += ratio * width + d
            if overlapped:
                wide = 2 * index_dim
                linear += 2 * h * wide + q_lora * index_heads * index_dim + h * index_heads
                extra += ratio * wide + index_dim
            rest = mlp_part(fields, traits, dims, experts, index, "deepseek_v4")
            built[ratio] = LayerShape(
                kind="compressed" if ratio else "sliding",
                heads=dims.heads,
                kv_heads=1,
                qk_dim=d,
                v_dim=d,
                kv_elements=d,
                window=window,
                compression=max(ratio, 1),
                mixer_linear=linear,
                **{**rest, "other": rest.get("other", 0) + extra},
            )
        result.append(built[ratio])
    return result, streams * (streams * h + 1) + 1
