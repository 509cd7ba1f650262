"""Causal attention computed in several ways, and structures that compute less.

Shapes: q [1, H, S, D], k and v [1, G, S, D] with H a multiple of G. Every function returns
[1, H, S, D].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
# Queries that share one slice of keys. A block's waste is at most one block of keys.
BLOCK = 128


@dataclass(frozen=True, slots=True)
class Structure:
    """What is attended to. kv_heads: groups of keys and values. window: newest keys each query
    sees, itself included; None is all of them. global_tokens: first keys that all queries see."""

    name: str
    kv_heads: int
    window: int | None = None
    global_tokens: int = 0

    def pairs(self, tokens: int) -> int:
        """Query-key pairs that the mask allows, of one head."""
        if self.window is None:
            return tokens * (tokens + 1) // 2
        return sum(
            min(i + 1, self.window) + max(0, min(self.global_tokens, i + 1 - self.window))
            for i in range(tokens)
        )

    def computed_pairs(self, tokens: int) -> int:
        """Pairs that are really computed: whole blocks of the window structure."""
        if self.window is None:
            return self.pairs(tokens)
        return sum((hi - lo) * keys for lo, hi, keys in _plan(tokens, self))

    def cached_tokens(self, tokens: int) -> int:
        """Keys that decoding has to keep."""
        return tokens if self.window is None else min(tokens, self.window + self.global_tokens)


def structures(heads: int, kv_heads: int, *, window: int, global_tokens: int) -> list[Structure]:
    """The model's own heads, every smaller number of groups that divides them, and a window."""
    own = Structure(_heads_name(heads, kv_heads), kv_heads)
    fewer = [g for g in range(kv_heads - 1, 0, -1) if kv_heads % g == 0]
    if len(fewer) > 2:
        fewer = [fewer[0], fewer[-1]]
    grouped = [Structure(_heads_name(heads, g), g) for g in fewer]
    windowed = Structure(
        f"window {window} + {global_tokens} global", kv_heads, window, global_tokens
    )
    return [own, *grouped, windowed]


def _heads_name(heads: int, groups: int) -> str:
    if groups == heads:
        return f"MHA, {heads} heads"
    return "MQA, 1 K/V head" if groups == 1 else f"GQA, {groups} K/V heads"


