"""Secrets that are handed out once: API tokens, agents, shared reports.

`<kind>_<8 characters>_<256 bit>`: kind and the eight characters are the visible prefix that finds
the row; only the SHA-256 of the whole string is kept. A plain hash is enough, since nobody can
guess 256 random bits and no dictionary holds them.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Literal, NamedTuple

Kind = Literal["ta", "tar", "tag", "tas"]
"""ta: API token of a person. tar: registration token of an agent. tag: credential of an agent.
tas: link to a shared report."""

_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
_FORM = re.compile(r"^((ta|tar|tag|tas)_[a-z0-9]{8})_[A-Za-z0-9_-]{43}$")


class Secret(NamedTuple):
    """`full` is shown once and not kept; `prefix` and `sha256` are."""

    full: str
    prefix: str
    sha256: str


def new_secret(kind: Kind) -> Secret:
    prefix = f"{kind}_{''.join(secrets.choice(_ALPHABET) for _ in range(8))}"
    full = f"{prefix}_{secrets.token_urlsafe(32)}"
    return Secret(full, prefix, digest(full))


def digest(full: str) -> str:
    return hashlib.sha256(full.encode()).hexdigest()


def split(full: str, kind: Kind) -> str | None:
    """Return the prefix of a well-formed secret of this kind, or None."""
    match = _FORM.fullmatch(full)
    return match[1] if match and match[2] == kind else None


def matches(full: str, sha256: str) -> bool:
    """Whether the stored hash is that of `full`, in constant time."""
    return hmac.compare_digest(digest(full), sha256)
