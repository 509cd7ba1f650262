"""The trials table of a study and the tables of a trial page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor import units
from advisor.charts.samples import latency_at
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.knobs import knob_name, knob_text, settings_text
from advisor.reports import words
from advisor.reports.robustness import summary as robustness_summary
from advisor.targets import TargetStatus, limit_text, target_name, target_statuses, trial_metrics
from advisor.units import DASH, METRIC_NAMES
from advisor.verification import compare_runs
from gpuagent.wire import EnvironmentSnapshot, Quantity
from gpuagent.wire.inside import BatchingResult
from gpuagent.wire.robustness import RobustnessResult
from gpuagent.wire.sla import LatencyMetric, Statistic
from gpuagent.wire.trial import (
    BaselineResult,
    KvCacheResult,
    ProfileResult,
    VerifyResult,
)

OPEN = ("queued", "leased", "running", "lost")


@dataclass(frozen=True, slots=True)
class Cell:
    """One value of the table; `over`: it misses its target."""

    text: str
    spread: str
    over: bool


@dataclass(frozen=True, slots=True)
class TrialLine:
    """One trial in the study's table."""

    trial_id: str
    title: str
    note: str
    settings: tuple[tuple[str, bool], ...]
    """(value, differs from the current settings), one per differing knob."""
    cells: tuple[Cell, ...]
    kind: str
    word: str
    detail: str
    is_best: bool
    is_dim: bool
    is_measured: bool


@dataclass(frozen=True, slots=True)
class TrialsTable:
    knobs: tuple[str, ...]
    targets: tuple[str, ...]
    lines: tuple[TrialLine, ...]

    @property
    def comparable(self) -> bool:
        """Whether two trials have results, so that they can be marked and compared."""
        return sum(line.is_measured for line in self.lines) > 1

    @property
    def columns(self) -> int:
        return 2 + len(self.knobs) + len(self.targets)


def trials_table(evidence: StudyEvidence, best: TrialEvidence | None) -> TrialsTable:
    """Only the settings in which any trial differs from the current ones."""
    current = evidence.spec.current
    differing: dict[str, None] = {}
    for trial in evidence.trials:
        differing |= dict.fromkeys(current.differences(trial.settings))
    return TrialsTable(
        knobs=tuple(knob_name(knob) for knob in differing),
        targets=tuple(target_name(t) for t in evidence.spec.targets),
        lines=tuple(_line(t, evidence, tuple(differing), best) for t in evidence.trials),
    )


def _line(
    trial: TrialEvidence,
    evidence: StudyEvidence,
    knobs: tuple[str, ...],
    best: TrialEvidence | None,
) -> TrialLine:
    values, today = trial.settings.model_dump(), evidence.spec.current.model_dump()
    statuses = target_statuses(trial, evidence.spec)
    kind, word, detail = _outcome(trial, statuses)
    is_best = best is not None and trial.trial_id == best.trial_id
    return TrialLine(
        trial_id=trial.trial_id,
        title=f"{trial.ordinal} · {trial.title}",
        note="Best" if is_best and trial.role != "current" else "",
        settings=tuple((knob_text(values[k]), values[k] != today[k]) for k in knobs),
        cells=tuple(_cell(status) for status in statuses),
        kind=kind,
        word=word,
        detail=detail,
        is_best=is_best,
        is_dim=trial.state in OPEN or trial.state == "cancelled",
        is_measured=trial.result is not None,
    )


def _cell(status: TargetStatus) -> Cell:
    metric, value = status.target.metric, status.value
    spread = ""
    if status.low is not None and status.high is not None and status.high > status.low:
        half = (status.high - status.low) / 2
        spread = f"± {units.metric(metric, half, 2)}"
    return Cell(units.metric(metric, value), spread, status.verdict == "missed")


