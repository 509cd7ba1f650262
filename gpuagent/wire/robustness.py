"""What a robustness test of a server found: one line for each misuse, with the number behind it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gpuagent.wire.base import WIRE_VERSION, WireModel
from gpuagent.wire.units import Name, Seconds, Text

RobustnessVerdict = Literal["pass", "fail", "cannot_tell"]


class RobustnessCheck(WireModel):
    """One line. value and limit in `unit`; value is None where the sentence says why.

    unit: s, status (an HTTP status), count, frac (of 1) or ratio (after over before).
    """

    name: Name
    verdict: RobustnessVerdict
    sentence: Text
    value: float | None = None
    limit: float | None = None
    unit: Literal["s", "status", "count", "frac", "ratio"] | None = None


class RobustnessResult(WireModel):
    """A whole test. engine: the server's own metrics were readable under these names, or None.

    started_at_s: Unix time.
    """

    wire_version: int = WIRE_VERSION
    url: Name
    model: Name
    engine: Literal["vllm", "sglang"] | None = None
    started_at_s: Seconds
    duration_s: Seconds
    checks: Annotated[tuple[RobustnessCheck, ...], Field(max_length=40)]

    @property
    def verdict(self) -> RobustnessVerdict:
        """The worst line: a failure before what cannot be told."""
        verdicts = {check.verdict for check in self.checks}
        if "fail" in verdicts:
            return "fail"
        return "cannot_tell" if "cannot_tell" in verdicts or not verdicts else "pass"
