"""What an engine loaded, how long a cold start took, and a quality score: parts of many results."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gpuagent.wire.base import WireModel
from gpuagent.wire.units import Bytes, Name, PositiveTokens, Seconds


class LoadedModel(WireModel):
    """What the engine really loaded.

    stored_weight_bytes: sum over distinct parameter tensors (a tied head counts once). None for a
    server that somebody else runs: it tells neither.
    """

    architecture: Name
    dtype: Name
    attention: Name
    device: Name
    params: Annotated[int, Field(ge=1)] | None
    stored_weight_bytes: Bytes | None
    random_weights: bool


class ColdStart(WireModel):
    """Times that a warm process does not pay, kept apart from every warm number."""

    import_s: Seconds
    load_s: Seconds
    first_request_ttft_s: Seconds
    warmup_s: Seconds
    warmup_iterations: Annotated[int, Field(ge=0)]


class Perplexity(WireModel):
    """exp(mean negative log likelihood) over `tokens` predicted tokens of `text`."""

    value: Annotated[float, Field(gt=0)]
    tokens: PositiveTokens
    text: Name
    text_sha256: Name
    window_tokens: PositiveTokens