def _outcome(trial: TrialEvidence, statuses: Sequence[TargetStatus]) -> tuple[str, str, str]:
    kind, word = words.TRIALS[trial.state]
    if trial.failure is not None:
        return kind, word, trial.failure.kind.text
    if trial.state in OPEN:
        # The live panel says how far it is; this table is drawn anew when a trial ends.
        return "wait", "Not finished", ""
    if trial.result is None:
        return kind, word, ""
    if trial.result.validity.verdict == "invalid":
        return "warn", "Invalid", "; ".join(trial.result.validity.reasons)
    misused = trial.measured(RobustnessResult)
    if misused is not None:
        failed = misused.report.verdict == "fail"
        return "bad" if failed else "good", word, robustness_summary(misused.report)
    measured = [s for s in statuses if s.verdict != "not_measured"]
    if not measured:
        return kind, word, ""
    missed = [s for s in measured if s.verdict == "missed"]
    if missed:
        names = ", ".join(target_name(s.target) for s in missed)
        count = f"{len(missed)} targets missed" if len(missed) > 1 else f"{names} missed"
        return "bad", count, ""
    if all(s.verdict == "met" for s in statuses):
        return "good", "All targets met", ""
    return "warn", "Not proven", ""


# --- trial page --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MetricLine:
    """One latency metric with its percentiles; `reason` where a percentile is missing."""

    name: str
    mean: str
    cells: tuple[str, ...]
    interval: str
    limit: str
    kind: str
    word: str


_PERCENTILES: tuple[Statistic, ...] = ("p50", "p90", "p95", "p99")
_LATENCIES: tuple[LatencyMetric, ...] = ("ttft_s", "itl_s", "e2e_s")


def metric_lines(trial: TrialEvidence, evidence: StudyEvidence) -> tuple[MetricLine, ...]:
    """TTFT, ITL, E2E, then send delay; () for trials without requests."""
    metrics = trial_metrics(trial)
    if metrics is None or metrics.succeeded == 0:
        return ()
    judged = {s.target.metric: s for s in target_statuses(trial, evidence.spec)}
    lines = [_metric_line(trial, metric, judged.get(metric)) for metric in _LATENCIES]
    delay = metrics.queue_s
    if trial.spec.engine == "imported" and not delay.any():
        # The file does not tell when requests were due, so this is no measured zero.
        return tuple(lines)
    cells = tuple(units.seconds(float(np.quantile(delay, q))) for q in (0.5, 0.9, 0.95, 0.99))
    mean = units.seconds(float(delay.mean()))
    lines.append(MetricLine("Send delay", mean, cells, DASH, DASH, "", ""))
    return tuple(lines)


def _metric_line(
    trial: TrialEvidence, metric: LatencyMetric, judged: TargetStatus | None
) -> MetricLine:
    shown = [latency_at(trial, metric, p) for p in _PERCENTILES]
    wanted = judged or latency_at(trial, metric, "p50")
    kind, word = words.TARGETS[judged.verdict] if judged else ("", "")
    interval = DASH
    if wanted.low is not None:
        span = f"{units.seconds(wanted.low)} to {units.seconds(wanted.high)}"
        interval = f"{span} ({wanted.target.statistic})"
    return MetricLine(
        name=METRIC_NAMES[metric],
        mean=units.seconds(latency_at(trial, metric, "mean").value),
        cells=tuple(units.seconds(s.value) for s in shown),
        interval=interval,
        limit=f"≤ {limit_text(judged.target)} ({judged.target.statistic})" if judged else DASH,
        kind=kind,
        word=word,
    )


def sample_line(trial: TrialEvidence) -> str:
    """How many requests stand behind the table."""
    metrics = trial_metrics(trial)
    if metrics is None:
        return ""
    failed = f"{metrics.failed:,} failed" if metrics.failed else "0 failed"
    return f"{metrics.sent:,} requests, {failed}, {metrics.itl_s.size:,} token gaps"


def phase_lines(trial: TrialEvidence) -> tuple[tuple[str, str, str, str], ...]:
    """(phase, duration, counted?, note): cold start and warm time kept apart."""
    baseline = trial.measured(BaselineResult)
    one = (
        baseline
        or trial.measured(KvCacheResult)
        or trial.measured(ProfileResult)
        or trial.measured(BatchingResult)
    )
    cold = one.cold if one else None
    if cold is None or trial.result is None:
        return ()
    rounds = f"{cold.warmup_iterations} rounds, discarded"
    lines = [
        ("Import the engine", units.seconds(cold.import_s), "no", ""),
        ("Load the model", units.seconds(cold.load_s), "no", ""),
        ("First request", units.seconds(cold.first_request_ttft_s), "no", "Cold TTFT"),
        ("Warm-up", units.seconds(cold.warmup_s), "no", rounds),
    ]
    if baseline:
        window = units.seconds(baseline.window_s)
        lines.append(("Requests", window, "yes", f"{len(baseline.requests):,} measured"))
    lines.append(("Whole trial", units.seconds(trial.result.duration_s), "", ""))
    return tuple(lines)