# --- implementations ---------------------------------------------------------------------------


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Matmul, mask, softmax, matmul: every score is written to memory."""
    k, v = _expand(k, q.shape[1]), _expand(v, q.shape[1])
    scores = q @ k.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1]))
    scores = scores.masked_fill(~causal_mask(q.shape[2], None, 0, q.device), float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def implementations(device: torch.device) -> dict[str, Attend | str]:
    """Name -> function, or the reason why it is not available on this device."""
    found: dict[str, Attend | str] = {"eager": plain, "sdpa": _sdpa}
    backends = {
        "sdpa math": SDPBackend.MATH,
        "sdpa flash": SDPBackend.FLASH_ATTENTION,
        "sdpa memory-efficient": SDPBackend.EFFICIENT_ATTENTION,
        "sdpa cuDNN": SDPBackend.CUDNN_ATTENTION,
    }
    for name, backend in backends.items():
        on_cpu = backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION)
        if device.type == "cuda" or on_cpu:
            found[name] = _with_backend(backend)
        else:
            found[name] = "this backend needs a CUDA device"
    found["flex"] = _flex if device.type == "cuda" else "measured on CUDA devices only"
    if find_spec("flash_attn") is None:
        found["flash-attn"] = "the flash-attn package is not installed"
    else:
        found["flash-attn"] = _flash_attn
    return found


def _sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=True, enable_gqa=k.shape[1] != q.shape[1]
    )


def _with_backend(backend: SDPBackend) -> Attend:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        # Not every backend takes fewer K/V heads; the copy is part of its cost then.
        k, v = _expand(k, q.shape[1]), _expand(v, q.shape[1])
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    return attend


@lru_cache(maxsize=1)
def _compiled_flex() -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=False)


@lru_cache(maxsize=8)
def _flex_mask(tokens: int, device: str) -> Any:
    from torch.nn.attention.flex_attention import create_block_mask

    return create_block_mask(lambda b, h, q, k: q >= k, None, None, tokens, tokens, device=device)


def _flex(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    mask = _flex_mask(q.shape[2], str(q.device))
    result: torch.Tensor = _compiled_flex()(
        q, k, v, block_mask=mask, enable_gqa=k.shape[1] != q.shape[1]
    )
    return result


def _flash_attn(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    from flash_attn import flash_attn_func

    out: torch.Tensor = flash_attn_func(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), causal=True
    )
    return out.transpose(1, 2)


# --- structures --------------------------------------------------------------------------------


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, structure: Structure) -> torch.Tensor:
    """Attention of `structure`; k and v already have its number of heads."""
    if structure.window is None or q.shape[2] <= structure.window:
        return _sdpa(q, k, v)
    return _windowed(q, k, v, structure)


def _plan(tokens: int, structure: Structure) -> list[tuple[int, int, int]]:
    """(first query, end, number of keys) of each block."""
    window, first = structure.window or tokens, structure.global_tokens
    blocks = []
    for lo in range(0, tokens, BLOCK):
        hi = min(lo + BLOCK, tokens)
        start = max(0, lo - window + 1)
        blocks.append((lo, hi, hi - start + min(first, start)))
    return blocks


def _windowed(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, structure: Structure
) -> torch.Tensor:
    """Block by block: keys outside window and globals are never read."""
    window, first = structure.window or q.shape[2], structure.global_tokens
    gqa = k.shape[1] != q.shape[1]
    out = torch.empty_like(q)
    for lo, hi, _ in _plan(q.shape[2], structure):
        start = max(0, lo - window + 1)
        early = min(first, start)
        positions = torch.cat(
            (torch.arange(early, device=q.device), torch.arange(start, hi, device=q.device))
        )
        queries = torch.arange(lo, hi, device=q.device)[:, None]
        near = positions > queries - window
        mask = (positions <= queries) & (near | (positions < first))
        keys, values = k[:, :, start:hi], v[:, :, start:hi]
        if early:
            keys = torch.cat((k[:, :, :early], keys), dim=2)
            values = torch.cat((v[:, :, :early], values), dim=2)
        out[:, :, lo:hi] = torch.nn.functional.scaled_dot_product_attention(
            q[:, :, lo:hi], keys, values, attn_mask=mask, enable_gqa=gqa
        )
    return out


def reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, structure: Structure, dtype: torch.dtype
) -> torch.Tensor:
    """Dense masked attention in `dtype`, as plain PyTorch does it. float64 is the reference."""
    q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    k, v = _expand(k, q.shape[1]), _expand(v, q.shape[1])
    mask = causal_mask(q.shape[2], structure.window, structure.global_tokens, q.device)
    scores = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(~mask, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def causal_mask(
    tokens: int, window: int | None, global_tokens: int, device: torch.device
) -> torch.Tensor:
    """[S, S] of bool: may query (row) see key (column)?"""
    rows = torch.arange(tokens, device=device)[:, None]
    columns = torch.arange(tokens, device=device)
    mask = columns <= rows
    if window is None:
        return mask
    return mask & ((columns > rows - window) | (columns < global_tokens))


def pool_heads(x: torch.Tensor, groups: int) -> torch.Tensor:
    """Mean over neighbouring heads, [1, G, S, D] -> [1, groups, S, D].

    Keys and values are linear in their projections, so this is the model whose K/V weights were
    mean-pooled, unless it normalises keys.
    """
    batch, heads, tokens, size = x.shape
    return x.view(batch, groups, heads // groups, tokens, size).mean(dim=2)


def _expand(x: torch.Tensor, heads: int) -> torch.Tensor:
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], dim=1)


# --- quality -----------------------------------------------------------------------------------

_REGISTERED = "measured_structure"


class StructureInModel:
    """While open, the model's attention has another structure. For scoring texts without padding.

    Raises AttributeError or KeyError where the architecture does not take attention by name.
    """

    def __init__(self, module: Any, structure: Structure) -> None:
        self._module, self._structure = module, structure
        self._before: str | None = None
        self.calls = 0

    def __enter__(self) -> StructureInModel:
        from transformers import AttentionInterface

        AttentionInterface.register(_REGISTERED, self._forward)
        config = self._module.config.get_text_config()
        self._before = config._attn_implementation
        self._module.set_attn_implementation(_REGISTERED)
        return self

    def __exit__(self, *_: object) -> None:
        self._module.set_attn_implementation(self._before)

    def _forward(
        self,
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        scaling: float | None = None,
        **_: Any,
    ) -> tuple[torch.Tensor, None]:
        self.calls += 1
        groups = self._structure.kv_heads
        if key.shape[1] % groups == 0 and key.shape[1] != groups:
            key, value = pool_heads(key, groups), pool_heads(value, groups)
        if scaling is not None:
            # The kernels scale by 1 / sqrt(head size) themselves.
            query = query * (scaling * math.sqrt(query.shape[-1]))
        out = attend(query, key, value, self._structure)
        return out.transpose(1, 2).contiguous(), None
