"""Reads single values out of files that nobody here wrote."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from advisor.imports.errors import ImportRefused
from advisor.imports.model import ImportedMetric, MetricName
from gpuagent.wire.measure import Quantity

_LARGEST = 1e12


def parse_json(text: str) -> Any:
    """The document. Raises ImportRefused for what is no JSON, NaN and Infinity among it."""

    def refuse(name: str) -> Any:
        raise ImportRefused("file", f"holds {name}, which is no JSON number: write null")

    try:
        return json.loads(text, parse_constant=refuse)
    except RecursionError:
        raise ImportRefused("file", "is nested too deeply") from None
    except ValueError as error:
        raise ImportRefused("file", f"is no JSON ({str(error)[:200]})") from None


def number(row: Mapping[str, Any], key: str, path: str = "") -> float | None:
    """A number of at least 0; None where it is absent or null."""
    value = row.get(key)
    if value is None:
        return None
    where = f"{path}.{key}" if path else key
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ImportRefused(where, f"must be a number, not {str(value)[:50]!r}")
    if not 0 <= value <= _LARGEST or not math.isfinite(value):
        raise ImportRefused(where, f"{str(value)[:30]} is no number from 0 to {_LARGEST:g}")
    return float(value)


def needed(row: Mapping[str, Any], key: str, path: str = "") -> float:
    """A number that the file must hold."""
    value = number(row, key, path)
    if value is None:
        raise ImportRefused(f"{path}.{key}" if path else key, "is missing")
    return value


def whole(row: Mapping[str, Any], key: str, path: str = "") -> int:
    """A count that the file must hold."""
    value = needed(row, key, path)
    if not value.is_integer():
        raise ImportRefused(f"{path}.{key}" if path else key, f"{value:g} is no whole number")
    return int(value)


def mapping(value: Any, path: str) -> Mapping[str, Any]:
    """An object that the file must hold."""
    if not isinstance(value, Mapping):
        raise ImportRefused(path, "must be an object")
    return value


def optional_mapping(value: Any, path: str) -> Mapping[str, Any]:
    """An object, empty where it is absent."""
    return {} if value is None else mapping(value, path)


def sequence(value: Any, path: str) -> Sequence[Any]:
    """A list that the file must hold."""
    if not isinstance(value, list):
        raise ImportRefused(path, "must be a list")
    return value


def words(value: Any, limit: int = 200) -> str | None:
    """Printable text of at most `limit` characters; None where there is none."""
    if not isinstance(value, str):
        return None
    text = "".join(c for c in value if c.isprintable()).strip()
    return text[:limit] or None


def quantity(value: float | None, reason: str) -> Quantity:
    """The number, or why it is absent."""
    return Quantity(value=value) if value is not None else Quantity(reason=reason)


def latency(
    metric: MetricName,
    values: Mapping[str, float | None],
    *,
    n: int | None,
    definition: str,
    absent: str,
) -> ImportedMetric:
    """The metric from `values` (mean, p50, p90, p95, p99) in seconds."""
    if all(value is None for value in values.values()):
        return ImportedMetric(metric=metric, definition=definition, reason=absent)
    return ImportedMetric(metric=metric, n=n, definition=definition, **values)
