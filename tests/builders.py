"""Synthetic evidence: plain functions with defaults, deterministic, in the shape of the real thing.

The default cast is SmolLM2-135M on a small CPU agent: bfloat16 today, float32 faster. Override what
a test is about and leave the rest. Times are seconds, sizes bytes, as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import numpy as np

from advisor.evidence import DeviceFacts, Role, StudyEvidence, TrialEvidence, TrialState
from advisor.shapes import ModelShape, shape_from_config
from gpuagent.wire import (
    ConfigModel,
    EngineSettings,
    EnvironmentSnapshot,
    Failure,
    FailureReason,
    GpuInfo,
    HostInfo,
    LengthSpec,
    LocalModel,
    Quantity,
    Samples,
    SlaTarget,
    StudySpec,
    TrialResult,
    TrialSpec,
    Workload,
)
from gpuagent.wire.inside import (
    AttentionConfig,
    BatchingConfig,
    CalibrateConfig,
    InsideResult,
    KernelsConfig,
    QuantisationConfig,
)
from gpuagent.wire.measure import RequestRecord, Validity, ValidityCheck
from gpuagent.wire.robustness import CHECKS, RobustnessConfig, RobustnessResult
from gpuagent.wire.trial import (
    AbRun,
    BaselineConfig,
    BaselineResult,
    ColdStart,
    ExperimentConfig,
    GridCell,
    KvCacheConfig,
    KvCacheResult,
    KvPoint,
    LoadedModel,
    Measurements,
    Perplexity,
    ProfileConfig,
    ProfiledShare,
    ProfileResult,
    RecordedTrace,
    ServeResult,
    TraceFinding,
    VerifyConfig,
    VerifyResult,
)

SMOLLM2_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "vocab_size": 49152,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "hidden_act": "silu",
    "rms_norm_eps": 1e-05,
}
SMOLLM2_PARAMS = 134_515_008
START = datetime(2026, 12, 1, 9, 0, tzinfo=UTC)
ITEMSIZE = {"float32": 4, "bfloat16": 2, "float16": 2}

TTFT_P95 = SlaTarget(metric="ttft_s", statistic="p95", limit=0.2)
ITL_P95 = SlaTarget(metric="itl_s", statistic="p95", limit=0.05)


# --- study -------------------------------------------------------------------------------------


def make_shape(**overrides: Any) -> ModelShape:
    """The shape of SmolLM2-135M, or of its config with `overrides`."""
    return shape_from_config({**SMOLLM2_CONFIG, **overrides})


def make_device(kind: Literal["cpu", "gpu"] = "cpu", **overrides: Any) -> DeviceFacts:
    """A two-core CPU agent, or one GPU of 80 GiB."""
    facts: dict[str, Any] = {
        "agent": "bench-1",
        "kind": kind,
        "name": "NVIDIA H100 80GB HBM3" if kind == "gpu" else "Intel Xeon",
        "count": 1,
        "memory_bytes": 80 * 1024**3 if kind == "gpu" else 16 * 1024**3,
    }
    return DeviceFacts(**{**facts, **overrides})


def make_workload(**overrides: Any) -> Workload:
    """Short chat, one request after the other."""
    fields: dict[str, Any] = {
        "preset": "chat",
        "input_tokens": LengthSpec(mean=64),
        "output_tokens": LengthSpec(mean=16),
        "requests": 100,
    }
    return Workload(**{**fields, **overrides})


def make_study_spec(**overrides: Any) -> StudySpec:
    """Two targets (TTFT p95 ≤ 200 ms, ITL p95 ≤ 50 ms) for the demo model in bfloat16."""
    fields: dict[str, Any] = {
        "name": "Chat on two cores",
        "model": LocalModel(name="SmolLM2-135M-Instruct"),
        "workload": make_workload(),
        "targets": (TTFT_P95, ITL_P95),
        "agent": "bench-1",
        "current": EngineSettings(dtype="bfloat16"),
    }
    return StudySpec(**{**fields, **overrides})


def make_evidence(*trials: TrialEvidence, **overrides: Any) -> StudyEvidence:
    """A finished study of `trials`; without any, one that has not started."""
    fields: dict[str, Any] = {
        "study_id": "00000000-0000-0000-0000-000000000001",
        "number": 7,
        "name": "Chat on two cores",
        "spec": make_study_spec(),
        "shape": make_shape(),
        "device": make_device(),
        "trials": trials,
        "finished": bool(trials),
        "cancelled": False,
    }
    return StudyEvidence(**{**fields, **overrides})


# --- requests ----------------------------------------------------------------------------------


def make_request(
    intended_s: float = 0.0,
    *,
    ttft_s: float = 0.1,
    gaps_s: Sequence[float] = (0.03, 0.03, 0.03),
    input_tokens: int = 64,
    queue_s: float = 0.0,
    error: str | None = None,
) -> RequestRecord:
    """One request; with an `error` it ended without a token."""
    first_s = intended_s + ttft_s
    tokens = () if error else tuple(first_s + t for t in np.concatenate(([0.0], np.cumsum(gaps_s))))
    return RequestRecord(
        intended_s=intended_s,
        sent_s=intended_s + queue_s,
        token_s=tokens,
        input_tokens=input_tokens,
        output_tokens=len(tokens),
        error=error,
    )


def make_requests(
    n: int = 100,
    *,
    ttft_s: float = 0.1,
    itl_s: float = 0.03,
    output_tokens: int = 16,
    input_tokens: int = 64,
    cov: float = 0.03,
    failed: int = 0,
    rate_per_s: float | None = None,
    seed: int = 0,
) -> tuple[RequestRecord, ...]:
    """n requests around the given means (normal, cut at half), the last `failed` with an error.

    rate_per_s None: each starts when the one before ended. Else Poisson arrivals.
    """
    rng = np.random.default_rng(seed)
    records: list[RequestRecord] = []
    now_s = 0.0
    for index in range(n):
        noise = np.maximum(0.5, rng.normal(1.0, cov, output_tokens))
        record = make_request(
            now_s,
            ttft_s=ttft_s * float(noise[0]),
            gaps_s=[itl_s * float(f) for f in noise[1:]],
            input_tokens=input_tokens,
            error="connection reset" if index >= n - failed else None,
        )
        records.append(record)
        if rate_per_s is not None:
            now_s += float(rng.exponential(1 / rate_per_s))
        else:
            now_s = record.token_s[-1] if record.token_s else now_s + ttft_s
    return tuple(records)


# --- measurements ------------------------------------------------------------------------------


def make_loaded(dtype: str = "bfloat16", **overrides: Any) -> LoadedModel:
    fields: dict[str, Any] = {
        "architecture": "LlamaForCausalLM",
        "dtype": dtype,
        "attention": "sdpa",
        "device": "cpu",
        "params": SMOLLM2_PARAMS,
        "stored_weight_bytes": SMOLLM2_PARAMS * ITEMSIZE[dtype],
        "random_weights": False,
    }
    return LoadedModel(**{**fields, **overrides})


def make_cold(**overrides: Any) -> ColdStart:
    fields: dict[str, Any] = {
        "import_s": 4.0,
        "load_s": 1.5,
        "first_request_ttft_s": 0.4,
        "warmup_s": 2.0,
        "warmup_iterations": 3,
    }
    return ColdStart(**{**fields, **overrides})


def make_samples(mean_s: float, n: int = 75, *, cov: float = 0.02, seed: int = 0) -> Samples:
    """n samples around `mean_s` whose mean is `mean_s` exactly."""
    rng = np.random.default_rng(seed)
    factors = np.maximum(0.5, rng.normal(1.0, cov, n))
    return Samples(values=tuple(float(v) for v in mean_s * factors / factors.mean()))


def make_cell(
    batch: int = 1,
    input_tokens: int = 64,
    *,
    prefill_s: float = 0.1,
    decode_s: float = 0.03,
    repeats: int = 5,
    steps: int = 15,
    cov: float = 0.02,
    seed: int = 0,
    peak_memory_bytes: float | None = 900e6,
    joules_per_token: float | None = None,
) -> GridCell:
    return GridCell(
        batch=batch,
        input_tokens=input_tokens,
        prefill_s=make_samples(prefill_s, repeats, cov=cov, seed=seed),
        decode_step_s=make_samples(decode_s, repeats * steps, cov=cov, seed=seed + 1),
        peak_memory_bytes=quantity(peak_memory_bytes, "not measured in this cell"),
        joules_per_token=quantity(joules_per_token, "no energy counter on this device"),
    )


def quantity(value: float | None, reason: str = "not measured") -> Quantity:
    return Quantity(value=value) if value is not None else Quantity(reason=reason)


def make_perplexity(value: float = 18.0, **overrides: Any) -> Perplexity:
    fields: dict[str, Any] = {
        "value": value,
        "tokens": 2047,
        "text": "built-in passage",
        "text_sha256": "0" * 64,
        "window_tokens": 1024,
    }
    return Perplexity(**{**fields, **overrides})


def make_baseline_result(
    dtype: str = "bfloat16",
    *,
    ttft_s: float = 0.15,
    itl_s: float = 0.06,
    decode_s: float | None = None,
    prefill_s: float | None = None,
    requests: Sequence[RequestRecord] | None = None,
    n_requests: int = 100,
    perplexity: float | None = 18.0,
    peak_memory_bytes: float | None = 1.1e9,
    joules_per_token: float | None = None,
    read_bandwidth_bytes_s: float | None = 12e9,
    loaded: LoadedModel | None = None,
    seed: int = 0,
    **overrides: Any,
) -> BaselineResult:
    """One baseline. Grid of batch 1 and 4 by 32 and 64 tokens; decode follows `itl_s`."""
    decode = itl_s if decode_s is None else decode_s
    prefill = ttft_s if prefill_s is None else prefill_s
    cells = tuple(
        make_cell(
            batch,
            tokens,
            prefill_s=prefill * batch * tokens / 64,
            decode_s=decode * (1 + 0.1 * (batch - 1)),
            seed=seed + 10 * batch + tokens,
        )
        for batch in (1, 4)
        for tokens in (32, 64)
    )
    records = (
        tuple(requests)
        if requests is not None
        else make_requests(n_requests, ttft_s=ttft_s, itl_s=itl_s, seed=seed)
    )
    ends = [r.token_s[-1] for r in records if r.token_s]
    fields: dict[str, Any] = {
        "model": loaded or make_loaded(dtype),
        "cold": make_cold(),
        "cells": cells,
        "requests": records,
        "arrivals": "closed_loop",
        "window_s": max(ends, default=0.0),
        "peak_memory_bytes": quantity(peak_memory_bytes),
        "memory_kind": "process_rss",
        "joules_per_token": quantity(joules_per_token, "no energy counter on this device"),
        "read_bandwidth_bytes_s": quantity(read_bandwidth_bytes_s),
        "perplexity": make_perplexity(perplexity) if perplexity is not None else None,
        "perplexity_reason": None if perplexity is not None else "random weights",
    }
    return BaselineResult(**{**fields, **overrides})


def make_kv_result(
    *,
    contexts: Sequence[int] = (64, 128, 256, 512),
    cached_s: float = 0.06,
    cached_growth: float = 1.05,
    uncached_s_per_token: float | None = 0.002,
    bytes_per_token: float = 23_040,
    bytes_after_release: float | None = 0.0,
    dtype: str = "bfloat16",
    **overrides: Any,
) -> KvCacheResult:
    """Cached steps that grow by `cached_growth` from first to last, uncached ones with context."""
    last = len(contexts) - 1
    points = tuple(
        KvPoint(
            context_tokens=context,
            cached_step_s=make_samples(
                cached_s * (1 + (cached_growth - 1) * index / max(1, last)), 35, seed=index
            ),
            uncached_step_s=(
                make_samples(cached_s + uncached_s_per_token * context, 35, seed=90 + index)
                if uncached_s_per_token is not None
                else Samples(values=())
            ),
            uncached_reason=None if uncached_s_per_token is not None else "too slow to recompute",
            cache_bytes=int(bytes_per_token * context),
            memory_bytes=Quantity(value=9e8 + bytes_per_token * context),
        )
        for index, context in enumerate(contexts)
    )
    fields: dict[str, Any] = {
        "model": make_loaded(dtype),
        "cold": make_cold(),
        "points": points,
        "bytes_after_release": quantity(bytes_after_release),
    }
    return KvCacheResult(**{**fields, **overrides})


def make_recorded_trace(**overrides: Any) -> RecordedTrace:
    """A GPU recording that is launch-bound, with one finding."""
    fields: dict[str, Any] = {
        "recorder": "torch",
        "work": "gpu",
        "bottleneck": "launch_bound",
        "confidence": "high",
        "confidence_reason": "the deciding figure is exact and far past its threshold",
        "sentence": "GPU idle 86.0 % of 642.0 ms: the host launches later than it could.",
        "window_s": Quantity(value=0.642),
        "busy_frac": Quantity(value=0.14),
        "idle_frac": Quantity(value=0.86),
        "shares": (ProfiledShare(name="GEMM", count=3036, time_s=0.0635, frac=0.712),),
        "findings": (
            TraceFinding(
                code="launch_overhead",
                title="Launch kernels in one go",
                detail="75 % of the window is idle because the launch came late.",
                change="Capture the step in CUDA graphs.",
                strength="strong",
                basis="measured",
                recoverable_s=Quantity(value=0.48),
                recoverable_frac=Quantity(value=0.75),
            ),
        ),
    }
    return RecordedTrace(**{**fields, **overrides})


def make_profile_result(**overrides: Any) -> ProfileResult:
    """One recording whose profiled steps take 1.2 times as long."""
    fields: dict[str, Any] = {
        "model": make_loaded("bfloat16"),
        "cold": make_cold(),
        "prefill_s": make_samples(0.2, 6),
        "decode_step_s": make_samples(0.05, 12),
        "profiled_step_s": make_samples(0.06, 8),
        "overhead_ratio": Quantity(value=1.2),
        "traces": (make_recorded_trace(),),
        "nsys_reason": "the nsys binary is not on the agent's path",
        "memory_reason": "there is no CUDA device",
    }
    return ProfileResult(**{**fields, **overrides})


def make_verify_result(
    candidate: EngineSettings | None = None,
    *,
    ratio: float = 0.5,
    ttft_ratio: float | None = None,
    ttft_s: float = 0.15,
    itl_s: float = 0.06,
    pairs: int = 6,
    requests_per_run: int = 6,
    run_cov: float = 0.01,
    perplexity_a: float | None = 18.0,
    perplexity_b: float | None = 18.0,
    seed: int = 0,
    **overrides: Any,
) -> VerifyResult:
    """ABBA runs in which B takes `ratio` of A's time (`ttft_ratio` for the first token)."""
    rng = np.random.default_rng(seed)
    candidate = candidate or EngineSettings(dtype="float32")
    runs = []
    for order in range(2 * pairs):
        side: Literal["a", "b"] = "a" if order % 4 in (0, 3) else "b"
        factor = float(rng.normal(1.0, run_cov))
        first = 1.0 if side == "a" else (ratio if ttft_ratio is None else ttft_ratio)
        requests = make_requests(
            requests_per_run,
            ttft_s=ttft_s * factor * first,
            itl_s=itl_s * factor * (1.0 if side == "a" else ratio),
            seed=seed + order,
        )
        runs.append(AbRun(side=side, order=order, requests=requests))
    missing = perplexity_a is None or perplexity_b is None
    fields: dict[str, Any] = {
        "model_a": make_loaded("bfloat16"),
        "model_b": make_loaded("float32" if candidate.dtype == "float32" else "bfloat16"),
        "candidate": candidate,
        "runs": tuple(runs),
        "perplexity_a": make_perplexity(perplexity_a) if perplexity_a is not None else None,
        "perplexity_b": make_perplexity(perplexity_b) if perplexity_b is not None else None,
        "perplexity_reason": "random weights" if missing else None,
    }
    return VerifyResult(**{**fields, **overrides})


