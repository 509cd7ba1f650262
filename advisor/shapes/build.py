"""`shape_from_config`: the dict of a config.json, companions merged, to a `ModelShape`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from advisor.shapes import hybrid, latent
from advisor.shapes.decoder import Dims, attention_layers, norm_width, read_dims
from advisor.shapes.errors import ShapeError
from advisor.shapes.fields import Fields
from advisor.shapes.model import LayerShape, ModelShape, group_layers, human_count
from advisor.shapes.quant import read_quantisation
from advisor.shapes.traits import ENCODER_DECODERS, ENCODERS, TRAITS, Traits, family_of
from advisor.shapes.vision import tower_params

_TEXT_KEYS = ("text_config", "language_config", "llm_config", "text_model_config")
_INHERITED = ("torch_dtype", "dtype", "tie_word_embeddings", "vocab_size")


def shape_from_config(config: Mapping[str, Any]) -> ModelShape:
    """The shape of the language model a config describes.

    `config` is the parsed config.json; `hf_quant_config` may hold the companion file of that name.
    Counts are exact for the families in `traits.TRAITS`; any other decoder gives bounds, notes and
    `known=False`. Raises `ShapeError` naming the key for everything that is not a causal language
    model or does not add up.
    """
    if not isinstance(config, Mapping):
        raise ShapeError("config", "must be an object with keys such as hidden_size")
    _refuse_other_kinds(config)
    top = Fields(config)
    text = _text_part(top)
    model_type = text.text("model_type") or top.text("model_type")
    family = family_of(model_type) if model_type else _family_by_class(top)
    traits = TRAITS.get(family)
    notes: list[str] = []
    if traits is None:
        traits = Traits()
        label = model_type or "missing"
        notes.append(
            f"model_type {label} is not known: read as a Llama-like decoder, so parameters are "
            "bounds and the KV cache holds only if every layer keeps plain attention"
        )
    known = family in TRAITS
    layers, extra, dims = _layers(text, family, traits, known)
    vocab = text.integer("vocab_size", traits.vocab)
    embedding, head, tied = _tables(top, text, family, traits, dims, vocab)
    vision = tower_params(
        family_of(top.text("model_type")) if family != "kimi_k2" else "kimi_k25", top, dims.hidden
    )
    if vision is None:
        notes.append("the vision tower of this family is not counted; it adds weights, no KV cache")
        vision = 0
    final = 0 if traits.norm == "none" else norm_width(traits, dims.hidden)
    if traits.embed_norm:
        final *= 2
    outside = final + extra + (vocab if traits.head_bias and not tied else 0)
    total = embedding + head + vision + outside + sum(layer.params for layer in layers)
    idle = sum((layer.experts - layer.experts_per_token) * layer.expert_params for layer in layers)
    cached = [layer for layer in layers if layer.has_cache]
    main = max(cached, key=lambda layer: layer.kv_heads, default=None)
    latent_model = main is not None and main.kind == "mla"
    quant = read_quantisation({**config, **text.config})
    if quant is not None and not quant.loadable:
        notes.append(f"{quant.method} weights load in neither vLLM nor SGLang")
    notes += _notes(top, text, family, layers, quant is not None)
    shape = ModelShape(
        family=family,
        architecture=_architecture(top, text),
        layers=len(layers),
        hidden_size=dims.hidden,
        heads=dims.heads if cached else 0,
        kv_heads=main.kv_heads if main else 0,
        head_dim=(main.kv_elements if latent_model else main.qk_dim) if main else 0,
        intermediate_size=dims.width,
        vocab_size=vocab,
        max_context=dims.context,
        params_total=total,
        params_active=total - idle,
        params_embedding=embedding,
        params_head=head,
        params_vision=vision,
        tied=tied,
        attention=_attention_label(layers, family, dims),
        groups=group_layers(layers),
        torch_dtype=_dtype(top, text),
        quant=quant,
        sparse_topk=text.opt_int("index_topk", minimum=0) or None,
        known=known,
        notes=tuple(notes),
    )
    return shape if known else replace(shape, params_bounds=_bounds(shape, text))


def _refuse_other_kinds(config: Mapping[str, Any]) -> None:
    name = config.get("_class_name")
    if isinstance(name, str) or "_diffusers_version" in config:
        raise ShapeError(
            "_class_name",
            f"{str(name)[:60]} is a diffusion pipeline; submit the config of a language model",
        )
    model_type = config.get("model_type")
    kind = model_type.lower() if isinstance(model_type, str) else ""
    decoder = config.get("is_decoder") is True
    if kind in ENCODERS and not decoder:
        raise ShapeError(
            "model_type",
            f"{kind} is an encoder, which generates no tokens; submit a causal language model",
        )
    if kind in ENCODER_DECODERS or config.get("is_encoder_decoder") is True:
        raise ShapeError(
            "model_type",
            f"{kind or 'this model'} is an encoder-decoder; only decoder models are estimated",
        )


def _text_part(top: Fields) -> Fields:
    """The level that describes the language model, with what it inherits from the top level."""
    for key in _TEXT_KEYS:
        child = top.child(key)
        if child is not None and child.config:
            inherited = {k: top.config[k] for k in _INHERITED if k in top.config}
            return Fields({**inherited, **child.config}, child.prefix)
    thinker = top.child("thinker_config")
    return _text_part(thinker) if thinker is not None else top


def _family_by_class(top: Fields) -> str:
    """A config without model_type, by its class name: LlamaForCausalLM → llama."""
    name = _architecture(top, top).lower()
    for suffix in ("forcausallm", "lmheadmodel", "forconditionalgeneration", "model"):
        name = name.removesuffix(suffix)
    plain = {family.replace("_", ""): family for family in TRAITS}
    return plain.get(name, "")


def _architecture(top: Fields, text: Fields) -> str:
    for level in (top, text):
        listed = level.items("architectures")
        if listed and isinstance(listed[0], str):
            return listed[0]
    return ""


def _layers(
    text: Fields, family: str, traits: Traits, known: bool
) -> tuple[list[LayerShape], int, Dims]:
    """Layers, parameters outside them that only this family has, and the widths."""
    if family in ("mamba", "falcon_mamba", "mamba2"):
        hidden, count = text.integer("hidden_size"), text.integer("num_hidden_layers")
        context = text.opt_int("max_position_embeddings")
        dims = Dims(hidden, count, 0, 0, 0, 0, context)
        return hybrid.mamba_layers(text, family, hidden, count), 0, dims
    if family == "nemotron_nas":
        heads, hidden = text.integer("num_attention_heads"), text.integer("hidden_size")
        head_dim = text.opt_int("head_dim") or hidden // heads
        layers = hybrid.nas_layers(text, hidden, heads, head_dim)
        if not layers:
            raise text.error("block_configs", "is missing; it holds the layers of this family")
        context = text.opt_int("max_position_embeddings")
        return layers, 0, Dims(hidden, len(layers), heads, 1, head_dim, 0, context)
    if not known and text.opt_int("intermediate_size") is None:
        traits = replace(traits, mlp_factor=4)
    dims = read_dims(text, family, traits)
    if family == "deepseek_v4":
        layers, extra = latent.compressed_layers(text, traits, dims)
        return layers, extra, dims
    if latent.uses_latent(text, family):
        return latent.latent_layers(text, family, traits, dims), 0, dims
    builders: dict[str, Callable[[Fields, str, Traits, Dims], list[LayerShape]]] = {
        "qwen3_next": hybrid.delta_layers,
        "qwen3_5": hybrid.delta_layers,
        "qwen3_5_moe": hybrid.delta_layers,
        "jamba": hybrid.jamba_layers,
    }
    if family in builders:
        return builders[family](text, family, traits, dims), 0, dims
    if family == "nemotron_h":
        return hybrid.nemotron_h_layers(text, traits, dims), 0, dims
    if family == "falcon_h1":
        return hybrid.falcon_h1_layers(text, traits, dims), 0, dims
    return attention_layers(text, family, traits, dims), 0, dims


def _tables(
    top: Fields, text: Fields, family: str, traits: Traits, dims: Dims, vocab: int
) -> tuple[int, int, bool]:
    """Embedding rows × width, output matrix, and whether the two are one tensor."""
    rows = vocab + (8 if family == "mllama" else 0)  # eight image tokens
    width = text.opt_int("word_embed_proj_dim") or dims.hidden
    embedding = rows * width
    if width != dims.hidden:
        embedding += 2 * width * dims.hidden
    if family == "molmo":
        embedding += (text.opt_int("additional_vocab_size") or 128) * dims.hidden
    if traits.positions is not None:
        embedding += ((dims.context or 0) + traits.positions) * dims.hidden
    tied = traits.tied
    for level in (top, text):
        if level.config.get("tie_word_embeddings") is not None:
            tied = level.flag("tie_word_embeddings", tied)
    return embedding, 0 if tied else vocab * width, tied


def _attention_label(layers: list[LayerShape], family: str, dims: Dims) -> str:
    cached = [layer for layer in layers if layer.has_cache]
    if not cached:
        return "SSM (no attention)"
    if family == "deepseek_v4":
        return "compressed sparse attention, one shared KV head"
    if cached[0].kind == "mla":
        return "MLA"
    kv = max(layer.kv_heads for layer in cached)
    plain = "MHA" if kv == dims.heads else ("MQA" if kv == 1 else "GQA")
    kinds = {layer.kind for layer in layers}
    if "parallel" in kinds:
        return f"hybrid {plain} + Mamba-2 in parallel in each layer"
    if "linear" in kinds:
        return f"hybrid {plain} + gated DeltaNet"
    if "ssm" in kinds:
        return f"hybrid {plain} + {'Mamba-1' if family == 'jamba' else 'Mamba-2'}"
    if "chunked" in kinds:
        return f"{plain} + chunked"
    return f"{plain} + sliding window" if "sliding" in kinds else plain


def _dtype(top: Fields, text: Fields) -> str:
    for level in (text, top):
        for key in ("torch_dtype", "dtype"):
            value = level.config.get(key)
            if isinstance(value, str) and value:
                return value.removeprefix("torch.")[:40]
    return "unknown"


def _notes(
    top: Fields, text: Fields, family: str, layers: list[LayerShape], quantised: bool
) -> list[str]:
    notes: list[str] = []
    if family == "deepseek_v4":
        notes.append(
            "KV bytes per token are bounds, architecture not fully modelled: most layers store one "
            "entry per 4 or 128 tokens"
        )
    if any(layer.kind == "cross" for layer in layers):
        count = sum(layer.kind == "cross" for layer in layers)
        notes.append(
            f"{count} cross-attention layers read the image once and add no cache per token"
        )
    mtp = _first_int(text, "num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers")
    if mtp:
        notes.append(
            f"the checkpoint also holds {mtp} MTP module{'s' if mtp > 1 else ''}, loaded only for "
            "speculative decoding and not counted here"
        )
    if text.opt_int("index_topk", minimum=0) and family != "deepseek_v4":
        width = text.opt_int("index_head_dim") or 128
        notes.append(
            f"the sparse indexer caches {width} more 8-bit values per token and layer, and decode "
            f"reads at most {text.integer('index_topk')} tokens per layer in full"
        )
    dense = [layer for layer in layers if layer.kind == "full"]
    if (
        dense
        and all(8 < layer.kv_heads == layer.heads for layer in dense)
        and len(dense) == len(layers)
    ):
        notes.append(
            "this model has no grouped attention: its KV cache is 4 to 10 times its peers'"
        )
    if not quantised and any(
        mark in str(top.config.get("_name_or_path", "")).lower() for mark in ("fp8", "nvfp4", "awq")
    ):
        notes.append("the name says quantised but the config does not; add hf_quant_config.json")
    return notes


def _first_int(fields: Fields, *names: str) -> int:
    for name in names:
        value = fields.config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 0


def _bounds(shape: ModelShape, text: Fields) -> tuple[int, int]:
    """Least and most parameters of an unknown decoder: two or three MLP matrices, tied or not."""
    gated = sum(n * layer.mlp_linear for n, layer in shape.groups)
    experts = shape.params_experts
    low = shape.params_total - gated // 3 - experts // 3 - shape.params_head
    high = shape.params_total
    if text.config.get("tie_word_embeddings") is None:
        high = max(
            high, shape.params_total - shape.params_head + shape.vocab_size * shape.hidden_size
        )
    return low, high


def describe_bounds(shape: ModelShape) -> str | None:
    """ "between 6.10 B and 8.03 B parameters" for an unknown architecture, else None."""
    if shape.params_bounds is None:
        return None
    low, high = shape.params_bounds
    return f"between {human_count(low)} and {human_count(high)} parameters"
