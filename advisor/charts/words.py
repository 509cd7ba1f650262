"""The words of a figure in another language; numbers, colours and places stay as they are."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from advisor.charts.figure import Figure

Say = Callable[[str], str]

_TEXTS = frozenset({"text", "hovertemplate", "ticktext", "label", "categoryarray"})
# Categories of an axis are drawn as they stand.
_PLACES = frozenset({"x", "y"})
_TAG = re.compile(r"(<[^>]*>)")


def said_figure(figure: Figure, say: Say, *, points: bool = True) -> Figure:
    """A copy whose titles, labels, names of series and hover texts went through `say`.

    points: also the texts of single points; without, for thousands of them that are names.
    """
    data = [_said(trace, say) if points else dict(trace) for trace in figure["data"]]
    for trace in data:
        # Elsewhere a `name` is for the code: svg.py asks for it.
        if isinstance(trace.get("name"), str):
            trace["name"] = say(trace["name"])
    return {**figure, "data": data, "layout": _said(figure["layout"], say)}


def _said(value: Any, say: Say, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _said(inner, say, name) for name, inner in value.items()}
    if isinstance(value, list):
        if value and key in _PLACES and not isinstance(value[0], str):
            return value
        return [_said(inner, say, key) for inner in value]
    if isinstance(value, str) and key in _TEXTS | _PLACES:
        return "".join(
            piece if piece.startswith("<") else say(piece) for piece in _TAG.split(value)
        )
    return value
