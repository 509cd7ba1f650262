"""A study's evidence as the history of a search, and its next trial. Pure.

Loss: the largest share of a limit that any target takes (below 1 every target is kept), without
targets the mean end-to-end latency. A target that was not measured makes a trial useless here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor.boundaries import boundary_for
from advisor.estimates.memory import allowed_tp
from advisor.evidence import DeviceFacts, StudyEvidence, TrialEvidence
from advisor.knobs import knob_inside
from advisor.measures import distances
from advisor.search import (
    DEGREES,
    Failure,
    Knobs,
    Observation,
    Proposal,
    Signals,
    Space,
    Value,
    propose,
)
from advisor.shapes import ModelShape
from advisor.targets import trial_metrics
from gpuagent.simulator import ServingKnobs
from gpuagent.wire import EngineSettings, FailureReason, StudySpec
from gpuagent.wire.serving import ServeConfig
from gpuagent.wire.settings import PARALLEL_SERVERS, SERVING_KNOBS
from gpuagent.wire.trial import BaselineConfig, BaselineResult

MAX_TRIALS = 15
# So many trials in a row that found nothing better end the search.
PATIENCE = 6
NOISE_FRAC = 0.03
SCALES: dict[str, tuple[Value, ...]] = {
    "max_running": (8, 16, 32, 64, 96, 128, 192, 256, 512, 1024),
    "max_batched_tokens": (256, 512, 768, 1024, 1536, 2048, 4096, 8192, 16384),
    "chunked_prefill": (False, True),
    "memory_share_frac": (0.6, 0.7, 0.8, 0.85, 0.9, 0.92, 0.94, 0.96),
    "kv_dtype": ("auto", "fp8"),
    "cuda_graphs": (False, True),
}
MEMORY = {"memory_share_frac": 1, "max_running": 1, "cuda_graphs": 1, "tensor_parallel": -1}
CACHE = {"memory_share_frac": 1, "kv_dtype": 1, "max_batched_tokens": -1, "tensor_parallel": 1}
_GPU_ONLY = frozenset({"memory_share_frac", "kv_dtype", "cuda_graphs"})
_SEARCHED = (*SERVING_KNOBS, *DEGREES)
_COPIES = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class NextTrial:
    settings: EngineSettings
    reason: str


def next_trial(evidence: StudyEvidence) -> NextTrial | None:
    """What to try next; None where the search has ended."""
    history = [
        seen
        for trial in evidence.trials
        if trial.role in ("current", "variant")
        and isinstance(trial.spec.config, BaselineConfig | ServeConfig)
        and (seen := observation(evidence, trial)) is not None
    ]
    if len(history) >= MAX_TRIALS or _stalled(history):
        return None
    spec, device = evidence.spec, evidence.device
    plain = defaults_of(spec, device)
    current = knobs_of(spec.current, plain)
    space = space_of(spec, device, evidence.shape)
    # What this device does not have stays as it is in the reference of the defaults, too.
    default = {
        knob: value if value in space.values[knob] else space.values[knob][0]
        for knob, value in knobs_of(EngineSettings(), plain).items()
    }
    found: Proposal | None = propose(space, history, current=current, default=default)
    if found is None:
        return None
    return NextTrial(_settings(spec.current, found.knobs, plain), _in_words(found.reason))


def _in_words(reason: str) -> str:
    for knob in _SEARCHED:
        reason = reason.replace(knob, knob_inside(knob))
    return reason


def _settings(current: EngineSettings, knobs: Knobs, plain: Knobs) -> EngineSettings:
    """Settings with these knobs; what is as today stays as it is written today."""
    before = knobs_of(current, plain)
    changed = {knob: value for knob, value in knobs.items() if value != before[knob]}
    settings = current.model_copy(update=changed)
    # One knob's default may follow from another's value.
    same = knobs_of(settings, plain) == dict(knobs)
    return settings if same else current.model_copy(update=dict(knobs))


def is_default(spec: StudySpec, device: DeviceFacts | None, settings: EngineSettings) -> bool:
    """Whether the engine would do the same without any setting."""
    plain = defaults_of(spec, device)
    return knobs_of(settings, plain) == knobs_of(EngineSettings(), plain)


def space_of(spec: StudySpec, device: DeviceFacts | None, shape: ModelShape | None) -> Space:
    """The scales, with the values of the current and of the default settings among them.

    On a CPU there is no share of device memory, no cache in fp8 and no graph to be captured, so
    those stay as they are. Degrees are searched where the agent has the devices.
    """
    plain = defaults_of(spec, device)
    on_cpu = spec.engine != "simulated" and device is not None and device.kind == "cpu"
    values: dict[str, tuple[Value, ...]] = {}
    for knob, scale in SCALES.items():
        current = knobs_of(spec.current, plain)[knob]
        if on_cpu and knob in _GPU_ONLY:
            values[knob] = (current,)
            continue
        own = {current, knobs_of(EngineSettings(), plain)[knob]}
        if spec.engine != "simulated" and knob == "max_running":
            # More than ever arrive at once cannot be told apart.
            most = 2 * spec.workload.requests
            scale = tuple(value for value in scale if int(value) <= most) or scale[:1]
        new = own - set(scale)
        values[knob] = tuple(sorted({*scale, *own})) if new else scale
    devices = _devices(spec, device)
    for degree in DEGREES:
        values[degree] = _degrees(spec, degree, devices, shape)
    return Space(values=values, memory=MEMORY, cache=CACHE, devices=devices)


def _devices(spec: StudySpec, device: DeviceFacts | None) -> int:
    """What tensor parallel size times copies may reach; as today where nothing is to be split."""
    today: int = math.prod(getattr(spec.current, degree) or 1 for degree in DEGREES)
    if spec.engine not in PARALLEL_SERVERS or device is None or device.kind != "gpu":
        return today
    return max(today, device.count // (spec.current.pipeline_parallel or 1))


def _degrees(
    spec: StudySpec, degree: str, devices: int, shape: ModelShape | None
) -> tuple[Value, ...]:
    """Fewer devices than today answer no sooner, so they are tried only where the rate per device
    decides. Each device of a split takes whole heads: without a shape nothing is split."""
    today = getattr(spec.current, degree) or 1
    scale: Sequence[int] = [v for v in _COPIES if v <= devices]
    if degree == "tensor_parallel":
        scale = allowed_tp(shape, devices) if shape is not None else ()
    return tuple(sorted({today, *(v for v in scale if v > today or spec.boundary)}))


def defaults_of(spec: StudySpec, device: DeviceFacts | None) -> Knobs:
    """What the engine does where nothing is said; the degrees stay as they are today.

    vLLM 0.32 and 0.33 choose by memory (1,024 requests and 8,192 tokens from 70 GiB on, else 256
    and 2,048; on a CPU 128 and 2,048). What the current settings' own start reported is better
    than this table, but the first trial has to be planned without it.
    """
    simulated = ServingKnobs()
    found: dict[str, Value] = {knob: getattr(simulated, knob) for knob in SERVING_KNOBS}
    found |= {degree: getattr(spec.current, degree) or 1 for degree in DEGREES}
    if spec.engine == "simulated" or device is None:
        return found
    if device.kind == "cpu":
        return {**found, "max_running": 128, "max_batched_tokens": 2048}
    large = (device.memory_bytes or 0) >= 70 * 2**30
    if large:
        return {**found, "max_running": 1024, "max_batched_tokens": 8192}
    return {**found, "max_running": 256, "max_batched_tokens": 2048}


def knobs_of(settings: EngineSettings, plain: Knobs) -> Knobs:
    """The searched knobs with the engine's own defaults for what is left open."""
    found: dict[str, Value] = {}
    for knob in _SEARCHED:
        value = getattr(settings, knob)
        found[knob] = plain[knob] if value is None else value
    running, budget = found["max_running"], found["max_batched_tokens"]
    if settings.max_running is None and isinstance(running, int) and isinstance(budget, int):
        found["max_running"] = min(running, budget)
    return found


