"""Layers of ordinary decoders: MHA / GQA / MQA with dense or expert MLPs, windows and chunks."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.shapes.blocks import grouped_attention, mlp
from advisor.shapes.errors import ShapeError
from advisor.shapes.fields import Fields
from advisor.shapes.model import LayerShape
from advisor.shapes.traits import Traits

_WINDOWED = {"sliding_attention", "chunked_attention", "sliding", "local", "chunked"}
_FULL = {"full_attention", "full", "global", "attention"}
_LINEAR = {"linear_attention", "linear"}


@dataclass(frozen=True, slots=True)
class Dims:
    """The widths every builder needs, already checked against each other."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    width: int  # dense MLP
    context: int | None


def read_dims(fields: Fields, family: str, traits: Traits) -> Dims:
    hidden = fields.integer("hidden_size")
    layers = fields.integer("num_hidden_layers")
    heads = fields.integer("num_attention_heads")
    kv_heads = _kv_heads(fields, family, traits, heads)
    head_dim = fields.opt_int("head_dim")
    if head_dim is None:
        if hidden % heads:
            raise fields.error(
                "num_attention_heads",
                f"{heads} does not divide hidden_size {hidden}, and head_dim is missing; add it",
            )
        head_dim = hidden // heads
    if heads % kv_heads:
        raise fields.error(
            "num_key_value_heads",
            f"{kv_heads} does not divide the {heads} attention heads; correct one of the two",
        )
    return Dims(
        hidden, layers, heads, kv_heads, head_dim, _width(fields, traits, hidden), _context(fields)
    )


def _kv_heads(fields: Fields, family: str, traits: Traits, heads: int) -> int:
    if traits.single_kv:
        # Falcon: num_kv_heads counts only in the new architecture; multi_query means one head.
        if family == "falcon" and fields.flag("new_decoder_architecture", False):
            return fields.integer("num_key_value_heads", heads)
        return 1 if fields.flag("multi_query", True) else heads
    if family in ("gpt2", "gpt_neox", "bloom", "opt"):
        return heads  # these classes know no grouped heads, whatever the config says
    if family == "chatglm" and not fields.flag("multi_query_attention", False):
        return heads
    nested = fields.child("attn_config")
    if nested is not None and nested.opt_int("kv_n_heads") is not None:
        return nested.integer("kv_n_heads")
    return fields.integer("num_key_value_heads", heads)


def _width(fields: Fields, traits: Traits, hidden: int) -> int:
    nested = fields.child("ffn_config")
    if nested is not None:
        return nested.integer("ffn_hidden_size")
    ratio = fields.opt_int("expansion_ratio")
    width = fields.opt_int("intermediate_size")
    if width is None and ratio is not None:
        width = ratio * hidden
    if width is None and traits.mlp_factor is not None:
        width = traits.mlp_factor * hidden
    if width is None:
        width = fields.opt_int("moe_intermediate_size")
    if width is None:
        raise fields.error("intermediate_size", "is missing; add the width of the MLP")
    return width // 2 if traits.mlp_halved else width


def _context(fields: Fields) -> int | None:
    return fields.opt_int("max_position_embeddings")


def layer_kinds(fields: Fields, traits: Traits, dims: Dims) -> list[str]:
    """Attention kind per layer: full, sliding, chunked or linear."""
    listed = fields.items("layer_types")
    if listed is not None:
        if len(listed) < dims.layers:
            raise fields.error(
                "layer_types",
                f"names {len(listed)} layers where num_hidden_layers is {dims.layers}",
            )
        return [_kind(fields, name) for name in listed[: dims.layers]]
    interval = fields.opt_int("full_attention_interval")
    if interval is not None and traits.gated_query:
        return ["full" if (i + 1) % interval == 0 else "linear" for i in range(dims.layers)]
    if traits.window == "chunked":
        listed = fields.items("no_rope_layers")
        if listed and len(listed) >= dims.layers:
            return ["chunked" if rope else "full" for rope in listed[: dims.layers]]
        step = fields.integer("no_rope_layer_interval", 4)
        return ["full" if (i + 1) % step == 0 else "chunked" for i in range(dims.layers)]
    if fields.opt_int("sliding_window") is None or not traits.window:
        return ["full"] * dims.layers
    if traits.window == "all":
        return ["sliding"] * dims.layers
    if traits.window == "late":
        # Qwen2: off unless use_sliding_window; then only from max_window_layers on.
        first = fields.integer("max_window_layers", dims.layers, minimum=0)
        on = fields.flag("use_sliding_window", False)
        return ["sliding" if on and i >= first else "full" for i in range(dims.layers)]
    if traits.window == "alternate":
        return ["full" if i % 2 else "sliding" for i in range(dims.layers)]
    default = 4 if traits.window == "pattern4" else 6
    pattern = fields.integer("sliding_window_pattern", default)
    return ["full" if (i + 1) % pattern == 0 else "sliding" for i in range(dims.layers)]


