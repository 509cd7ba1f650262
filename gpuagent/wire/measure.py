"""Measured numbers. Raw samples travel; summaries are computed once, by `gpuagent.stats`."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from gpuagent.wire.base import WireModel
from gpuagent.wire.units import Name, PositiveTokens, Seconds, Text, Tokens

MAX_SAMPLES = 200_000


class Samples(WireModel):
    """Raw samples in the order they were taken; warm-up is not among them."""

    values: Annotated[tuple[float, ...], Field(max_length=MAX_SAMPLES)]

    @property
    def n(self) -> int:
        return len(self.values)


class Quantity(WireModel):
    """A number, or the reason why there is none. Never 0 for "not measured"."""

    value: float | None = None
    reason: Text | None = None

    @model_validator(mode="after")
    def _value_or_reason(self) -> Self:
        if (self.value is None) == (self.reason is None):
            raise ValueError("give either a value or the reason why there is none")
        return self


class RequestRecord(WireModel):
    """One request. Times are seconds since the start of the measured window.

    token_s holds the arrival of every output token, so TTFT, ITL and E2E follow from it.
    sent_s - intended_s is the time in the client's own queue, shown apart.
    """

    intended_s: Seconds
    sent_s: Seconds
    token_s: Annotated[tuple[Seconds, ...], Field(max_length=MAX_SAMPLES)]
    input_tokens: PositiveTokens
    output_tokens: Tokens
    error: Text | None = None


class ValidityCheck(WireModel):
    """One line of the measurement checklist with the number that decided it."""

    id: Name
    verdict: Literal["valid", "warn", "invalid", "not_checked"]
    message: Text
    value: float | None = None
    limit: float | None = None


class Validity(WireModel):
    """Verdict before number: the worst line of the checklist."""

    checks: tuple[ValidityCheck, ...] = ()

    @property
    def verdict(self) -> Literal["valid", "warn", "invalid"]:
        verdicts = {check.verdict for check in self.checks}
        if "invalid" in verdicts:
            return "invalid"
        return "warn" if "warn" in verdicts else "valid"

    @property
    def reasons(self) -> tuple[str, ...]:
        """Messages of the lines that are not valid, worst first."""
        worst = [c.message for c in self.checks if c.verdict == "invalid"]
        return (*worst, *(c.message for c in self.checks if c.verdict == "warn"))
