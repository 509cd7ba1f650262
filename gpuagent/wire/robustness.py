"""What a robustness test of a server found: one line for each misuse, with the number behind it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gpuagent.wire.base import WIRE_VERSION, WireModel
from gpuagent.wire.loaded import LoadedModel
from gpuagent.wire.measure import Quantity
from gpuagent.wire.serving import ServedEngine
from gpuagent.wire.units import Name, PositiveSeconds, Seconds, Text

CHECKS = (
    "health",
    "plain_request",
    "client_timeout",
    "cancelled_streams",
    "long_prompt",
    "max_tokens",
    "malformed_request",
    "overload",
    "recovery",
    "kv_released",
    "still_serving",
)
"""Names of all lines, in the order in which they are made."""
RobustnessVerdict = Literal["pass", "fail", "cannot_tell"]


class RobustnessConfig(WireModel):
    """A server misused on purpose: health, time-outs, cancelled streams, prompts that are too
    long, malformed requests, overload, recovery, memory.

    burst: requests of the overload at once. cancelled: streams that are closed half-way.
    watch_s: how long the server may take to stop, or to be quick again. patience_s: a request
    without an answer for so long counts as hanging.
    """

    experiment: Literal["robustness"] = "robustness"
    burst: Annotated[int, Field(ge=1, le=10_000)] = 64
    cancelled: Annotated[int, Field(ge=1, le=1000)] = 8
    watch_s: Annotated[PositiveSeconds, Field(le=600)] = 10.0
    patience_s: Annotated[PositiveSeconds, Field(le=3600)] = 60.0


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


class OverloadSeen(WireModel):
    """What became of the requests that were sent at once, and what the server showed meanwhile.

    refused: answered 429 or 503; with_hint: with a Retry-After among them. slowest_s: of those
    that were answered. running_peak, waiting_peak: by /metrics; None where it does not say.
    health_asked, health_bad: requests to /health meanwhile, and those not answered 200 in time;
    health_slowest_s: the longest answer among the others.
    """

    sent: Annotated[int, Field(ge=1)]
    answered: Annotated[int, Field(ge=0)]
    refused: Annotated[int, Field(ge=0)]
    with_hint: Annotated[int, Field(ge=0)]
    failed: Annotated[int, Field(ge=0)]
    slowest_s: Seconds | None = None
    running_peak: Annotated[int, Field(ge=0)] | None = None
    waiting_peak: Annotated[int, Field(ge=0)] | None = None
    health_asked: Annotated[int, Field(ge=0)] = 0
    health_bad: Annotated[int, Field(ge=0)] = 0
    health_slowest_s: Seconds | None = None


class RobustnessReport(WireModel):
    """A whole test. engine: the server's own metrics were readable under these names, or None.

    started_at_s: Unix time. overload: None where it was not reached. health_at_end: the status of
    /health after the last check, 0 without an answer.
    """

    wire_version: int = WIRE_VERSION
    url: Name
    model: Name
    engine: Literal["vllm", "sglang"] | None = None
    started_at_s: Seconds
    duration_s: Seconds
    checks: Annotated[tuple[RobustnessCheck, ...], Field(max_length=40)]
    overload: OverloadSeen | None = None
    health_at_end: Annotated[int, Field(ge=0, le=999)] | None = None

    @property
    def verdict(self) -> RobustnessVerdict:
        """The worst line: a failure before what cannot be told."""
        verdicts = {check.verdict for check in self.checks}
        if "fail" in verdicts:
            return "fail"
        return "cannot_tell" if "cannot_tell" in verdicts or not verdicts else "pass"

    def check(self, name: str) -> RobustnessCheck | None:
        """The line of this name, or None."""
        return next((check for check in self.checks if check.name == name), None)


class RobustnessResult(WireModel):
    """The test as a trial, with the server that it was done to.

    memory_before_bytes, memory_after_bytes: of the whole server, idle on both sides.
    died_after: the check after which the server was gone, died_why: in the engine's words. Both
    None where it lived.
    """

    experiment: Literal["robustness"] = "robustness"
    model: LoadedModel
    served: ServedEngine
    report: RobustnessReport
    memory_before_bytes: Quantity
    memory_after_bytes: Quantity
    died_after: Name | None = None
    died_why: Text | None = None
