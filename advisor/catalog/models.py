"""Models known by name without a download: the config keys that decide shape and bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from advisor.catalog.data_files import load
from advisor.catalog.names import UnknownNameError, close_names

# Suffixes that change neither layers nor widths, and those that name a weight format.
_VARIANTS = re.compile(
    r"-(instruct|chat|base|it|hf|thinking|coder|math|v\d(\.\d)?|preview|\d{4})(?=-|$)",
    re.IGNORECASE,
)
_FORMATS: tuple[tuple[str, str], ...] = (
    ("nvfp4", "nvfp4"),
    ("fp4", "nvfp4"),
    ("mxfp4", "mxfp4"),
    ("fp8-dynamic", "fp8"),
    ("fp8", "fp8"),
    ("awq-int4", "awq"),
    ("awq", "awq"),
    ("gptq-int4", "gptq"),
    ("gptq", "gptq"),
    ("w4a16", "int4"),
    ("int4", "int4"),
    ("int8", "int8"),
    ("bf16", ""),
)


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model of the catalogue, as asked for."""

    id: str
    config: dict[str, Any]
    source: str
    weight_format: str  # named by the suffix of what was asked for; "" when none
    note: str  # says when the shape was taken from a sibling


def list_models() -> tuple[str, ...]:
    """Ids of every model known without a download."""
    return tuple(row["id"] for row in load("models.json")["models"])


def find_model(name: str) -> KnownModel:
    """The model of a Hugging Face id, an alias, or a variant of one (-Instruct, -FP8, -AWQ).

    Raises `UnknownNameError` with close names; nothing is fetched.
    """
    index = _index()
    row = index.get(_key(name))
    if row is not None:
        return KnownModel(row["id"], row["config"], row["source"], "", "")
    stem, weight_format = _split_format(_key(name))
    row = index.get(stem) or _stems().get(_VARIANTS.sub("", stem))
    if row is None:
        row = _stems().get(_VARIANTS.sub("", stem).removeprefix("meta-"))
    if row is None:
        raise UnknownNameError("model", name, close_names(name, _names()))
    note = f"shape of {row['id']} used for {name}"
    return KnownModel(row["id"], row["config"], row["source"], weight_format, note)


def _key(name: str) -> str:
    """Lower case, without the organisation: twins are published under several."""
    return name.strip().rstrip("/").lower().rsplit("/", 1)[-1].replace("_", "-")


def _split_format(key: str) -> tuple[str, str]:
    for suffix, weight_format in _FORMATS:
        if key.endswith("-" + suffix):
            return key[: -len(suffix) - 1], weight_format
    return key, ""


@cache
def _names() -> tuple[str, ...]:
    return tuple(
        name for row in load("models.json")["models"] for name in (row["id"], *row["aliases"])
    )


@cache
def _index() -> dict[str, dict[str, Any]]:
    index: dict[str, dict[str, Any]] = {}
    for row in load("models.json")["models"]:
        for name in (row["id"], *row["aliases"]):
            index.setdefault(_key(name), row)
    return index


@cache
def _stems() -> dict[str, dict[str, Any]]:
    stems: dict[str, dict[str, Any]] = {}
    for key, row in _index().items():
        stem = _VARIANTS.sub("", _split_format(key)[0])
        stems.setdefault(stem, row)
        stems.setdefault(stem.removeprefix("meta-"), row)
    return stems
