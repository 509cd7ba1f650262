"""`ModelShape`: what a model is made of, per layer, and the bytes and counts that follow from it.

Filled by `advisor.shapes.build`; knows nothing of engines, GPUs or where the config came from.
Counts are elements (parameters), never bytes, unless the name says so.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.shapes.quant import DTYPE_BITS, QuantScheme, group_bits, scheme_for_dtype


@dataclass(frozen=True, slots=True)
class LayerShape:
    """One decoder layer.

    Kinds: full, sliding, chunked, mla, compressed, cross, linear, ssm, parallel, none.
    """

    kind: str
    heads: int = 0
    kv_heads: int = 0
    qk_dim: int = 0  # width of one query head in the score product
    v_dim: int = 0
    kv_elements: int = 0  # cached elements per token, K and V together; MLA: the shared latent
    window: int | None = None  # tokens after which this layer's cache stops growing
    compression: int = 1  # tokens per cached entry beyond the window (compressed attention)
    state_elements: int = 0  # fixed elements per sequence (SSM and convolution state)
    mixer_linear: int = 0  # matmul weights of attention or SSM
    mlp_linear: int = 0  # matmul weights of a dense MLP
    shared_linear: int = 0  # shared experts
    expert_params: int = 0  # ONE routed expert
    experts: int = 0
    experts_per_token: int = 0
    router: int = 0
    other: int = 0  # norms, biases, sinks, convolutions: stay at 16 bit or more

    @property
    def params(self) -> int:
        return self.params_without_experts + self.experts * self.expert_params

    @property
    def params_without_experts(self) -> int:
        return self.mixer_linear + self.mlp_linear + self.shared_linear + self.router + self.other

    @property
    def has_cache(self) -> bool:
        return self.kv_elements > 0


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A language model as the arithmetic sees it. Build with `shape_from_config`."""

    family: str  # model_type of the language part
    architecture: str
    layers: int
    hidden_size: int
    heads: int
    kv_heads: int  # heads that are really cached; 1 for MLA, 0 without attention
    head_dim: int  # cached width of one head; MLA: latent + rope
    intermediate_size: int
    vocab_size: int
    max_context: int | None  # None: the config states no limit
    params_total: int  # every weight that the running model holds; without MTP modules
    params_active: int  # per token: total less the experts that are not chosen
    params_embedding: int  # token and position tables
    params_head: int  # output matrix; 0 when tied to the embedding
    params_vision: int  # vision or audio towers and their projectors
    tied: bool
    attention: str  # MHA, GQA, MQA, MLA, hybrid …
    groups: tuple[tuple[int, LayerShape], ...]  # (count, layer) of equal layers
    torch_dtype: str  # of the config; "unknown" when it states none
    quant: QuantScheme | None = None
    sparse_topk: int | None = None  # tokens a sparse-attention layer reads in full
    known: bool = True
    params_bounds: tuple[int, int] | None = None  # for unknown architectures
    notes: tuple[str, ...] = ()

    @property
    def model_type(self) -> str:
        return self.family

    # --- counts ---

    @property
    def attention_layers(self) -> int:
        """Layers that keep a KV cache of their own."""
        return sum(n for n, layer in self.groups if layer.has_cache)

    @property
    def is_moe(self) -> bool:
        return any(layer.experts for _, layer in self.groups)

    @property
    def experts(self) -> int:
        return max((layer.experts for _, layer in self.groups), default=0)

    @property
    def experts_per_token(self) -> int:
        return max((layer.experts_per_token for _, layer in self.groups), default=0)

    @property
    def is_mla(self) -> bool:
        return any(layer.kind in ("mla", "compressed") for _, layer in self.groups)

    @property
    def params_experts(self) -> int:
        return sum(n * layer.experts * layer.expert_params for n, layer in self.groups)

    def params_by_group(self) -> dict[str, int]:
        """Parameters by the part a quantisation format treats alike; sums to `params_total`."""
        parts: Counter[str] = Counter()
        for n, layer in self.groups:
            parts["attention"] += n * layer.mixer_linear
            parts["mlp"] += n * layer.mlp_linear
            parts["shared_experts"] += n * layer.shared_linear
            parts["experts"] += n * layer.experts * layer.expert_params
            parts["router"] += n * layer.router
            parts["other"] += n * layer.other
        parts["embedding"] = self.params_embedding
        parts["head"] = self.params_head
        parts["vision"] = self.params_vision
        parts["other"] += self.params_total - sum(parts.values())
        return dict(parts)

    # --- KV cache ---

    def kv_bytes_per_token(self, kv_itemsize: float = 2) -> int:
        """Bytes that one token adds while no window is full, over all layers and all GPUs.

        Dense caches: 2 × layers × kv_heads × head_dim × itemsize; MLA: (latent + rope) × layers ×
        itemsize, once. Excludes block padding (at most block_size - 1 tokens per sequence).
        """
        return math.ceil(sum(n * layer.kv_elements for n, layer in self.groups) * kv_itemsize)

    def kv_bytes_per_token_growing(self, kv_itemsize: float = 2) -> int:
        """Bytes per token once every sliding or chunked window is full."""
        total = 0.0
        for n, layer in self.groups:
            if layer.kind == "compressed":
                total += n * layer.kv_elements / layer.compression
            elif layer.window is None:
                total += n * layer.kv_elements
        return math.ceil(total * kv_itemsize)

    def kv_bytes_for(self, tokens: int, kv_itemsize: float = 2) -> int:
        """Bytes that one sequence of `tokens` needs: windows capped, SSM state excluded."""
        total = 0.0
        for n, layer in self.groups:
            if layer.kind == "compressed":
                kept = min(tokens, layer.window or 0) + tokens / layer.compression
            else:
                kept = tokens if layer.window is None else min(tokens, layer.window)
            total += n * layer.kv_elements * kept
        return math.ceil(total * kv_itemsize)

    def state_bytes_per_seq(self, itemsize: float = 2) -> int:
        """Fixed bytes per sequence: SSM and convolution state. Engines may use fp32."""
        return math.ceil(sum(n * layer.state_elements for n, layer in self.groups) * itemsize)

    # --- weights ---

    def scheme(self, dtype: str = "auto") -> QuantScheme | None:
        """The quantisation in force when weights are loaded as `dtype` ("auto": as published)."""
        if dtype in ("auto", ""):
            return self.quant
        return scheme_for_dtype(dtype, self.quant, mla=self.is_mla)

    def base_bits(self, dtype: str = "auto") -> float:
        """Bits of the parts that no format quantises (norms, embeddings): 16, or 32 for fp32."""
        if dtype in DTYPE_BITS and DTYPE_BITS[dtype] >= 16:
            return DTYPE_BITS[dtype]
        # Engines load fp32 checkpoints in 16 bit by default; so do we under "auto".
        return 16.0

    def weight_bytes(self, dtype: str = "auto") -> int:
        """Bytes of all weights as `dtype`: "auto" or a name of `DTYPE_BITS` or `QUANT_NAMES`.

        Quantised formats keep embeddings, output matrix, routers, norms and towers at 16 bit, plus
        their scales; "auto" follows the config's own quantisation, else 16 bit.
        """
        scheme, base = self.scheme(dtype), self.base_bits(dtype)
        bits = sum(
            count * group_bits(scheme, part, base) for part, count in self.params_by_group().items()
        )
        return math.ceil(bits / 8)

    # --- words ---

    def summary(self) -> str:
        """One sentence: Dense, 36 layers, 8.19 B parameters, 32 query and 8 KV heads of 128."""
        kind = "Mixture of experts" if self.is_moe else "Dense"
        if self.attention.startswith("SSM"):
            kind = "State space"
        size = f"{human_count(self.params_total)} parameters"
        if self.is_moe:
            size += f" ({human_count(self.params_active)} active, "
            size += f"{self.experts_per_token} of {self.experts} experts)"
        if self.is_mla:
            heads = f"{self.heads} query heads over one cached latent of {self.head_dim}"
        elif self.heads:
            heads = f"{self.heads} query and {self.kv_heads} KV heads of {self.head_dim}"
        else:
            heads = "no attention"
        text = f"{kind}, {self.layers} layers, {size}, {heads}"
        return text if self.known else text + " (architecture not fully known)"


def human_count(count: int) -> str:
    """8190735360 → "8.19 B"."""
    for limit, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if count >= limit:
            return f"{count / limit:.2f} {unit}"
    return str(count)


def group_layers(layers: Sequence[LayerShape]) -> tuple[tuple[int, LayerShape], ...]:
    """Equal layers counted, in order of first appearance."""
    return tuple((n, layer) for layer, n in Counter(layers).items())
