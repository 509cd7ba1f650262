"""What several rules start from: the current baseline, service time, a memory plan. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from advisor import units
from advisor.catalog import GpuSpec, UnknownNameError, cpu_host, find_gpu
from advisor.estimates.models import ResolvedModel
from advisor.estimates.rows import RowError
from advisor.estimates.service import Estimate, EstimateRequest, estimate
from advisor.evidence import Measurement, StudyEvidence, TrialEvidence
from advisor.measures import Ratio, distances, median_s, resolved_dtype
from advisor.rules.rule import EvidenceItem, Finding, Verdict
from advisor.shapes import ShapeError
from advisor.targets import hides_tokens, target_statuses, trial_metrics
from gpuagent.stats import summarise
from gpuagent.wire import LengthSpec, Workload
from gpuagent.wire.trial import (
    BaselineConfig,
    BaselineResult,
    GridCell,
    KvCacheConfig,
    ServerCounters,
)

MIN_REQUESTS = 5


def plain(
    rule_id: str, verdict: Verdict, title: str, *items: EvidenceItem, summary: str = ""
) -> list[Finding]:
    """A finding without advice."""
    return [Finding(rule_id=rule_id, verdict=verdict, title=title, summary=summary, evidence=items)]


def ratio_item(
    text: str, ratio: Ratio, trial: TrialEvidence, *, chart: str | None = None
) -> EvidenceItem:
    """A measured ratio with its interval as evidence; `text` says what was divided by what."""
    return EvidenceItem(
        text=text,
        value=ratio.value,
        low=ratio.low,
        high=ratio.high,
        unit="×",
        n=ratio.n,
        trial_id=trial.trial_id,
        chart=chart,
    )


def not_applicable(rule_id: str, title: str, missing: str) -> list[Finding]:
    """The rule says nothing; `missing` is what would make it speak."""
    return [Finding(rule_id=rule_id, verdict=Verdict.NOT_APPLICABLE, title=title, missing=missing)]


def missing_trial(evidence: StudyEvidence, experiment: str) -> str:
    """How to get a trial of `experiment`: never the goal or the option that the study has."""
    what = f"{'An' if experiment[0] in 'aeiou' else 'A'} {experiment} trial"
    spec = evidence.spec
    if spec.engine == "imported":
        return f"{what}, in a study that an agent measures"
    chosen = {"profile": spec.profile, "robustness": spec.tests_robustness}
    if not chosen.get(experiment, spec.goal == "diagnose"):
        return (
            f"{what}: choose it when submitting the study"
            if experiment in chosen
            else f"{what}: choose the goal diagnose"
        )
    trial = next((t for t in evidence.trials if t.spec.experiment == experiment), None)
    if trial is None:
        return f"{what} that is valid: the plan left it out, or its measurement was disturbed"
    if trial.failure is not None:
        return f"{what} that succeeds: trial {trial.ordinal} failed, “{trial.failure.kind.text}”"
    if trial.state == "cancelled":
        return f"{what} that is not cancelled, as trial {trial.ordinal} was"
    return f"The end of trial {trial.ordinal}, which measures it"


def chunks_not_tokens(rule_id: str, evidence: StudyEvidence) -> list[Finding]:
    """Why the rule says nothing where an imported file has times of chunks, not of tokens; else
    no finding."""
    trial = evidence.current
    if trial is None or not trial.usable or not hides_tokens(trial):
        return []
    missing = "Times of single tokens, in a study that an agent measures"
    return not_applicable(rule_id, "The tool's chunks carry several tokens each", missing)


def current_baseline(evidence: StudyEvidence) -> tuple[TrialEvidence, BaselineResult] | None:
    """The usable baseline of the current settings, or None."""
    trial = evidence.current
    result = trial.measured(BaselineResult) if trial is not None and trial.usable else None
    return (trial, result) if trial is not None and result is not None else None


def current_start(evidence: StudyEvidence) -> tuple[TrialEvidence, BaselineResult] | None:
    """`current_baseline` of an engine that really started: a simulated one loads no model, and of
    an imported one nothing is known."""
    started = evidence.spec.engine not in ("simulated", "imported")
    return current_baseline(evidence) if started else None


def server_counters(evidence: StudyEvidence) -> tuple[TrialEvidence, ServerCounters] | None:
    """What the serving engine counted under the current settings at a request rate, or None."""
    found = current_baseline(evidence)
    if found is None or found[1].server is None or found[1].arrivals != "poisson":
        return None
    return found[0], found[1].server


def shares_of(server: ServerCounters) -> str:
    """What the counters' shares are of: "1,204 steps" or "60 samples, one a second"."""
    count = "an unknown number of" if server.shares_n is None else f"{server.shares_n:,}"
    return f"{count} samples, one a second," if server.shares_of == "samples" else f"{count} steps"


