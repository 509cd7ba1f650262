"""Annotated numbers. SI inside, the unit in the field's name, formatting only at the edge."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

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
Text = Annotated[str, Field(max_length=4000)]
