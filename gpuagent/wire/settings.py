"""Canonical knobs of an engine. One name per knob; each engine maps it to its own flag."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gpuagent.wire.base import WireModel

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Attention = Literal["auto", "eager", "sdpa"]


class EngineSettings(WireModel):
    """Settings of one trial. The defaults are what the engine does when nothing is said.

    dtype: of weights and activations; `auto` is the checkpoint's own.
    kv_cache: keep keys and values between decode steps.
    attention: implementation; `auto` leaves the choice to the engine.
    threads: CPU threads of the engine; None leaves the choice to it.
    """

    dtype: Dtype = "auto"
    kv_cache: bool = True
    attention: Attention = "auto"
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None

    def differences(self, other: EngineSettings) -> dict[str, tuple[object, object]]:
        """Knobs in which `other` differs: name -> (own value, other's value)."""
        mine, theirs = self.model_dump(), other.model_dump()
        return {knob: (mine[knob], theirs[knob]) for knob in mine if mine[knob] != theirs[knob]}
