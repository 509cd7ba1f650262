"""Closed-form parameter counts of the building blocks, as (matmul weights, everything else).

Sources: the module definitions of transformers 5.24, checked tensor by tensor on the meta device.
"""

from __future__ import annotations

from dataclasses import dataclass

Counts = tuple[int, int]  # (linear weights, other parameters)


def grouped_attention(
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    *,
    qkv_bias: bool = False,
    o_bias: bool = False,
    qk_norm: str = "",
    gated_query: bool = False,
    values: bool = True,
    sinks: bool = False,
) -> Counts:
    """MHA, GQA or MQA. `values=False`: values are the keys, projected once (Gemma 4 global)."""
    q, kv = heads * head_dim, kv_heads * head_dim
    queries = 2 * q if gated_query else q
    kv_out = kv * (2 if values else 1)
    linear = hidden * (queries + kv_out) + q * hidden
    other = (queries + kv_out if qkv_bias else 0) + (hidden if o_bias else 0)
    other += {"head": 2 * head_dim, "full": q + kv}.get(qk_norm, 0)
    return linear, other + (heads if sinks else 0)


def latent_attention(
    hidden: int,
    heads: int,
    *,
    q_lora: int | None,
    kv_lora: int,
    nope: int,
    rope: int,
    v_dim: int,
    bias: bool = False,
) -> Counts:
    """Multi-head latent attention (DeepSeek V2 and later, MiniCPM3)."""
    qk = nope + rope
    linear = hidden * (kv_lora + rope) + kv_lora * heads * (nope + v_dim) + heads * v_dim * hidden
    other = kv_lora
    if q_lora:
        linear += hidden * q_lora + q_lora * heads * qk
        other += q_lora
    else:
        linear += hidden * heads * qk
    if bias:
        other += (q_lora or 0) + kv_lora + rope + hidden
    return linear, other


def sparse_indexer(hidden: int, q_lora: int, heads: int, dim: int) -> Counts:
    """The token selector of DeepSeek sparse attention (V3.2, GLM-5)."""
    return q_lora * heads * dim + hidden * (dim + heads), 2 * dim


def mlp(hidden: int, width: int, *, gated: bool, bias: bool = False) -> Counts:
    if gated:
        return 3 * hidden * width, (2 * width + hidden if bias else 0)
    return 2 * hidden * width, (width + hidden if bias else 0)


@dataclass(frozen=True, slots=True)
class Recurrent:
    """A linear-attention or state-space mixer: weights and the state it keeps per sequence."""

    linear: int
    other: int
    state: int


def gated_delta_net(
    hidden: int, key_heads: int, key_dim: int, value_heads: int, value_dim: int, conv: int
) -> Recurrent:
    """Gated DeltaNet of Qwen3-Next and Qwen3.5."""
    key, value = key_heads * key_dim, value_heads * value_dim
    conv_width = 2 * key + value
    linear = hidden * (2 * key + 2 * value) + hidden * 2 * value_heads + value * hidden
    other = 2 * value_heads + conv_width * conv + value_dim
    return Recurrent(linear, other, value_heads * key_dim * value_dim + conv_width * (conv - 1))


def mamba1(
    hidden: int,
    inner: int,
    state: int,
    dt_rank: int,
    conv: int,
    *,
    conv_bias: bool = True,
    norms: bool = False,
) -> Recurrent:
    """Mamba-1; `norms`: Jamba's norms on dt, B and C."""
    linear = hidden * 2 * inner + inner * (dt_rank + 2 * state) + dt_rank * inner + inner * hidden
    other = inner * state + inner + inner * conv + (inner if conv_bias else 0) + inner
    other += dt_rank + 2 * state if norms else 0
    return Recurrent(linear, other, inner * state + inner * (conv - 1))


def mamba2(
    hidden: int,
    inner: int,
    heads: int,
    head_dim: int,
    groups: int,
    state: int,
    conv: int,
    *,
    norm: bool = True,
    conv_bias: bool = True,
) -> Recurrent:
    """Mamba-2 (Nemotron-H, Falcon-H1)."""
    conv_width = inner + 2 * groups * state
    linear = hidden * (2 * inner + 2 * groups * state + heads) + inner * hidden
    other = conv_width * (conv + (1 if conv_bias else 0)) + 3 * heads + (inner if norm else 0)
    return Recurrent(linear, other, heads * head_dim * state + conv_width * (conv - 1))
