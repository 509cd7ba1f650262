"""Reads the package's own data files, once."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any


@cache
def load(name: str) -> dict[str, Any]:
    """The parsed JSON of `data/<name>`."""
    text = resources.files("advisor.catalog").joinpath("data", name).read_text(encoding="utf-8")
    value = json.loads(text)
    if not isinstance(value, dict):
        raise TypeError(f"{name} must hold an object")
    return value
