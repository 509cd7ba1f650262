"""Bytes of a `config.json` to a plain dict, with every refusal said in one sentence.

Uploads come from strangers: size, nesting and number literals are bounded here, so nothing behind
this module has to think about hostile input.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NoReturn

from advisor.shapes.errors import ShapeError

MAX_CONFIG_BYTES = 1_000_000
MAX_DEPTH = 32
# Published configs hold per-layer lists and skip lists of a few thousand names; 64 Ki leaves room.
MAX_ITEMS = 65_536
COMPANIONS = ("hf_quant_config.json", "generation_config.json", "model.safetensors.index.json")
# An index of a 1 T parameter model lists about 200,000 tensor names.
MAX_INDEX_BYTES = 64_000_000


def parse_config_text(text: str | bytes) -> dict[str, Any]:
    """The JSON object of a model config. Raises `ShapeError` with a sentence for anything else.

    At most `MAX_CONFIG_BYTES` bytes, `MAX_DEPTH` levels and `MAX_ITEMS` values. `NaN` and
    `Infinity` are tolerated (published configs hold `Infinity`) and refused only where a shape
    needs the number; a key repeated with another value is refused.
    """
    if len(text) > MAX_CONFIG_BYTES:
        raise ShapeError(
            "config",
            f"is {len(text):,} bytes, over the limit of {MAX_CONFIG_BYTES:,}; "
            "submit the config.json of the model, not its weights or tokenizer",
        )
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise ShapeError(
                "config", "is not UTF-8 text; submit the config.json of the model"
            ) from None
    text = text.removeprefix("\ufeff")
    _check_nesting(text)
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_int=_bounded_int)
    except json.JSONDecodeError as error:
        raise ShapeError(
            "config",
            f"is not valid JSON: {error.msg} at line {error.lineno} column {error.colno}",
        ) from None
    except RecursionError:
        _too_deep()
    if not isinstance(value, dict):
        raise ShapeError("config", "must be a JSON object with keys such as hidden_size")
    if not value:
        raise ShapeError("config", "is an empty object; submit the config.json of the model")
    return value


def read_config(path: str | Path) -> dict[str, Any]:
    """The config of a model folder or of one `config.json`, with its companions merged in.

    A folder may hold `hf_quant_config.json`; it is placed under `hf_quant_config`, and a
    `generation_config.json` or safetensors index adds `_index_total_size` (bytes of all tensors).
    """
    location = Path(path)
    folder = location if location.is_dir() else location.parent
    target = location / "config.json" if location.is_dir() else location
    if location.is_dir() and not target.is_file():
        raise ShapeError("path", f"{location} is a directory without a config.json")
    if not target.exists():
        raise ShapeError("path", f"{location} does not exist")
    if not target.is_file():
        raise ShapeError("path", f"{target} is not a regular file")
    config = parse_config_text(_read_limited(target, MAX_CONFIG_BYTES))
    if target.name == "config.json":
        _merge_companions(config, folder)
    return config


def _merge_companions(config: dict[str, Any], folder: Path) -> None:
    quant = folder / COMPANIONS[0]
    if quant.is_file() and "hf_quant_config" not in config:
        config["hf_quant_config"] = parse_config_text(_read_limited(quant, MAX_CONFIG_BYTES))
    index = folder / COMPANIONS[2]
    if index.is_file():
        try:
            metadata = json.loads(_read_limited(index, MAX_INDEX_BYTES)).get("metadata", {})
            size = metadata.get("total_size")
        except (ValueError, AttributeError, RecursionError):
            # The index only cross-checks the computed size; a broken one must not stop an estimate.
            return
        if isinstance(size, int) and not isinstance(size, bool) and size > 0:
            config["_index_total_size"] = size


def _read_limited(path: Path, limit: int) -> bytes:
    try:
        with path.open("rb") as handle:
            data = handle.read(limit + 1)
    except OSError as error:
        raise ShapeError("path", f"{path} cannot be read: {error.strerror}") from None
    if len(data) > limit:
        raise ShapeError(
            "config",
            f"{path.name} is over the limit of {limit:,} bytes; "
            "submit the config.json of the model, not its weights or tokenizer",
        )
    return data


def _check_nesting(text: str) -> None:
    """Bound depth and item count before the parser recurses; strings are skipped."""
    depth = items = 0
    in_string = escaped = False
    for char in text:
        if in_string:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                in_string = False
        elif char == '"':
            in_string = True
        elif char in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                _too_deep()
        elif char in "]}":
            depth -= 1
        elif char == ",":
            items += 1
            if items > MAX_ITEMS:
                raise ShapeError("config", f"holds over {MAX_ITEMS:,} values; not a model config")


def _too_deep() -> NoReturn:
    raise ShapeError("config", f"is nested over {MAX_DEPTH} levels deep; not a model config")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result and result[key] != value:
            raise ShapeError(key[:80], "appears twice with different values; keep one of them")
        result[key] = value
    return result


def _bounded_int(literal: str) -> int | float:
    # int() of a literal beyond 4,300 digits raises; nothing in a config needs over 20.
    return int(literal) if len(literal) <= 24 else math.inf