def observation(evidence: StudyEvidence, trial: TrialEvidence) -> Observation | None:
    """None for a trial that has not ended, or that no search can learn from."""
    knobs = knobs_of(trial.settings, defaults_of(evidence.spec, evidence.device))
    if trial.failure is not None:
        return Observation(knobs, None, failure=_failure(trial))
    if trial.state == "cancelled":
        # Whoever cancelled it did not want this configuration; it is not proposed again.
        return Observation(knobs, None, failure="other")
    if not trial.usable or trial.measured(BaselineResult) is None:
        return None
    return Observation(knobs, loss_of(evidence, trial), _signals(evidence, trial))


def loss_of(evidence: StudyEvidence, trial: TrialEvidence) -> float | None:
    if evidence.spec.boundary:
        # The question is then how much load a device takes, not how it does at one.
        found = boundary_for(trial, evidence.spec)
        rate = found.rate_per_s if found is not None else None
        return trial.settings.gpus / rate if rate else None
    if evidence.spec.targets:
        apart = distances(evidence, trial)
        return None if any(math.isnan(d) for d in apart) else 1 + max(apart)
    metrics = trial_metrics(trial)
    if metrics is None or not metrics.succeeded:
        return None
    return float(np.mean(metrics.e2e_s))


def _failure(trial: TrialEvidence) -> Failure:
    failure = trial.failure
    if failure is None:
        return "other"
    if failure.reason is FailureReason.OUT_OF_MEMORY:
        return "cache_too_small" if failure.detail == "cache_too_small" else "out_of_memory"
    return "config_error" if failure.reason is FailureReason.CONFIG_ERROR else "other"


def _signals(evidence: StudyEvidence, trial: TrialEvidence) -> Signals | None:
    result = trial.measured(BaselineResult)
    server = result.server if result is not None else None
    if server is None:
        return None
    ratios: dict[str, float] = {}
    targets = evidence.spec.targets
    for target, distance in zip(targets, distances(evidence, trial), strict=True):
        if not math.isnan(distance):
            ratios[target.metric] = max(ratios.get(target.metric, 0.0), 1 + distance)
    return Signals(
        ttft_ratio=ratios.get("ttft_s"),
        itl_ratio=ratios.get("itl_s"),
        full_share=server.full_frac,
        starved_share=server.starved_frac,
        eager_share=server.eager_frac,
        mixed_share=server.mixed_frac,
        preemptions=server.preemptions,
        kv_peak_frac=server.kv_peak_frac,
        running_peak=server.running_peak,
    )


def _stalled(history: list[Observation]) -> bool:
    """Whether the last trials brought nothing beyond the noise."""
    early, late = history[:-PATIENCE], history[-PATIENCE:]
    before = [seen.loss for seen in early if seen.loss is not None]
    after = [seen.loss for seen in late if seen.loss is not None]
    if not before:
        return False
    return not after or min(after) > min(before) * (1 - NOISE_FRAC)
