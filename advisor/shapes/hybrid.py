"""Layers of models that mix attention with linear attention or state-space layers, or have none."""

from __future__ import annotations

import math
from dataclasses import replace

from advisor.shapes.blocks import Recurrent, gated_delta_net, grouped_attention, mamba1, mamba2, mlp
from advisor.shapes.decoder import Dims, layer_kinds, mlp_part, norm_width, read_experts
from advisor.shapes.fields import Fields
from advisor.shapes.model import LayerShape
from advisor.shapes.traits import Traits


def delta_layers(fields: Fields, family: str, traits: Traits, dims: Dims) -> list[LayerShape]:
    """Qwen3-Next and Qwen3.5: gated DeltaNet with full attention every few layers."""
    if fields.items("layer_types") is None and fields.opt_int("full_attention_interval") is None:
        fields = Fields({**fields.config, "full_attention_interval": 4}, fields.prefix)
    linear, other = grouped_attention(
        dims.hidden,
        dims.heads,
        dims.kv_heads,
        dims.head_dim,
        qk_norm="head",
        gated_query=True,
        qkv_bias=fields.flag("attention_bias", False),
    )
    delta = gated_delta_net(
        dims.hidden,
        fields.integer("linear_num_key_heads", 16),
        fields.integer("linear_key_head_dim", 128),
        fields.integer("linear_num_value_heads", 32),
        fields.integer("linear_value_head_dim", 128),
        fields.integer("linear_conv_kernel_dim", 4),
    )
    experts = read_experts(fields, traits, dims, family)
    norms = 2 * norm_width(traits, dims.hidden)
    result = []
    for index, kind in enumerate(layer_kinds(fields, traits, dims)):
        rest = mlp_part(fields, traits, dims, experts, index, family)
        rest["other"] = rest.get("other", 0) + norms
        if kind == "linear":
            result.append(_recurrent("linear", delta, rest))
        else:
            rest["other"] += other
            result.append(_attention(dims, linear, rest))
    return result


def jamba_layers(fields: Fields, family: str, traits: Traits, dims: Dims) -> list[LayerShape]:
    """Jamba: Mamba-1 with one attention layer per period, experts every other layer."""
    linear, other = grouped_attention(dims.hidden, dims.heads, dims.kv_heads, dims.head_dim)
    inner = fields.integer("mamba_expand", 2) * dims.hidden
    mixer = mamba1(
        dims.hidden,
        inner,
        fields.integer("mamba_d_state", 16),
        _dt_rank(fields, "mamba_dt_rank", dims.hidden),
        fields.integer("mamba_d_conv", 4),
        conv_bias=fields.flag("mamba_conv_bias", True),
        norms=True,
    )
    experts = read_experts(fields, traits, dims, family)
    period = fields.integer("attn_layer_period", 8)
    offset = fields.integer("attn_layer_offset", 4, minimum=0)
    result = []
    for index in range(dims.layers):
        rest = mlp_part(fields, traits, dims, experts, index, family)
        rest["other"] = rest.get("other", 0) + 2 * dims.hidden
        if index % period == offset:
            rest["other"] += other
            result.append(_attention(dims, linear, rest))
        else:
            result.append(_recurrent("ssm", mixer, rest))
    return result


def mamba_layers(fields: Fields, family: str, hidden: int, layers: int) -> list[LayerShape]:
    """Pure Mamba-1 or Mamba-2 stacks: no attention, no KV cache."""
    state = fields.integer("state_size", 16 if family != "mamba2" else 128)
    conv = fields.integer("conv_kernel", 4)
    bias = fields.flag("use_conv_bias", True)
    if family == "mamba2":
        heads, dim = fields.integer("num_heads", 128), fields.integer("head_dim", 64)
        groups = fields.integer("n_groups", 8)
        mixer = mamba2(hidden, heads * dim, heads, dim, groups, state, conv, conv_bias=bias)
    else:
        inner = fields.opt_int("intermediate_size") or fields.integer("expand", 2) * hidden
        rank = _dt_rank(fields, "time_step_rank", hidden)
        mixer = mamba1(hidden, inner, state, rank, conv, conv_bias=bias)
    return [_recurrent("ssm", mixer, {"other": hidden})] * layers


def nemotron_h_layers(fields: Fields, traits: Traits, dims: Dims) -> list[LayerShape]:
    """Nemotron-H: one mixer per layer, spelled by `hybrid_override_pattern` (M, *, -, E)."""
    pattern = fields.text("hybrid_override_pattern")
    listed = fields.items("layers_block_type")
    if not pattern and listed is not None:
        names = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}
        pattern = "".join(names.get(str(name), "?") for name in listed)
    if len(pattern) < dims.layers or set(pattern) - set("M*-E|"):
        raise fields.error(
            "hybrid_override_pattern",
            f"must spell {dims.layers} layers with M (Mamba), * (attention), - (MLP), E (experts)",
        )
    linear, other = grouped_attention(dims.hidden, dims.heads, dims.kv_heads, dims.head_dim)
    heads, dim = fields.integer("mamba_num_heads"), fields.integer("mamba_head_dim")
    mixer = mamba2(
        dims.hidden,
        heads * dim,
        heads,
        dim,
        fields.integer("n_groups", 8),
        fields.integer("ssm_state_size", 128),
        fields.integer("conv_kernel", 4),
        conv_bias=fields.flag("use_conv_bias", True),
    )
    dense, _ = mlp(dims.hidden, dims.width, gated=traits.gated)
    experts = read_experts(fields, traits, dims, "nemotron_h")
    kinds = {
        "M": _recurrent("ssm", mixer, {"other": dims.hidden}),
        "*": _attention(dims, linear, {"other": other + dims.hidden}),
        "-": LayerShape("none", mlp_linear=dense, other=dims.hidden),
        "E": LayerShape(
            "none",
            expert_params=experts.expert_params,
            experts=experts.count,
            experts_per_token=experts.per_token,
            router=experts.router,
            shared_linear=experts.shared_linear,
            other=dims.hidden,
        ),
    }
    return [kinds[char] for char in pattern.replace("|", "")[: dims.layers]]