NO_COUNTERS = "A serving engine under a request rate, with its own counters"


def latest(
    evidence: StudyEvidence, kind: type[Measurement]
) -> tuple[TrialEvidence, Measurement] | None:
    """The newest usable trial with this kind of measurement, or None."""
    for trial in reversed(evidence.trials):
        result = trial.measured(kind)
        if result is not None and trial.usable:
            return trial, result
    return None


def hurts(evidence: StudyEvidence, *metrics: str) -> bool:
    """Without targets at all, or with one on these metrics that was measured and is not met."""
    if not evidence.spec.targets:
        return True
    statuses = target_statuses(evidence.current, evidence.spec)
    return any(
        s.target.metric in metrics and s.verdict in ("missed", "not_proven") for s in statuses
    )


def modelled_gain(evidence: StudyEvidence, changes: dict[str, float]) -> float:
    """Share of the distance to the unmet targets that relative changes of metrics close, 0..1.

    changes: metric -> relative change of its value, -0.3 for 30 % less.
    """
    trial = evidence.current
    if trial is None or not trial.usable:
        return 0.0
    targets = evidence.spec.targets
    closed = []
    for target, now in zip(targets, distances(evidence, trial), strict=True):
        if not now > 0:
            continue
        factor = 1 + changes.get(target.metric, 0.0)
        if target.higher_is_better:
            factor = 1 / factor if factor > 0 else 1.0
        then = (1 + now) * factor - 1
        closed.append(min(1.0, max(0.0, (now - max(then, 0.0)) / now)))
    return sum(closed) / len(closed) if closed else 0.0


# --- lengths and load --------------------------------------------------------------------------


def mean_tokens(workload: Workload) -> int:
    """Prompt and answer of a mean request."""
    return workload.input_tokens.mean + workload.output_tokens.mean


def longest_tokens(workload: Workload) -> int:
    """Prompt and answer of the longest request that the workload names: its cut, else its p95."""
    return _longest(workload.input_tokens) + _longest(workload.output_tokens)


def longest_prompt_tokens(workload: Workload) -> int:
    """The longest prompt that the workload names."""
    return _longest(workload.input_tokens)


def _longest(length: LengthSpec) -> int:
    if length.kind == "fixed":
        return length.mean
    return length.maximum or length.p95 or length.mean


def rounded_context(fits: int, longest: int) -> int:
    """The shortest power of two that holds the workload's longest request, where it fits; else
    what fits."""
    size = 1 << max(0, longest - 1).bit_length()
    return size if longest <= size <= fits else fits


def largest_cache(trial: TrialEvidence) -> tuple[int, int]:
    """(tokens, batch) of the largest cache that the trial asks for."""
    config, workload = trial.spec.config, trial.spec.workload
    mean = mean_tokens(workload)
    if isinstance(config, KvCacheConfig):
        return max(config.context_tokens) + config.decode_steps, 1
    if isinstance(config, BaselineConfig):
        grid = max(config.input_tokens) + config.decode_steps
        batch = max(config.batch_sizes)
        return (grid, batch) if grid * batch >= mean else (mean, 1)
    return mean, 1


@dataclass(frozen=True, slots=True)
class ServiceTime:
    """Seconds that one request alone keeps the engine busy, with the 95 % interval of the mean."""

    value_s: float
    low_s: float | None
    high_s: float | None
    n: int
    basis: str


