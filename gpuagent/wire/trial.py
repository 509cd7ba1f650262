"""One experiment with one configuration on one agent, and what came of it.

A new experiment adds its config and result class here, to the two unions at the bottom.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from gpuagent.wire.agent import EnvironmentSnapshot
from gpuagent.wire.base import WIRE_VERSION, WireModel
from gpuagent.wire.failure import Failure
from gpuagent.wire.measure import Quantity, RequestRecord, Samples, Validity
from gpuagent.wire.model import ModelRef
from gpuagent.wire.settings import EngineSettings
from gpuagent.wire.units import Bytes, Name, PositiveSeconds, PositiveTokens, Seconds, Tokens
from gpuagent.wire.workload import Workload

# --- configs -----------------------------------------------------------------------------------


class BaselineConfig(WireModel):
    """Prefill and decode timed apart on a small grid, then the workload's own requests.

    text_path: a text file on the agent for perplexity (WikiText-2); None takes the built-in one.
    """

    experiment: Literal["baseline"] = "baseline"
    batch_sizes: Annotated[tuple[PositiveTokens, ...], Field(min_length=1, max_length=8)] = (1, 4)
    input_tokens: Annotated[tuple[PositiveTokens, ...], Field(min_length=1, max_length=8)] = (
        32,
        128,
    )
    decode_steps: Annotated[int, Field(ge=2, le=4096)] = 16
    repeats: Annotated[int, Field(ge=5, le=100)] = 5
    perplexity_tokens: Annotated[int, Field(ge=0, le=300_000)] = 2048
    text_path: Annotated[str, Field(max_length=1000)] | None = None


class KvCacheConfig(WireModel):
    """Decode with and without the cache at growing context lengths."""

    experiment: Literal["kv_cache"] = "kv_cache"
    context_tokens: Annotated[tuple[PositiveTokens, ...], Field(min_length=2, max_length=12)] = (
        64,
        128,
        256,
        512,
    )
    decode_steps: Annotated[int, Field(ge=2, le=512)] = 8
    repeats: Annotated[int, Field(ge=5, le=100)] = 5


class VerifyConfig(WireModel):
    """Interleaved A/B: the spec's settings are A (current), `candidate` is B, fresh seeds."""

    experiment: Literal["verify"] = "verify"
    candidate: EngineSettings
    pairs: Annotated[int, Field(ge=5, le=50)] = 6
    requests_per_run: Annotated[int, Field(ge=1, le=10_000)] = 6
    perplexity_tokens: Annotated[int, Field(ge=0, le=300_000)] = 1024
    text_path: Annotated[str, Field(max_length=1000)] | None = None


ExperimentConfig = Annotated[
    BaselineConfig | KvCacheConfig | VerifyConfig, Field(discriminator="experiment")
]

# --- results -----------------------------------------------------------------------------------


class LoadedModel(WireModel):
    """What the engine really loaded.

    stored_weight_bytes: sum over distinct parameter tensors (a tied head counts once).
    """

    architecture: Name
    dtype: Name
    attention: Name
    device: Name
    params: Annotated[int, Field(ge=1)]
    stored_weight_bytes: Bytes
    random_weights: bool


class ColdStart(WireModel):
    """Times that a warm process does not pay, kept apart from every warm number."""

    import_s: Seconds
    load_s: Seconds
    first_request_ttft_s: Seconds
    warmup_s: Seconds
    warmup_iterations: Annotated[int, Field(ge=0)]


class GridCell(WireModel):
    """One batch size and input length: every repeat of prefill, every decode step.

    prefill_s: [repeats]; whole-batch forward over the prompt up to the first token.
    decode_step_s: [repeats × (decode_steps - 1)]; one token for each sequence of the batch.
    """

    batch: PositiveTokens
    input_tokens: PositiveTokens
    prefill_s: Samples
    decode_step_s: Samples
    peak_memory_bytes: Quantity
    joules_per_token: Quantity


class Perplexity(WireModel):
    """exp(mean negative log likelihood) over `tokens` predicted tokens of `text`."""

    value: Annotated[float, Field(gt=0)]
    tokens: PositiveTokens
    text: Name
    text_sha256: Name
    window_tokens: PositiveTokens


