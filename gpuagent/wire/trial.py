"""One experiment with one configuration on one agent, and what came of it.

A new experiment adds its config and result class here, to the two unions at the bottom.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from gpuagent.wire.agent import EnvironmentSnapshot
from gpuagent.wire.base import WIRE_VERSION, WireModel
from gpuagent.wire.failure import Failure
from gpuagent.wire.imported import ImportedConfig, ImportedMetric, Loop
from gpuagent.wire.inside import (
    AttentionConfig,
    AttentionResult,
    BatchingConfig,
    BatchingResult,
    CacheDetails,
    CalibrateConfig,
    CalibrateResult,
    KernelsConfig,
    KernelsResult,
    QuantisationConfig,
    QuantisationResult,
)
from gpuagent.wire.loaded import ColdStart as ColdStart
from gpuagent.wire.loaded import LoadedModel as LoadedModel
from gpuagent.wire.loaded import Perplexity as Perplexity
from gpuagent.wire.measure import Quantity, RequestRecord, Samples, Validity
from gpuagent.wire.model import ModelRef
from gpuagent.wire.parallel import TensorParallelConfig, TensorParallelResult
from gpuagent.wire.robustness import RobustnessConfig, RobustnessResult
from gpuagent.wire.serving import RateBoundary, ServeConfig, ServedEngine
from gpuagent.wire.settings import Engine, EngineSettings
from gpuagent.wire.units import (
    Bytes,
    Name,
    PositiveSeconds,
    PositiveTokens,
    Seconds,
    Text,
    Tokens,
)
from gpuagent.wire.workload import Workload

# --- configs -----------------------------------------------------------------------------------


class BaselineConfig(WireModel):
    """Prefill and decode timed apart on a small grid, then the workload's own requests.

    text_path: a text file on the agent for perplexity (WikiText-2); None takes the agent's own.
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
    """Decode with and without the cache at growing context lengths.

    perplexity_tokens: of the text that is read back from each form of the cache; 0 leaves quality
    out.
    """

    experiment: Literal["kv_cache"] = "kv_cache"
    context_tokens: Annotated[tuple[PositiveTokens, ...], Field(min_length=2, max_length=12)] = (
        64,
        128,
        256,
        512,
    )
    decode_steps: Annotated[int, Field(ge=2, le=512)] = 8
    repeats: Annotated[int, Field(ge=5, le=100)] = 5
    perplexity_tokens: Annotated[int, Field(ge=0, le=300_000)] = 1024


class VerifyConfig(WireModel):
    """Interleaved A/B: the spec's settings are A (current), `candidate` is B, fresh seeds.

    streams: requests in flight at a server, where the workload has no rate.
    """

    experiment: Literal["verify"] = "verify"
    candidate: EngineSettings
    pairs: Annotated[int, Field(ge=5, le=50)] = 6
    requests_per_run: Annotated[int, Field(ge=1, le=10_000)] = 6
    perplexity_tokens: Annotated[int, Field(ge=0, le=300_000)] = 1024
    text_path: Annotated[str, Field(max_length=1000)] | None = None
    streams: Annotated[int, Field(ge=1, le=4096)] = 1


class ProfileConfig(WireModel):
    """A few prefill and decode steps under a profiler, beside the same steps without one.

    recorder: `torch` records with torch.profiler and, where the nsys binary exists, once more under
    nsys; `marks` only sets ranges and the capture window, which is what runs under nsys.
    repeats: how often the sequence runs without a profiler, as the base of the overhead.
    """

    experiment: Literal["profile"] = "profile"
    batch: PositiveTokens = 1
    input_tokens: PositiveTokens = 128
    prefill_steps: Annotated[int, Field(ge=1, le=10)] = 2
    decode_steps: Annotated[int, Field(ge=3, le=50)] = 4
    warmup_steps: Annotated[int, Field(ge=1, le=20)] = 2
    repeats: Annotated[int, Field(ge=3, le=50)] = 3
    recorder: Literal["torch", "marks"] = "torch"


ExperimentConfig = Annotated[
    BaselineConfig
    | KvCacheConfig
    | VerifyConfig
    | ProfileConfig
    | CalibrateConfig
    | KernelsConfig
    | AttentionConfig
    | QuantisationConfig
    | BatchingConfig
    | TensorParallelConfig
    | ServeConfig
    | RobustnessConfig
    | ImportedConfig,
    Field(discriminator="experiment"),
]

