"""Typed reading of a config dict: aliases, bounds, one sentence naming the wrong key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.shapes.errors import ShapeError

# canonical name -> other spellings seen in published configs
ALIASES: dict[str, tuple[str, ...]] = {
    "hidden_size": ("n_embd", "n_embed", "d_model", "model_dim", "dim"),
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads"),
    "num_key_value_heads": ("n_head_kv", "num_kv_heads", "multi_query_group_num"),
    "head_dim": ("attention_head_dim", "kv_channels"),
    "intermediate_size": ("ffn_hidden_size", "n_inner", "ffn_dim", "inner_dim"),
    "vocab_size": ("padded_vocab_size", "embedding_size"),
    "max_position_embeddings": (
        "n_positions",
        "max_seq_len",
        "seq_length",
        "n_ctx",
        "max_sequence_length",
        "model_max_length",
    ),
    "num_experts": (
        "num_local_experts",
        "n_routed_experts",
        "moe_num_experts",
    ),
    "num_experts_per_tok": (
        "experts_per_token",
        "moe_top_k",
        "top_k_experts",
        "num_experts_per_token",
        "moe_topk",
    ),
}
MAXIMA: dict[str, int] = {
    "hidden_size": 1 << 20,
    "num_hidden_layers": 2_048,
    "num_attention_heads": 1 << 14,
    "num_key_value_heads": 1 << 14,
    "head_dim": 1 << 16,
    "intermediate_size": 1 << 24,
    "vocab_size": 1 << 27,
    "max_position_embeddings": 1 << 40,
    "num_experts": 1 << 16,
    "num_experts_per_tok": 1 << 16,
}
DEFAULT_MAXIMUM = 1 << 32


class Fields:
    """Read access to one config level; `prefix` shows nested keys in errors as `text_config.x`."""

    def __init__(self, config: Mapping[str, Any], prefix: str = "") -> None:
        self.config = config
        self.prefix = prefix

    def key_of(self, name: str) -> str | None:
        """The spelling under which `name` is present and not null, or None."""
        for key in (name, *ALIASES.get(name, ())):
            if self.config.get(key) is not None:
                return key
        return None

    def error(self, name: str, message: str) -> ShapeError:
        return ShapeError(f"{self.prefix}{self.key_of(name) or name}", message)

    def opt_int(self, name: str, *, minimum: int = 1) -> int | None:
        """The integer under `name` or an alias; None when missing or null."""
        key = self.key_of(name)
        if key is None:
            return None
        value = self.config[key]
        if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(name, f"must be a whole number, not {_show(value)}")
        maximum = MAXIMA.get(name, DEFAULT_MAXIMUM)
        if not minimum <= value <= maximum:
            raise self.error(name, f"must lie between {minimum} and {maximum:,}, not {value}")
        return value

    def integer(self, name: str, default: int | None = None, *, minimum: int = 1) -> int:
        """As `opt_int`, with a class default; without one a missing key is an error."""
        value = self.opt_int(name, minimum=minimum)
        if value is not None:
            return value
        if default is not None:
            return default
        others = ", ".join(ALIASES.get(name, ())[:3])
        hint = f" (also read as {others})" if others else ""
        raise self.error(name, f"is missing{hint}; add it to the config")

    def flag(self, name: str, default: bool) -> bool:
        value = self.config.get(name)
        if value is None:
            return default
        if isinstance(value, bool):
            return value
        if value in (0, 1):
            return bool(value)
        raise self.error(name, f"must be true or false, not {_show(value)}")

    def text(self, name: str, default: str = "") -> str:
        value = self.config.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.error(name, f"must be text, not {_show(value)}")
        return value

    def items(self, name: str) -> list[Any] | None:
        value = self.config.get(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self.error(name, f"must be a list, not {_show(value)}")
        return value

    def child(self, name: str) -> Fields | None:
        value = self.config.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.error(name, f"must be an object, not {_show(value)}")
        return Fields(value, f"{self.prefix}{name}.")


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
