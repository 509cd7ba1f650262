"""Loose matching of the names people type, and close names for the ones that match nothing."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable


class UnknownNameError(ValueError):
    """A name that the catalogue does not hold; `suggestions` are the closest ones it does."""

    def __init__(self, kind: str, name: str, suggestions: tuple[str, ...]) -> None:
        close = f"; close names: {', '.join(suggestions)}" if suggestions else ""
        super().__init__(f"{kind} {name[:80]!r} is not in the catalogue{close}")
        self.kind = kind
        self.name = name
        self.suggestions = suggestions


def normalise(name: str) -> str:
    """Lower case without vendor words, spaces and punctuation: "NVIDIA H100-SXM" → "h100sxm"."""
    text = re.sub(
        r"\b(nvidia|amd|intel|google|geforce|tesla|instinct|corporation)\b", " ", name.lower()
    )
    return re.sub(r"[^a-z0-9.]+", "", text)


def close_names(name: str, known: Iterable[str], limit: int = 5) -> tuple[str, ...]:
    """Up to `limit` known names that look like `name`, best first; substring hits count."""
    wanted = normalise(name)[:64]
    by_key: dict[str, str] = {}
    for candidate in known:
        by_key.setdefault(normalise(candidate), candidate)
    hits = [
        key
        for key in by_key
        if len(wanted) >= 2 and (wanted in key or (len(key) > 1 and key in wanted))
    ]
    hits.sort(key=lambda key: abs(len(key) - len(wanted)))
    hits += difflib.get_close_matches(wanted, list(by_key), n=limit, cutoff=0.5)
    return tuple(dict.fromkeys(by_key[key] for key in hits))[:limit]
