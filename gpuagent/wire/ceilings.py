"""What a device can do at most, measured: the ceilings that efficiencies are relative to."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gpuagent.wire.base import WireModel
from gpuagent.wire.measure import Quantity, Samples
from gpuagent.wire.units import Name, Seconds

CeilingKind = Literal[
    "read", "copy", "gemm", "launch", "host_to_device", "device_to_host", "all_reduce"
]
CEILING_UNITS: dict[str, str] = {"gemm": "FLOP/s", "launch": "s"}
"""Unit of a kind's rate; bytes per second for every other kind."""


class Ceiling(WireModel):
    """One ceiling. rate: the best of `seconds`, since noise only slows: work / min(seconds).

    work: bytes moved (copy counts read and write) or floating-point operations (2 m n k) of one
    run; 1 for launch, whose rate is seconds. variant: dtype of a GEMM ("tf32" is float32 inputs on
    tensor cores), "pageable" or "pinned" of a transfer, "" else.
    """

    kind: CeilingKind
    variant: Annotated[str, Field(max_length=20)] = ""
    work: Annotated[float, Field(gt=0)]
    seconds: Samples
    rate: Quantity


class Ceilings(WireModel):
    """All ceilings of one device, with what they depend on.

    clock_hz: core clock right after the last GEMM (SM clock, or the mean of the CPU's cores).
    """

    device: Name
    threads: Annotated[int, Field(ge=1)] | None = None
    clock_hz: Quantity
    memory_clock_hz: Quantity
    versions: dict[str, str] = {}
    measured_at_s: Seconds
    entries: Annotated[tuple[Ceiling, ...], Field(max_length=40)]

    def rate(self, kind: CeilingKind, variant: str = "") -> float | None:
        """The rate in the kind's unit, or None where it was not measured."""
        for entry in self.entries:
            if (entry.kind, entry.variant) == (kind, variant):
                return entry.rate.value
        return None
