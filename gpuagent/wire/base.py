"""What every wire type shares: frozen, strict about its own side, tolerant of a newer peer."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict

WIRE_VERSION = 1
"""Raised with every change that an older peer would misread."""

WIRE_HEADER = "X-Agent-Wire"


class WireModel(BaseModel):
    """Base of all wire types. Unknown fields are an error for what we build ourselves."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=()
    )


M = TypeVar("M", bound=WireModel)


def parse_from_peer(kind: type[M], data: Any) -> M:
    """Return `data` as `kind`, ignoring fields that a newer peer may have added.

    Raises pydantic.ValidationError; an unknown enum value stays an error, since guessing its
    meaning would be worse than refusing the message.
    """
    return kind.model_validate(data, extra="ignore")


def wire_version_accepted(version: int) -> bool:
    """Whether this side can talk to a peer of `version`: its own and the one before it."""
    return WIRE_VERSION - 1 <= version <= WIRE_VERSION