def falcon_h1_layers(fields: Fields, traits: Traits, dims: Dims) -> list[LayerShape]:
    """Falcon-H1: attention and Mamba-2 side by side in every layer."""
    linear, other = grouped_attention(
        dims.hidden,
        dims.heads,
        dims.kv_heads,
        dims.head_dim,
        qkv_bias=fields.flag("attention_bias", False),
        o_bias=fields.flag("attention_bias", False),
    )
    heads = fields.integer("mamba_n_heads")
    dim = fields.integer("mamba_d_head", 64)
    # The published width is heads × head size; mamba_expand × hidden is not what runs.
    inner = fields.opt_int("mamba_d_ssm") or heads * dim
    mixer = mamba2(
        dims.hidden,
        inner,
        heads,
        dim,
        fields.integer("mamba_n_groups", 1),
        fields.integer("mamba_d_state", 256),
        fields.integer("mamba_d_conv", 4),
        norm=fields.flag("mamba_rms_norm", False),
        conv_bias=fields.flag("mamba_conv_bias", True),
    )
    dense, bias = mlp(dims.hidden, dims.width, gated=True, bias=fields.flag("mlp_bias", False))
    layer = _attention(dims, linear + mixer.linear, {"mlp_linear": dense})
    return [
        replace(
            layer,
            kind="parallel",
            state_elements=mixer.state,
            other=other + mixer.other + bias + 2 * dims.hidden,
        )
    ] * dims.layers


def nas_layers(fields: Fields, hidden: int, heads: int, head_dim: int) -> list[LayerShape]:
    """Nemotron-NAS (DeciLM): attention and MLP sizes differ, or are absent, per layer."""
    blocks = fields.items("block_configs") or []
    result = []
    for index, block in enumerate(blocks):
        level = Fields(
            block if isinstance(block, dict) else {}, f"{fields.prefix}block_configs[{index}]."
        )
        attention, ffn = level.child("attention"), level.child("ffn")
        if attention is None or ffn is None:
            raise fields.error("block_configs", f"entry {index} needs attention and ffn")
        layer = LayerShape("none")
        if not attention.flag("no_op", False) and not attention.flag("replace_with_linear", False):
            group = attention.integer("n_heads_in_group")
            if heads % group:
                raise attention.error("n_heads_in_group", f"{group} does not divide {heads} heads")
            kv = heads // group
            linear, other = grouped_attention(hidden, heads, kv, head_dim)
            layer = LayerShape(
                "full",
                heads=heads,
                kv_heads=kv,
                qk_dim=head_dim,
                v_dim=head_dim,
                kv_elements=2 * kv * head_dim,
                mixer_linear=linear,
                other=other + hidden,
            )
        elif attention.flag("replace_with_linear", False):
            layer = LayerShape("none", mixer_linear=hidden * hidden, other=hidden)
        if ffn.flag("replace_with_linear", False):
            layer = replace(layer, mlp_linear=hidden * hidden, other=layer.other + hidden)
        elif not ffn.flag("no_op", False):
            width = _nas_width(ffn, hidden)
            layer = replace(layer, mlp_linear=3 * hidden * width, other=layer.other + hidden)
        result.append(layer)
    return result


def _nas_width(ffn: Fields, hidden: int) -> int:
    explicit = ffn.opt_int("intermediate_size")
    if explicit is not None:
        return explicit
    factor = ffn.config.get("ffn_mult")
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < 64:
        raise ffn.error("ffn_mult", "must be a number between 0 and 64")
    # Rounded up to a multiple of 256, as the DeciLM class does.
    return math.ceil(int(2 * factor * hidden / 3) / 256) * 256


def _dt_rank(fields: Fields, name: str, hidden: int) -> int:
    if fields.config.get(name) in (None, "auto"):
        return math.ceil(hidden / 16)
    return fields.integer(name)


def _attention(dims: Dims, linear: int, rest: dict[str, int]) -> LayerShape:
    return LayerShape(
        kind="full",
        heads=dims.heads,
        kv_heads=dims.kv_heads,
        qk_dim=dims.head_dim,
        v_dim=dims.head_dim,
        kv_elements=2 * dims.kv_heads * dims.head_dim,
        mixer_linear=linear,
        **rest,
    )


def _recurrent(kind: str, mixer: Recurrent, rest: dict[str, int]) -> LayerShape:
    other = rest.get("other", 0) + mixer.other
    return LayerShape(
        kind=kind,
        state_elements=mixer.state,
        mixer_linear=mixer.linear,
        **{**rest, "other": other},
    )