def service_time(
    trial: TrialEvidence, result: BaselineResult, workload: Workload
) -> ServiceTime | None:
    """From requests sent one after the other, else from the grid's cell at batch 1.

    Requests that overlap wait for each other, so their own latency is no service time.
    """
    metrics = trial_metrics(trial)
    if result.arrivals == "closed_loop" and metrics is not None:
        if metrics.succeeded >= MIN_REQUESTS and not metrics.overlapping:
            spread = summarise(metrics.e2e_s - metrics.queue_s)
            return ServiceTime(
                spread.mean, spread.mean_low, spread.mean_high, spread.n, "one request at a time"
            )
        return None
    prefill_s = unloaded_prefill_s(result, workload.input_tokens.mean)
    cell = _cell_near(result, workload.input_tokens.mean)
    step_s = median_s(cell.decode_step_s) if cell is not None else None
    if prefill_s is None or step_s is None or cell is None:
        return None
    total = prefill_s + step_s * max(0, workload.output_tokens.mean - 1)
    return ServiceTime(total, None, None, cell.prefill_s.n, "grid at batch 1")


def unloaded_prefill_s(result: BaselineResult, tokens: int) -> float | None:
    """Median prefill at batch 1, by the two grid lengths around `tokens` or the nearest one."""
    points = sorted(
        (cell.input_tokens, value)
        for cell in result.cells
        if cell.batch == 1 and (value := median_s(cell.prefill_s)) is not None
    )
    if not points:
        return None
    if len(points) == 1 or tokens <= points[0][0]:
        return points[0][1]
    below = max((p for p in points if p[0] <= tokens), default=points[0])
    above = min((p for p in points if p[0] > tokens), default=None)
    if above is None:
        # Beyond the grid prefill grows at least in proportion to the prompt.
        return below[1] * tokens / below[0]
    return below[1] + (above[1] - below[1]) * (tokens - below[0]) / (above[0] - below[0])


def _cell_near(result: BaselineResult, tokens: int) -> GridCell | None:
    cells = [cell for cell in result.cells if cell.batch == 1]
    return min(cells, key=lambda cell: abs(cell.input_tokens - tokens), default=None)


def needed_concurrency(evidence: StudyEvidence) -> tuple[int, str] | None:
    """(sequences in flight at the workload's rate, how it follows) by Little's law, or None.

    A lower bound: sequences that share steps take longer than one alone.
    """
    rate = evidence.spec.workload.request_rate_per_s
    found = current_baseline(evidence)
    service = service_time(*found, evidence.spec.workload) if found is not None else None
    if rate is None or service is None:
        return None
    text = (
        f"{units.number(rate)}{units.NBSP}req/s × {units.seconds(service.value_s)} per request "
        f"({service.basis}, n = {service.n})"
    )
    return max(1, math.ceil(rate * service.value_s - 1e-9)), text


# --- predictions -------------------------------------------------------------------------------


def device_spec(evidence: StudyEvidence) -> GpuSpec | None:
    """The study's device as the catalogue knows it, with the memory that its driver shows."""
    device = evidence.device
    if device is None or device.memory_bytes is None:
        return None
    if device.kind == "cpu":
        # Only memory is read from this row; rates of a processor are measured, not looked up.
        return cpu_host(memory_bytes=device.memory_bytes, cores=1)
    try:
        spec = find_gpu(device.name)
    except UnknownNameError:
        return None
    return replace(spec, usable_bytes=device.memory_bytes, usable_is_measured=True)


def predict(
    evidence: StudyEvidence, *, gpu: GpuSpec | None = None, **changes: Any
) -> Estimate | None:
    """The estimate of the study's model on its device; None without a shape or a known device.

    changes: fields of `EstimateRequest` other than the study's own.
    """
    request = request_of(evidence, gpu=gpu)
    if request is None:
        return None
    try:
        return estimate(replace(request, **changes))
    except (RowError, ShapeError):
        return None


def request_of(evidence: StudyEvidence, *, gpu: GpuSpec | None = None) -> EstimateRequest | None:
    """What to estimate for the study's model and workload, by default on its own device."""
    shape, spec = evidence.shape, gpu or device_spec(evidence)
    if shape is None or spec is None:
        return None
    workload = evidence.spec.workload
    return EstimateRequest(
        model=ResolvedModel(shape, evidence.spec.model.label),
        gpu=spec,
        engine="transformers",
        dtype=resolved_dtype(evidence.spec.current, shape),
        isl=workload.input_tokens.mean,
        osl=workload.output_tokens.mean,
        concurrency=1,
    )