# --- trials ------------------------------------------------------------------------------------


def make_validity(
    verdict: Literal["valid", "warn", "invalid"] = "valid",
    message: str = "another process used the device",
    check: str = "exclusive_device",
) -> Validity:
    return Validity(checks=(ValidityCheck(id=check, verdict=verdict, message=message),))


def make_environment(
    device: str = "cpu", *, threads: int | None = 2, **overrides: Any
) -> EnvironmentSnapshot:
    gpus = (
        (GpuInfo(index=0, uuid="GPU-0", name="NVIDIA H100 80GB HBM3", memory_bytes=80 * 1024**3),)
        if device != "cpu"
        else ()
    )
    fields: dict[str, Any] = {
        "host": HostInfo(
            hostname="bench-1",
            cpu="Intel Xeon",
            physical_cores=2,
            logical_cores=2,
            memory_bytes=16 * 1024**3,
            os="Linux 6.1",
        ),
        "gpus": gpus,
        "device": device,
        "versions": {"torch": "2.13.0", "transformers": "5.1.0"},
        "threads": threads,
    }
    return EnvironmentSnapshot(**{**fields, **overrides})


def make_result(measurements: Measurements, **overrides: Any) -> TrialResult:
    fields: dict[str, Any] = {
        "measurements": measurements,
        "environment": make_environment(),
        "validity": make_validity(),
        "started_at_s": START.timestamp(),
        "duration_s": 40.0,
    }
    return TrialResult(**{**fields, **overrides})


