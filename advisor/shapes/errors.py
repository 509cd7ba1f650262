"""The one error of this package: which key of a config is at fault, and what to do."""

from __future__ import annotations


class ShapeError(ValueError):
    """A model config that cannot be read: `field` names the key, `message` what to do."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field
        self.message = message