def _kind(fields: Fields, entry: object) -> str:
    name = entry if isinstance(entry, str) else ""
    if name in _FULL:
        return "full"
    if name in _LINEAR:
        return "linear"
    if name in _WINDOWED:
        return "chunked" if "chunked" in name else "sliding"
    raise fields.error(
        "layer_types",
        f"holds {str(entry)[:40]!r}; known are full_attention, sliding_attention, "
        "chunked_attention and linear_attention",
    )


@dataclass(frozen=True, slots=True)
class Experts:
    """The expert part of a config: which layers have it, and one layer's sizes."""

    count: int
    per_token: int
    expert_params: int
    router: int
    shared_linear: int
    other: int

    @property
    def present(self) -> bool:
        return self.count > 0


NO_EXPERTS = Experts(0, 0, 0, 0, 0, 0)


def read_experts(fields: Fields, traits: Traits, dims: Dims, family: str) -> Experts:
    """Expert sizes, or `NO_EXPERTS` for a dense config."""
    nested = fields.child("ffn_config")
    source = nested if nested is not None else fields
    count = source.opt_int("num_experts", minimum=0) or 0
    if count <= 1 or (family == "gemma4" and not fields.flag("enable_moe_block", False)):
        return NO_EXPERTS
    per_token = source.integer("num_experts_per_tok", 2)
    if per_token > count:
        raise source.error(
            "num_experts_per_tok", f"{per_token} is more than the {count} experts there are"
        )
    width = fields.opt_int("moe_intermediate_size") or dims.width
    linear, bias = mlp(dims.hidden, width, gated=traits.gated, bias=traits.expert_bias)
    router = dims.hidden * count + (count if traits.router_bias else 0)
    shared_width = fields.opt_int("shared_expert_intermediate_size", minimum=0) or 0
    shared_width += fields.opt_int("moe_shared_expert_intermediate_size", minimum=0) or 0
    if family == "llama4":
        shared_width = dims.width
    shared_count = fields.opt_int("n_shared_experts", minimum=0)
    if shared_count is None:
        shared_count = fields.opt_int("num_shared_experts", minimum=0)
    if shared_count and not shared_width:
        shared_width = shared_count * width
    shared, _ = mlp(dims.hidden, shared_width, gated=traits.gated)
    gate = dims.hidden if fields.opt_int("shared_expert_intermediate_size") else 0
    if family == "gemma4":
        # A router scale, a scale per expert, and three more norms around the two MLPs.
        return Experts(count, per_token, linear, router + dims.hidden + count, 0, 3 * dims.hidden)
    return Experts(count, per_token, linear + bias, router + gate, shared, 0)


def has_experts(fields: Fields, index: int, dims: Dims) -> bool:
    """Whether layer `index` of a config with experts uses them."""
    if index in (fields.items("mlp_only_layers") or ()):
        return False
    listed = fields.items("moe_layers")
    if listed is not None and fields.opt_int("interleave_moe_layer_step") is not None:
        return index in listed
    first = fields.opt_int("first_k_dense_replace", minimum=0)
    if first is not None:
        frequency = fields.opt_int("moe_layer_freq") or 1
        return index >= first and index % frequency == 0
    period = fields.opt_int("expert_layer_period")
    if period is not None:
        return index % period == fields.integer("expert_layer_offset", 0, minimum=0)
    step = fields.opt_int("decoder_sparse_step") or fields.opt_int("interleave_moe_layer_step") or 1
    return (index + 1) % step == 0


def norm_width(traits: Traits, hidden: int) -> int:
    return {"layer": 2 * hidden, "none": 0}.get(traits.norm, hidden)


