"""From what a person names (a path, a bare config, a known id) to a shape, without any download."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from advisor.catalog import find_model
from advisor.shapes import ModelShape, read_config, shape_from_config


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A shape and how it was found."""

    shape: ModelShape
    name: str
    weight_format: str = (
        ""  # format that the name's suffix asks for, when the config is a sibling's
    )
    notes: tuple[str, ...] = ()


def resolve_model(name: str) -> ResolvedModel:
    """The shape of a model folder, a config.json, or a model id known to the catalogue.

    Raises `ShapeError` for a path that cannot be read and `UnknownNameError` with close names for
    an id that is not known; nothing is fetched.
    """
    path = Path(name)
    if path.exists() or name.endswith(".json") or name.startswith(("/", "./", "../", "~")):
        return _from_path(str(path.expanduser()))
    return known_model(name)


def model_from_config(config: Mapping[str, Any], name: str = "config") -> ResolvedModel:
    """The shape of a parsed config.json."""
    shape = shape_from_config(config)
    return ResolvedModel(shape, name, notes=shape.notes)


def shape_key(shape: ModelShape) -> str:
    """Name under which measurements of equal architectures meet, however the model was named."""
    return f"{shape.family}/{shape.layers}/{shape.hidden_size}/{shape.params_total}"


def _from_path(name: str) -> ResolvedModel:
    # No cache: the file may change between two calls.
    return model_from_config(read_config(name), name)


@lru_cache(maxsize=256)
def known_model(name: str) -> ResolvedModel:
    """The shape of a model id of the catalogue; never reads a path.

    Raises `UnknownNameError` with close names.
    """
    known = find_model(name)
    shape = shape_from_config(known.config)
    notes = shape.notes + ((known.note,) if known.note else ())
    weight_format = "" if shape.quant is not None else known.weight_format
    return ResolvedModel(shape, known.id, weight_format, notes)
