"""Config and result of the experiment `tensor_parallel`: one model over several devices."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gpuagent.wire.base import WireModel
from gpuagent.wire.loaded import LoadedModel
from gpuagent.wire.measure import Quantity, Samples
from gpuagent.wire.units import Name, PositiveTokens, Text

Ways = Annotated[int, Field(ge=1, le=64)]


class TensorParallelConfig(WireModel):
    """Prefill and decode of one sequence at each of `sizes`, by transformers' own plan."""

    experiment: Literal["tensor_parallel"] = "tensor_parallel"
    sizes: Annotated[tuple[Ways, ...], Field(min_length=1, max_length=6)] = (1, 2, 4, 8)
    input_tokens: PositiveTokens = 64
    decode_steps: Annotated[int, Field(ge=2, le=512)] = 8
    repeats: Annotated[int, Field(ge=5, le=100)] = 5


class TensorParallelPoint(WireModel):
    """The model split over `size` processes, one device each.

    prefill_s, decode_step_s: as the first process sees them; each step waits for all. weight_bytes,
    peak_memory_bytes: of the process that holds most. same_tokens: greedy answer tokens equal to
    those of the first size that ran, of `answer_tokens`. reason: why it did not run.
    """

    size: Ways
    prefill_s: Samples
    decode_step_s: Samples
    weight_bytes: Quantity
    peak_memory_bytes: Quantity
    same_tokens: Annotated[int, Field(ge=0)] | None = None
    answer_tokens: Annotated[int, Field(ge=0)] = 0
    reason: Text | None = None


class TensorParallelResult(WireModel):
    """backend: of torch.distributed. versions: of torch and transformers in the processes."""

    experiment: Literal["tensor_parallel"] = "tensor_parallel"
    model: LoadedModel
    backend: Literal["nccl", "gloo"]
    input_tokens: PositiveTokens
    points: Annotated[tuple[TensorParallelPoint, ...], Field(min_length=1, max_length=6)]
    threads: Annotated[int, Field(ge=1)]
    versions: dict[Name, Name]

    def samples(self) -> tuple[Samples, ...]:
        """All times."""
        return tuple(s for p in self.points for s in (p.prefill_s, p.decode_step_s) if s.n)