class BaselineResult(WireModel):
    """Evidence of one configuration on its own.

    peak_memory_bytes: of the whole process; `memory_kind` says by which counter.
    read_bandwidth_bytes_s: best of a few large sequential reads on the same device, the ceiling
    that decode speed is compared with.
    """

    experiment: Literal["baseline"] = "baseline"
    model: LoadedModel
    cold: ColdStart
    cells: tuple[GridCell, ...]
    requests: tuple[RequestRecord, ...]
    arrivals: Literal["closed_loop", "poisson"]
    window_s: Seconds
    peak_memory_bytes: Quantity
    memory_kind: Literal["cuda_reserved", "process_rss"]
    joules_per_token: Quantity
    read_bandwidth_bytes_s: Quantity
    perplexity: Perplexity | None = None
    perplexity_reason: str | None = None

    @model_validator(mode="after")
    def _perplexity_or_reason(self) -> Self:
        if (self.perplexity is None) == (self.perplexity_reason is None):
            raise ValueError("give either a perplexity or the reason why there is none")
        return self


class KvPoint(WireModel):
    """One context length. Decode steps with the cache on and off, and the cache's own bytes.

    uncached_step_s is empty with `uncached_reason` where recomputing was too slow or impossible.
    """

    context_tokens: PositiveTokens
    cached_step_s: Samples
    uncached_step_s: Samples
    uncached_reason: str | None = None
    cache_bytes: Bytes
    memory_bytes: Quantity


class KvCacheResult(WireModel):
    """What the cache is worth at each context length.

    bytes_after_release: memory still held, above the level before, after the caches were dropped.
    """

    experiment: Literal["kv_cache"] = "kv_cache"
    model: LoadedModel
    cold: ColdStart
    points: tuple[KvPoint, ...]
    bytes_after_release: Quantity


class AbRun(WireModel):
    """One run of one side: its place in the interleaved order and its raw requests."""

    side: Literal["a", "b"]
    order: Annotated[int, Field(ge=0)]
    requests: tuple[RequestRecord, ...]


class VerifyResult(WireModel):
    """Interleaved runs of current (a) and candidate (b) in the order they were made."""

    experiment: Literal["verify"] = "verify"
    model_a: LoadedModel
    model_b: LoadedModel
    candidate: EngineSettings
    runs: tuple[AbRun, ...]
    perplexity_a: Perplexity | None = None
    perplexity_b: Perplexity | None = None
    perplexity_reason: str | None = None


Measurements = Annotated[
    BaselineResult | KvCacheResult | VerifyResult, Field(discriminator="experiment")
]

# --- the trial itself --------------------------------------------------------------------------

TrialId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f-]{36}$")]


class TrialSpec(WireModel):
    """Everything an agent needs; `python -m gpuagent once` runs exactly this."""

    wire_version: int = WIRE_VERSION
    trial_id: TrialId
    model: ModelRef
    engine: Literal["transformers"] = "transformers"
    settings: EngineSettings = EngineSettings()
    workload: Workload
    config: ExperimentConfig
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    timeout_s: Annotated[PositiveSeconds, Field(le=12 * 3600)] = 1800

    @property
    def experiment(self) -> str:
        return self.config.experiment


class TrialResult(WireModel):
    """Evidence of one trial, with its provenance and the verdict on the measurement itself."""

    wire_version: int = WIRE_VERSION
    measurements: Measurements
    environment: EnvironmentSnapshot
    validity: Validity
    started_at_s: Seconds
    duration_s: Seconds


class Artifact(WireModel):
    """A file that belongs to an attempt. Announced first, bytes after, hash checked."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,100}$")]
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    size_bytes: Annotated[int, Field(ge=0, le=512 * 1024 * 1024)]


class TrialOutcome(WireModel):
    """How an attempt ended. Posted once per attempt; repeating it changes nothing."""

    status: Literal["succeeded", "failed", "cancelled"]
    result: TrialResult | None = None
    failure: Failure | None = None
    artifacts: Annotated[tuple[Artifact, ...], Field(max_length=200)] = ()
    log_tail: Annotated[str, Field(max_length=65_536)] = ""
    tokens_generated: Tokens | None = None

    @model_validator(mode="after")
    def _status_fits(self) -> Self:
        if (self.status == "succeeded") != (self.result is not None):
            raise ValueError("a result comes with status succeeded and with nothing else")
        if (self.status == "failed") != (self.failure is not None):
            raise ValueError("a failure comes with status failed and with nothing else")
        return self