# --- results -----------------------------------------------------------------------------------


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


class ServerCounters(WireModel):
    """What a serving engine's own counters said over the measured requests.

    Shares are of `shares_of`: the engine's steps, or samples of its gauges taken once a second.
    full_frac: with a full batch while requests waited. starved_frac: with requests that waited for
    room in the cache. eager_frac: that decoded without a captured graph. mixed_frac: that decoded
    and computed prompts. kv_peak_frac: highest use of the cache. running_peak: of a real server at
    least what its samples showed and what its counts of tokens and steps imply. None: the engine
    does not say.
    """

    steps: Annotated[int, Field(ge=0)] | None
    preemptions: Annotated[int, Field(ge=0)]
    running_peak: Annotated[int, Field(ge=0)]
    kv_peak_frac: Annotated[float, Field(ge=0, le=1)]
    full_frac: Annotated[float, Field(ge=0, le=1)]
    starved_frac: Annotated[float, Field(ge=0, le=1)]
    eager_frac: Annotated[float, Field(ge=0, le=1)] | None
    mixed_frac: Annotated[float, Field(ge=0, le=1)] | None
    shares_of: Literal["steps", "samples"] = "steps"
    samples: Annotated[int, Field(ge=0)] | None = None

    @property
    def shares_n(self) -> int | None:
        """How many steps or samples the shares are of."""
        return self.samples if self.shares_of == "samples" else self.steps


class BaselineResult(WireModel):
    """Evidence of one configuration on its own.

    cold: None where nothing was started.
    joules_per_token: all that the device used; net_joules_per_token: above its idle power.
    peak_memory_bytes: of the whole process; `memory_kind` says by which counter.
    read_bandwidth_bytes_s: best of a few large sequential reads on the same device, the ceiling
    that decode speed is compared with. server: None for an engine in the agent's process.
    """

    experiment: Literal["baseline"] = "baseline"
    model: LoadedModel
    cold: ColdStart | None = None
    cells: tuple[GridCell, ...]
    requests: tuple[RequestRecord, ...]
    arrivals: Literal["closed_loop", "poisson"]
    window_s: Seconds
    peak_memory_bytes: Quantity
    memory_kind: Literal[
        "cuda_reserved", "process_rss", "simulated", "server_rss", "server_device", "unknown"
    ]
    joules_per_token: Quantity
    idle_power_w: Quantity = Quantity(reason="an older agent did not measure it")
    net_joules_per_token: Quantity = Quantity(reason="an older agent did not measure it")
    read_bandwidth_bytes_s: Quantity
    perplexity: Perplexity | None = None
    perplexity_reason: str | None = None
    server: ServerCounters | None = None

    @model_validator(mode="after")
    def _perplexity_or_reason(self) -> Self:
        if (self.perplexity is None) == (self.perplexity_reason is None):
            raise ValueError("give either a perplexity or the reason why there is none")
        return self


class ServeResult(BaselineResult):
    """Evidence of one configuration of a server under load: all that a baseline has but the grid.

    cold.load_s: until the first token of a real completion; imports are part of it.
    boundary: None where none was asked for, with boundary_reason where it could not be found.
    """

    experiment: Literal["serve"] = "serve"  # type: ignore[assignment]
    served: ServedEngine
    streams: Annotated[int, Field(ge=1)] | None = None
    boundary: RateBoundary | None = None
    boundary_reason: Text | None = None


class ImportedResult(BaselineResult):
    """What another tool measured, as far as its file has it.

    requests: empty where the file has only sums. sent: judged by the tool, `failed`
    among them, None where it does not count them.
    metrics: the tool's own sums, with its definitions. asked_rate_per_s: None for a closed loop or
    "as fast as possible". hidden_tokens: chunks carried several tokens, so counting them says too
    little. window_s: 0 where the file tells no duration.
    """

    experiment: Literal["imported"] = "imported"  # type: ignore[assignment]
    loop: Loop
    concurrency: Annotated[int, Field(ge=1)] | None = None
    asked_rate_per_s: float | None = None
    sent: Annotated[int, Field(ge=0)]
    failed: Annotated[int, Field(ge=0)] | None
    requests_per_s: Quantity
    output_tok_s: Quantity
    metrics: Annotated[tuple[ImportedMetric, ...], Field(max_length=8)]
    hidden_tokens: bool = False
    notes: Annotated[tuple[Text, ...], Field(max_length=20)] = ()


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
    details: None for an engine that runs its model in another process.
    """

    experiment: Literal["kv_cache"] = "kv_cache"
    model: LoadedModel
    cold: ColdStart
    points: tuple[KvPoint, ...]
    bytes_after_release: Quantity
    details: CacheDetails | None = None


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
    served_a: ServedEngine | None = None
    served_b: ServedEngine | None = None


class Artifact(WireModel):
    """A file that belongs to an attempt. Announced first, bytes after, hash checked."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,100}$")]
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    size_bytes: Annotated[int, Field(ge=0, le=512 * 1024 * 1024)]