def mlp_part(
    fields: Fields, traits: Traits, dims: Dims, experts: Experts, index: int, family: str
) -> dict[str, int]:
    """The MLP fields of one LayerShape."""
    bias = (
        traits.mlp_bias or fields.flag("mlp_bias", False) or fields.flag("add_bias_linear", False)
    )
    if family == "falcon":
        bias = fields.flag("bias", False)
    expert_layer = experts.present and (family == "gemma4" or has_experts(fields, index, dims))
    part: dict[str, int] = {}
    if expert_layer:
        part = {
            "expert_params": experts.expert_params,
            "experts": experts.count,
            "experts_per_token": experts.per_token,
            "router": experts.router,
            "shared_linear": experts.shared_linear,
            "other": experts.other,
        }
    if not expert_layer or family == "gemma4":
        width = dims.width
        if family == "llama4":
            width = fields.opt_int("intermediate_size_mlp") or width
        part["mlp_linear"], other = mlp(dims.hidden, width, gated=traits.gated, bias=bias)
        part["other"] = part.get("other", 0) + other
    return part


def attention_layers(fields: Fields, family: str, traits: Traits, dims: Dims) -> list[LayerShape]:
    """All layers of an ordinary decoder."""
    experts = read_experts(fields, traits, dims, family)
    norms = (1 if family == "falcon" else traits.norms) * norm_width(traits, dims.hidden)
    if family == "falcon" and (
        fields.flag("new_decoder_architecture", False) or not fields.flag("parallel_attn", True)
    ):
        norms *= 2
    qkv, out = _biases(fields, family, traits)
    qk_norm = traits.qk_norm
    if family in ("cohere", "cohere2", "minimax_m2", "glm4_moe"):
        on = fields.flag("use_qk_norm", family == "minimax_m2")
        qk_norm = ("head" if family == "glm4_moe" else "full") if on else ""
    chunk = fields.opt_int("attention_chunk_size") or 8192
    window = fields.opt_int("sliding_window") or 4096
    cross = {i for i in fields.items("cross_attention_layers") or () if isinstance(i, int)}
    built: dict[tuple[str, bool], LayerShape] = {}
    result = []
    for index, kind in enumerate(layer_kinds(fields, traits, dims)):
        if kind == "linear":
            raise ShapeError(
                f"{fields.prefix}layer_types",
                f"names linear attention, which is not known for model_type {family}",
            )
        key_kind = "cross" if index in cross else kind
        key = (key_kind, experts.present and has_experts(fields, index, dims))
        if key not in built:
            heads, kv, dim, values = dims.heads, dims.kv_heads, dims.head_dim, True
            if family == "gemma4" and kind == "full":
                dim = fields.integer("global_head_dim", dim)
                if fields.flag("attention_k_eq_v", False):
                    kv, values = fields.integer("num_global_key_value_heads", kv), False
            linear, other = grouped_attention(
                dims.hidden,
                heads,
                kv,
                dim,
                qkv_bias=qkv,
                o_bias=out,
                qk_norm="head" if key_kind == "cross" else qk_norm,
                gated_query=traits.gated_query,
                values=values,
                sinks=traits.sinks,
            )
            rest = mlp_part(fields, traits, dims, experts, index, family)
            limit = {"sliding": window, "chunked": chunk}.get(kind)
            if limit is not None and dims.context is not None and limit >= dims.context:
                limit = None  # a window as long as the context never drops a token
            built[key] = LayerShape(
                kind=key_kind if limit is not None or key_kind == "cross" else "full",
                heads=heads,
                kv_heads=kv,
                qk_dim=dim,
                v_dim=dim,
                kv_elements=0 if key_kind == "cross" else 2 * kv * dim,
                window=limit,
                mixer_linear=linear,
                **{
                    **rest,
                    "other": rest.get("other", 0)
                    + other
                    + norms
                    + (2 if key_kind == "cross" else 0),
                },
            )
        result.append(built[key])
    return result


def _biases(fields: Fields, family: str, traits: Traits) -> tuple[bool, bool]:
    """Whether the qkv and the output projection carry a bias."""
    if family == "chatglm":
        linear = fields.flag("add_bias_linear", False)
        return fields.flag("add_qkv_bias", True) or linear, linear
    if family == "molmo":
        return fields.flag("qkv_bias", True), False
    if not traits.bias_key:
        return traits.qkv_bias, traits.o_bias
    if traits.bias_key not in fields.config:
        return traits.qkv_bias, traits.o_bias
    on = fields.flag(traits.bias_key, False)
    both = on and family not in ("stablelm", "qwen3_next", "glm4_moe")
    if traits.qkv_bias and family in ("qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl"):
        return True, False
    return on, both