def make_served(result: BaselineResult | None = None, **served: Any) -> ServeResult:
    """A vLLM server that gave `result`. served: fields of `ServedEngine`."""
    result = result or make_baseline_result(arrivals="closed_loop")
    fields = {"engine": "vllm", "version": "0.33.0", "ready_s": {"value": 50.0}, **served}
    return ServeResult.model_validate(
        {**result.model_dump(), "experiment": "serve", "cells": (), "served": fields}
    )


def make_robustness(
    *, died_after: str | None = None, seen: dict[str, Any] | None = None, **lines: Any
) -> RobustnessResult:
    """A vLLM server that took everything well, but for `lines`: name -> a verdict, or fields of
    the check. seen: fields of what the overload showed; {} takes the usual ones."""
    checks = []
    for name in CHECKS:
        given = lines.get(name, "pass")
        fields = {"verdict": given} if isinstance(given, str) else given
        sentence = f"{name} was looked at"
        checks.append({"name": name, "verdict": "pass", "sentence": sentence, **fields})
    usual = {
        "sent": 64, "answered": 40, "refused": 24, "with_hint": 24, "failed": 0, "slowest_s": 4.0,
        "running_peak": 16, "waiting_peak": 24, "health_asked": 8, "health_bad": 0,
        "health_slowest_s": 0.02,
    }  # fmt: skip
    return RobustnessResult.model_validate(
        {
            "model": make_loaded().model_dump(),
            "served": {"engine": "vllm", "version": "0.33.0", "ready_s": {"value": 50.0}},
            "report": {
                "url": "vllm", "model": "model", "engine": "vllm", "started_at_s": 1.0,
                "duration_s": 30.0, "checks": checks, "health_at_end": 200,
                "overload": None if seen is None else usual | seen,
            },
            "memory_before_bytes": {"value": 4e9},
            "memory_after_bytes": {"value": 4.1e9},
            "died_after": died_after,
            "died_why": None if died_after is None else "vllm ended with code 1",
        }
    )  # fmt: skip


