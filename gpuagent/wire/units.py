"""Annotated numbers. SI inside, the unit in the field's name, formatting only at the edge."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

Seconds = Annotated[float, Field(ge=0)]
PositiveSeconds = Annotated[float, Field(gt=0)]
Bytes = Annotated[int, Field(ge=0)]
Watts = Annotated[float, Field(ge=0)]
Joules = Annotated[float, Field(ge=0)]
Hertz = Annotated[float, Field(ge=0)]
Celsius = Annotated[float, Field(ge=-50, le=200)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Tokens = Annotated[int, Field(ge=0)]
PositiveTokens = Annotated[int, Field(ge=1)]
PerSecond = Annotated[float, Field(ge=0)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
TypedName = Annotated[
    str,
    StringConstraints(
        # No markup, no control characters, nothing that turns the direction of what follows.
        pattern=r"^[^<>\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]*$",
        strip_whitespace=True,
        min_length=1,
        max_length=120,
    ),
]
"""A name that a person typed: shown on pages, in reports and in other tools."""
Text = Annotated[str, Field(max_length=4000)]
