"""What is asked of the engine: lengths, arrivals, amount."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from gpuagent.wire.base import WireModel
from gpuagent.wire.units import PositiveTokens

Preset = Literal["chat", "api", "edge", "batch"]


class LengthSpec(WireModel):
    """Distribution of a length in tokens.

    fixed: always `mean`. lognormal: mean `mean` and 95th percentile `p95`, cut at `maximum`.
    measured: of requests that another tool sent, whose mean is all that is kept. unknown: its file
    does not tell, and `mean` says nothing.
    """

    kind: Literal["fixed", "lognormal", "measured", "unknown"] = "fixed"
    mean: Annotated[int, Field(ge=1, le=10_000_000)]
    p95: PositiveTokens | None = None
    maximum: PositiveTokens | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.kind == "lognormal":
            if self.p95 is None:
                raise ValueError("a lognormal length needs p95, the 95th percentile in tokens")
            # A lognormal cannot have p95 / mean above exp(1.645² / 2) = 3.87 or below 1.
            if not 1 < self.p95 / self.mean < 3.8:
                raise ValueError("p95 must lie between 1 and 3.8 times the mean")
        return self

    @property
    def text(self) -> str:
        """The mean, for a sentence."""
        return "not known" if self.kind == "unknown" else f"{self.mean:,}"


class Workload(WireModel):
    """One traffic pattern.

    request_rate_per_s: open-loop Poisson arrivals at this rate; None means one request after the
    other (closed loop, one stream), and then no latency-at-rate claim is made.
    requests: how many measured requests a trial sends, warm-up not counted.
    shared_prefix_frac: share of each prompt that all prompts open with, such as a system prompt.
    Only servers are asked like this; it is warm once the warm-up is over.
    """

    preset: Preset
    input_tokens: LengthSpec
    output_tokens: LengthSpec
    request_rate_per_s: Annotated[float, Field(gt=0, le=100_000)] | None = None
    requests: Annotated[int, Field(ge=1, le=100_000)] = 100
    shared_prefix_frac: Annotated[float, Field(ge=0, lt=1)] = 0.0