def quantity_lines(trial: TrialEvidence) -> tuple[tuple[str, str, str], ...]:
    """(name, value, reason or how it was read) of what is measured once per trial."""
    result = trial.measured(BaselineResult)
    if result is None:
        return ()
    kind = {
        "process_rss": "resident memory of the process",
        "cuda_reserved": "CUDA allocator",
        "simulated": "share of the simulated device",
        "server_rss": "resident memory of all processes of the server",
        "server_device": "used device memory, the server's reserve included",
        "unknown": "",
    }
    peak, joules = result.peak_memory_bytes, result.joules_per_token
    idle, net = result.idle_power_w, result.net_joules_per_token
    bandwidth, quality = result.read_bandwidth_bytes_s, result.perplexity
    note = f"{quality.text}, {quality.tokens:,} tokens" if quality else result.perplexity_reason
    return (
        ("Peak memory", units.memory(peak.value), peak.reason or kind[result.memory_kind]),
        ("Energy", units.energy(joules.value), joules.reason or "energy counter ÷ output tokens"),
        ("Energy above idle", units.energy(net.value), net.reason or _idle_note(idle)),
        (
            "Read bandwidth",
            units.bandwidth(bandwidth.value),
            bandwidth.reason or "best of a few large reads, the ceiling of decode",
        ),
        ("Perplexity", units.number(quality.value if quality else None, 4), note or ""),
    )


def memory_lines(trial: TrialEvidence) -> tuple[tuple[str, str, str], ...]:
    """(name, value, reason or how it was read) of every memory reading of the trial."""
    baseline = trial.measured(BaselineResult)
    if baseline is not None:
        lines = [quantity_lines(trial)[0]]
        lines += [
            (
                f"Batch {cell.batch}, {cell.input_tokens:,} input tokens",
                units.memory(cell.peak_memory_bytes.value),
                cell.peak_memory_bytes.reason or "peak while this cell was measured",
            )
            for cell in baseline.cells
        ]
        return tuple(lines)
    cache = trial.measured(KvCacheResult)
    if cache is not None:
        lines = [
            (
                f"KV cache at {point.context_tokens:,} tokens",
                units.memory(point.cache_bytes),
                "bytes of its tensors, exact",
            )
            for point in cache.points
        ]
        held = cache.bytes_after_release
        note = held.reason or "above the level before, after the caches were dropped"
        return (*lines, ("Held after release", units.memory(held.value), note))
    profile = trial.measured(ProfileResult)
    if profile is None:
        return ()
    found = profile.memory
    if found is None:
        return (("Allocator", DASH, profile.memory_reason or "no snapshot"),)
    return (
        ("Allocated at most", units.memory(found.allocated_peak_bytes), "CUDA allocator"),
        ("Reserved at most", units.memory(found.reserved_peak_bytes), "CUDA allocator"),
        (
            "Fragmentation",
            units.percent(found.fragmentation_frac),
            "1 − allocated ÷ reserved, both at their peaks",
        ),
        ("Largest free block", units.memory(found.largest_free_bytes), "at the end"),
        ("Retries", f"{found.alloc_retries:,}", "allocations that had to free memory first"),
    )


def _idle_note(idle: Quantity) -> str:
    return f"without the {units.number(idle.value)}{units.NBSP}W of the idle device"


@dataclass(frozen=True, slots=True)
class ComparisonLine:
    """Candidate against current in an A/B trial."""

    name: str
    change: str
    interval: str
    noise: str
    runs: str
    kind: str
    word: str


_COMPARED = {
    "better": ("good", "Better"),
    "worse": ("bad", "Worse"),
    "no_proven_difference": ("na", "Within noise"),
}


