"""Numbers that come as text in an address."""

from __future__ import annotations

from advisor.errors import InvalidInput


def trial_number(text: str | None) -> int | None:
    """The number of a trial. Raises InvalidInput for what is none."""
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 6):
        fix = "Give the number of a trial, for example 1."
        raise InvalidInput(f"trial: {fix}", {"trial": [fix]})
    return int(text)