class TraceFinding(WireModel):
    """One thing worth changing in a recorded trace. recoverable_s is of the trace's window."""

    code: Name
    title: Name
    detail: Text
    change: Text
    strength: Name
    basis: Text
    recoverable_s: Quantity
    recoverable_frac: Quantity


class ProfiledShare(WireModel):
    """Time of one kernel class, or of one operator on a machine without a GPU.

    frac: of summed GPU time, or of summed operator time without nested operators.
    """

    name: Name
    count: Annotated[int, Field(ge=0)]
    time_s: Seconds
    frac: Annotated[float, Field(ge=0, le=1.000001)]


class RecordedTrace(WireModel):
    """One recording in short; the whole report is made again from the file `artifact`.

    work: whether GPU work or, without a GPU, CPU operators are described. bottleneck: class of the
    verdict, `cpu_work` for operators. artifact_reason: why the file is not sent.
    """

    recorder: Literal["torch", "nsys"]
    work: Literal["gpu", "cpu"]
    bottleneck: Name
    confidence: Literal["high", "medium", "low"]
    confidence_reason: Text
    sentence: Text
    window_s: Quantity
    busy_frac: Quantity
    idle_frac: Quantity
    shares: Annotated[tuple[ProfiledShare, ...], Field(max_length=40)]
    findings: Annotated[tuple[TraceFinding, ...], Field(max_length=20)] = ()
    artifact: Artifact | None = None
    artifact_reason: Text | None = None


class MemorySnapshot(WireModel):
    """What PyTorch's own allocator held at the end of the recording, converted in the agent.

    NCCL and direct cudaMalloc are invisible to it. fragmentation_frac: 1 - allocated / reserved,
    both at their peaks.
    """

    allocated_peak_bytes: Bytes
    reserved_peak_bytes: Bytes
    fragmentation_frac: Annotated[float, Field(ge=0, le=1)]
    segments: Annotated[int, Field(ge=0)]
    largest_free_bytes: Bytes
    alloc_retries: Annotated[int, Field(ge=0)]
    ooms: Annotated[int, Field(ge=0)]


class ProfileResult(WireModel):
    """What the profilers saw, and what looking cost.

    overhead_ratio: median decode step under torch.profiler over the median without one.
    prefill_s and decode_step_s: without a profiler; profiled_step_s: decode steps under it.
    nsys_reason: why there is no recording of nsys. memory_reason: why there is no snapshot.
    """

    experiment: Literal["profile"] = "profile"
    model: LoadedModel
    cold: ColdStart
    prefill_s: Samples
    decode_step_s: Samples
    profiled_step_s: Samples
    overhead_ratio: Quantity
    traces: Annotated[tuple[RecordedTrace, ...], Field(max_length=4)]
    nsys_reason: Text | None = None
    memory: MemorySnapshot | None = None
    memory_reason: Text | None = None


Measurements = Annotated[
    BaselineResult
    | KvCacheResult
    | VerifyResult
    | ProfileResult
    | CalibrateResult
    | KernelsResult
    | AttentionResult
    | QuantisationResult
    | BatchingResult
    | TensorParallelResult
    | ServeResult
    | RobustnessResult
    | ImportedResult,
    Field(discriminator="experiment"),
]

# --- the trial itself --------------------------------------------------------------------------

TrialId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f-]{36}$")]


class TrialSpec(WireModel):
    """Everything an agent needs; `python -m gpuagent once` runs exactly this.

    endpoint: name of one of the agent's endpoints, for the engine `openai`.
    """

    wire_version: int = WIRE_VERSION
    trial_id: TrialId
    model: ModelRef
    engine: Engine = "transformers"
    endpoint: Name | None = None
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
