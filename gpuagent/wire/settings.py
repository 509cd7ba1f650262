"""Canonical knobs of an engine. One name per knob; each engine maps it to its own flag."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from gpuagent.wire.base import WireModel

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Attention = Literal["auto", "eager", "sdpa"]
KvDtype = Literal["auto", "fp8"]
Engine = Literal[
    "transformers", "simulated", "vllm", "sglang", "transformers_serve", "openai", "imported"
]
"""What runs the model; `imported`: another tool measured it, and nothing is run here."""

MANAGED_SERVERS: tuple[Engine, ...] = ("vllm", "sglang", "transformers_serve")
"""Servers that the agent starts and stops itself."""
SERVERS: tuple[Engine, ...] = (*MANAGED_SERVERS, "openai")
"""Engines that are reached through HTTP; `openai` is one that somebody else runs."""

SERVING_KNOBS = (
    "max_running",
    "max_batched_tokens",
    "chunked_prefill",
    "memory_share_frac",
    "kv_dtype",
    "cuda_graphs",
)
"""Knobs of a serving engine's scheduler; an engine in the agent's process has none of them."""

PARALLEL_KNOBS = ("tensor_parallel", "pipeline_parallel", "data_parallel", "expert_parallel")
"""How a server's model lies on its devices."""

PARALLEL_SERVERS: tuple[Engine, ...] = ("vllm", "sglang")
"""Servers that have these degrees."""

SERVER_KNOBS = (*SERVING_KNOBS, "prefix_cache", "max_context", *PARALLEL_KNOBS)
"""All knobs of a real server; the simulator has only the scheduler's."""


class EngineSettings(WireModel):
    """Settings of one trial. The defaults are what the engine does when nothing is said.

    dtype: of weights and activations; `auto` is the checkpoint's own.
    kv_cache: keep keys and values between decode steps.
    attention: implementation; `auto` leaves the choice to the engine.
    threads: CPU threads of the engine; None leaves the choice to it.

    Of serving engines alone, None leaves the choice to the engine. max_running: requests in a
    batch. max_batched_tokens: prefill and decode tokens of one step. chunked_prefill: a prompt may
    take several steps. memory_share_frac: of device memory for the engine. kv_dtype: of the cache.
    cuda_graphs: replay captured steps. prefix_cache: reuse the cache of common beginnings.
    max_context: longest request in tokens. tensor_parallel: devices that share each layer.
    pipeline_parallel: groups of devices, each with a part of the layers. data_parallel: copies of
    the model behind one address. expert_parallel: a device holds whole experts, no slices of all.
    """

    dtype: Dtype = "auto"
    kv_cache: bool = True
    attention: Attention = "auto"
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    max_running: Annotated[int, Field(ge=1, le=65_536)] | None = None
    max_batched_tokens: Annotated[int, Field(ge=1, le=1_048_576)] | None = None
    chunked_prefill: bool | None = None
    memory_share_frac: Annotated[float, Field(gt=0, le=1)] | None = None
    kv_dtype: KvDtype = "auto"
    cuda_graphs: bool | None = None
    prefix_cache: bool | None = None
    max_context: Annotated[int, Field(ge=1, le=100_000_000)] | None = None
    tensor_parallel: Annotated[int, Field(ge=1, le=1024)] | None = None
    pipeline_parallel: Annotated[int, Field(ge=1, le=1024)] | None = None
    data_parallel: Annotated[int, Field(ge=1, le=1024)] | None = None
    expert_parallel: bool | None = None

    @property
    def gpus(self) -> int:
        """Devices that all copies of the model take together."""
        degrees = (self.tensor_parallel, self.pipeline_parallel, self.data_parallel)
        return math.prod(degree or 1 for degree in degrees)

    @property
    def serving_knobs(self) -> tuple[str, ...]:
        """Serving knobs that are set to something."""
        plain = EngineSettings()
        return tuple(k for k in SERVER_KNOBS if getattr(self, k) != getattr(plain, k))

    def differences(self, other: EngineSettings) -> dict[str, tuple[object, object]]:
        """Knobs in which `other` differs: name -> (own value, other's value)."""
        mine, theirs = self.model_dump(), other.model_dump()
        return {knob: (mine[knob], theirs[knob]) for knob in mine if mine[knob] != theirs[knob]}