def make_failure(
    reason: FailureReason = FailureReason.OUT_OF_MEMORY, message: str = "cannot allocate 2.1 GiB"
) -> Failure:
    return Failure(reason=reason, message=message)


def trial_id(ordinal: int) -> str:
    return f"00000000-0000-4000-8000-{ordinal:012d}"


def make_trial(
    measurements: Measurements | None = None,
    *,
    ordinal: int = 1,
    role: Role = "current",
    settings: EngineSettings | None = None,
    failure: Failure | None = None,
    state: TrialState | None = None,
    validity: Validity | None = None,
    config: ExperimentConfig | None = None,
    environment: EnvironmentSnapshot | None = None,
    workload: Workload | None = None,
    title: str = "",
    duration_s: float = 40.0,
    attempts: int = 1,
) -> TrialEvidence:
    """A trial. Its state follows from what is given: measurements, a failure, or neither."""
    if state is None:
        state = "succeeded" if measurements else "failed" if failure else "queued"
    if settings is None:
        settings = EngineSettings(dtype="bfloat16")
    result = None
    if measurements is not None:
        result = make_result(
            measurements,
            validity=validity or make_validity(),
            environment=environment or make_environment(),
            duration_s=duration_s,
        )
    if config is None:
        config = _config_for(measurements)
    started = START + timedelta(minutes=ordinal)
    ended = state in ("succeeded", "failed", "cancelled", "quarantined")
    return TrialEvidence(
        trial_id=trial_id(ordinal),
        ordinal=ordinal,
        role=role,
        title=title or f"{role} {settings.dtype}",
        reason="built for a test",
        spec=TrialSpec(
            trial_id=trial_id(ordinal),
            model=LocalModel(name="SmolLM2-135M-Instruct"),
            settings=settings,
            workload=workload or make_workload(),
            config=config,
        ),
        state=state,
        result=result,
        failure=failure,
        attempts=attempts,
        started_at=None if state == "queued" else started,
        finished_at=started + timedelta(seconds=duration_s) if ended else None,
    )