def comparison_lines(trial: TrialEvidence) -> tuple[ComparisonLine, ...]:
    """Every compared metric of a verification; () for other experiments."""
    result = trial.measured(VerifyResult)
    if result is None:
        return ()
    lines = []
    for metric, found in compare_runs(result, trial.spec.workload).items():
        kind, word = _COMPARED[found.verdict]
        lines.append(
            ComparisonLine(
                name=METRIC_NAMES[metric],
                change=units.percent(found.ratio - 1),
                interval=f"{units.percent(found.low - 1)} to {units.percent(found.high - 1)}",
                noise=f"± {units.percent(found.noise_frac)}",
                runs=f"{found.n_a} and {found.n_b}",
                kind=kind,
                word=word,
            )
        )
    return tuple(lines)


def trial_headline(trial: TrialEvidence, evidence: StudyEvidence) -> str:
    """The trial in one sentence, with the numbers of its targets."""
    if trial.failure is not None:
        return f"{trial.failure.kind.text}: {trial.failure.message}"
    if trial.result is None:
        return f"Trial {trial.ordinal}: {trial.title}"
    misused = trial.measured(RobustnessResult)
    if misused is not None:
        return f"{trial.title}: {robustness_summary(misused.report)}"
    statuses = [s for s in target_statuses(trial, evidence.spec) if s.value is not None]
    if not statuses:
        return f"Trial {trial.ordinal}: {trial.title}"
    parts = [f"{target_name(s.target)} {units.metric(s.target.metric, s.value)}" for s in statuses]
    return ", ".join(parts)


def facts(trial: TrialEvidence) -> tuple[tuple[str, str], ...]:
    return (
        ("Settings", settings_text(trial.settings)),
        ("Engine", trial.spec.engine),
        ("Experiment", trial.spec.experiment),
        ("Measured", sample_line(trial) or DASH),
        ("Attempts", str(trial.attempts)),
    )


def setting_lines(
    trial: TrialEvidence, evidence: StudyEvidence
) -> tuple[tuple[str, str, str, bool], ...]:
    """(knob, value in this trial, current value, differs?)."""
    values, today = trial.settings.model_dump(), evidence.spec.current.model_dump()
    return tuple(
        (knob_name(knob), knob_text(value), knob_text(today[knob]), value != today[knob])
        for knob, value in values.items()
    )


@dataclass(frozen=True, slots=True)
class EnvironmentLine:
    """One fact of the machine; `other` is the current trial's value where it differs."""

    name: str
    value: str
    other: str


def environment_table(trial: TrialEvidence, evidence: StudyEvidence) -> tuple[EnvironmentLine, ...]:
    """The trial's own snapshot, differences from the current trial's first."""
    if trial.result is None:
        return ()
    mine = _flat(trial.result.environment)
    base = evidence.current
    theirs = _flat(base.result.environment) if base and base.result else mine
    lines = [
        EnvironmentLine(name, value, theirs.get(name, DASH) if theirs.get(name) != value else "")
        for name, value in mine.items()
    ]
    return tuple(sorted(lines, key=lambda line: not line.other))


def _flat(snapshot: EnvironmentSnapshot) -> dict[str, str]:
    host = snapshot.host
    if host is None:
        return {"Device": snapshot.device} | snapshot.versions
    flat = {
        "Device": snapshot.device,
        "Host": host.hostname,
        "CPU": f"{host.cpu}, {host.logical_cores} logical cores",
        "Memory": units.memory(host.memory_bytes),
        "System": host.os,
        "Driver": snapshot.driver_version or DASH,
        "Threads": str(snapshot.threads) if snapshot.threads is not None else DASH,
    }
    for gpu in snapshot.gpus:
        limit = f", {gpu.power_limit_w:.0f}{units.NBSP}W" if gpu.power_limit_w else ""
        flat[f"GPU {gpu.index}"] = f"{gpu.name}, {units.memory(gpu.memory_bytes)}{limit}"
    settings = {
        knob_name(knob): knob_text(_WRITTEN.get(value, value))
        for knob, value in snapshot.settings.items()
    }
    return flat | snapshot.versions | settings


# A snapshot holds settings as text.
_WRITTEN: dict[str, bool | None] = {"True": True, "False": False, "None": None}
