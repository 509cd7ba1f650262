"""The one error of this package: a config that cannot be turned into a shape, and which key is at fault."""

from __future__ import annotations


class ShapeError(ValueError):
    """A model config that cannot be read. `field` names the key, `message` says what to do about it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field
        self.message = message