def _config_for(measurements: Measurements | None) -> ExperimentConfig:
    if isinstance(measurements, KvCacheResult):
        return KvCacheConfig()
    if isinstance(measurements, ProfileResult):
        return ProfileConfig()
    if isinstance(measurements, VerifyResult):
        return VerifyConfig(candidate=measurements.candidate)
    if isinstance(measurements, RobustnessResult):
        return RobustnessConfig()
    if isinstance(measurements, InsideResult):
        return _INSIDE[measurements.experiment]()
    return BaselineConfig()


_INSIDE: dict[str, Callable[[], ExperimentConfig]] = {
    "attention": AttentionConfig,
    "batching": BatchingConfig,
    "calibrate": CalibrateConfig,
    "kernels": KernelsConfig,
    "quantisation": QuantisationConfig,
}


def make_current(**result: Any) -> TrialEvidence:
    """Trial 1: the current settings, bfloat16; keyword arguments go to `make_baseline_result`."""
    return make_trial(make_baseline_result("bfloat16", **result), ordinal=1, role="current")


def make_variant(dtype: str = "float32", *, ordinal: int = 3, **result: Any) -> TrialEvidence:
    """Another dtype, by default twice as fast as `make_current`."""
    fields: dict[str, Any] = {"ttft_s": 0.08, "itl_s": 0.03, "seed": 1, **result}
    return make_trial(
        make_baseline_result(dtype, **fields),
        ordinal=ordinal,
        role="variant",
        settings=EngineSettings.model_validate({"dtype": dtype}),
    )


def make_kv_trial(*, ordinal: int = 2, **result: Any) -> TrialEvidence:
    return make_trial(make_kv_result(**result), ordinal=ordinal, role="diagnosis")


def make_verification(*, ordinal: int = 4, **result: Any) -> TrialEvidence:
    return make_trial(make_verify_result(**result), ordinal=ordinal, role="verification")


def make_config_model() -> ConfigModel:
    return ConfigModel(name="bare config", config=SMOLLM2_CONFIG)
