"""What a trial says while it runs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gpuagent.wire.base import WireModel
from gpuagent.wire.units import Fraction, Seconds, Text

Phase = Literal["prepare", "load", "warmup", "measure", "quality", "finish"]
PHASES: tuple[str, ...] = ("prepare", "load", "warmup", "measure", "quality", "finish")


class TrialEvent(WireModel):
    """One step of progress or one line of the log. `seq` counts from 1 within an attempt."""

    seq: Annotated[int, Field(ge=1)]
    at_s: Seconds
    phase: Phase
    level: Literal["info", "warning", "error"] = "info"
    message: Text
    done_frac: Fraction | None = None
    remaining_s: Seconds | None = None
