"""The moving part of a running study: current trial, progress, the agent's last samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.utils import timezone

from advisor import units
from advisor.fleet.models import Agent
from advisor.fleet.selectors import telemetry_window
from advisor.pages.present.studies import PhaseStep, phase_steps
from advisor.reports import words
from advisor.studies.models import Study, Trial
from advisor.studies.services import study_progress
from gpuagent.wire import HostSample

WINDOW_S = 120.0
_SPARK_POINTS = 60


@dataclass(frozen=True, slots=True)
class Gauge:
    """One live value with the last two minutes as a line (points of an SVG polyline)."""

    name: str
    value: str
    points: str
    note: str


@dataclass(frozen=True, slots=True)
class TrialStep:
    """One trial in the list beside the progress bar."""

    title: str
    trial_id: str
    kind: str
    word: str
    seconds: str
    is_dim: bool
    can_cancel: bool


@dataclass(frozen=True, slots=True)
class Live:
    """What `fragments/live.html` prints. `marker` changes when the whole page has to be redrawn."""

    marker: str
    phases: tuple[PhaseStep, ...]
    done: int
    total: int
    percent: float
    now: Trial | None
    now_percent: float
    left_s: float | None
    steps: tuple[TrialStep, ...]
    gauges: tuple[Gauge, ...]
    sampled_at: datetime | None
    agent_silent_s: float | None


def live_of(study: Study, trials: Sequence[Trial]) -> Live:
    done, total, share = study_progress(trials)
    running = next((t for t in trials if t.is_live), None)
    samples = _samples(study.agent)
    agent = study.agent
    return Live(
        marker=live_marker(study, trials),
        phases=phase_steps(study.phase),
        done=done,
        total=total,
        percent=round(share * 100, 1),
        now=running,
        now_percent=round((running.done_frac or 0.0) * 100, 1) if running else 0.0,
        left_s=_left_s(trials),
        steps=tuple(_step(trial) for trial in trials),
        gauges=_gauges(samples),
        sampled_at=datetime.fromtimestamp(samples[-1].at_s, tz=UTC) if samples else None,
        agent_silent_s=agent.silent_s if agent is not None and not agent.is_reachable else None,
    )


def live_marker(study: Study, trials: Sequence[Trial]) -> str:
    """Changes with what the sentence on top follows from: the first start and every evaluation."""
    started = any(trial.started_at for trial in trials)
    evaluated = study.evaluated_at.timestamp() if study.evaluated_at else 0
    return f"{study.state}-{started:d}-{evaluated}"


def _left_s(trials: Sequence[Trial]) -> float | None:
    """Rough: the running trial's own estimate, the planned ones' estimates after it."""
    known = [_remaining_s(trial) for trial in trials if not trial.is_terminal]
    return sum(value for value in known if value is not None) if any(known) else None


def _remaining_s(trial: Trial) -> float | None:
    if trial.remaining_s is not None and trial.is_live:
        return trial.remaining_s
    if trial.estimate_s is None:
        return None
    return trial.estimate_s * (1 - (trial.done_frac or 0.0))


def _step(trial: Trial) -> TrialStep:
    kind, word = words.TRIALS[trial.state]
    if trial.state == "running" and trial.done_frac:
        word = f"{word}, {units.percent(trial.done_frac)}"
    if trial.cancel_requested_at is not None and not trial.is_terminal:
        kind, word = "run", "Cancelling"
    return TrialStep(
        title=f"{trial.ordinal} · {trial.title}",
        trial_id=str(trial.pk),
        kind=kind,
        word=word,
        seconds=_spent(trial),
        is_dim=trial.state == "queued",
        can_cancel=not trial.is_terminal and trial.cancel_requested_at is None,
    )


def _spent(trial: Trial) -> str:
    if trial.started_at is None:
        about = trial.estimate_s
        return f"about {units.seconds(about, 2)}" if about else units.DASH
    end = trial.finished_at or timezone.now()
    return units.seconds((end - trial.started_at).total_seconds(), 2)


# --- telemetry ---------------------------------------------------------------------------------


def _samples(agent: Agent | None) -> list[HostSample]:
    if agent is None:
        return []
    now = timezone.now()
    return telemetry_window(agent, now - timedelta(seconds=WINDOW_S), now)


def _gauges(samples: Sequence[HostSample]) -> tuple[Gauge, ...]:
    """Host always; the first GPU where there is one. A value never sampled has no gauge."""
    if not samples:
        return ()
    gauges = [
        _gauge("CPU", [s.cpu_frac for s in samples], units.percent, top=1.0),
        _gauge("Load", [s.load_1min for s in samples], units.number),
        _gauge("Trial CPU", [s.child_cpu_cores for s in samples], _cores),
        _gauge("Trial memory", [s.child_rss_bytes for s in samples], units.memory),
        _gauge("Free memory", [s.memory_available_bytes for s in samples], units.memory),
    ]
    if any(s.gpus for s in samples):
        first = [s.gpus[0] if s.gpus else None for s in samples]
        gauges = [
            _gauge("GPU", [g.util_frac if g else None for g in first], units.percent, top=1.0),
            _gauge("GPU memory", [g.memory_used_bytes if g else None for g in first], units.memory),
            _gauge("Power", [g.power_w if g else None for g in first], _watts),
            _gauge("Temperature", [g.temperature_c if g else None for g in first], _celsius),
            _gauge("SM clock", [g.sm_clock_hz if g else None for g in first], _megahertz),
            gauges[0],
        ]
    return tuple(g for g in gauges if g is not None)


def _cores(value: float | None) -> str:
    return units.DASH if value is None else f"{units.number(value, 2)}{units.NBSP}cores"


def _watts(value: float | None) -> str:
    return units.DASH if value is None else f"{units.number(value)}{units.NBSP}W"


def _celsius(value: float | None) -> str:
    return units.DASH if value is None else f"{units.number(value, 2)}{units.NBSP}°C"


def _megahertz(value: float | None) -> str:
    return units.DASH if value is None else f"{units.number(value / 1e6, 4)}{units.NBSP}MHz"


def _gauge(
    name: str,
    values: Sequence[float | None],
    text: Callable[[float | None], str],
    top: float | None = None,
) -> Gauge | None:
    known = [v for v in values if v is not None]
    if not known:
        return None
    mean = sum(known) / len(known)
    return Gauge(name, text(known[-1]), spark(values, top), f"mean {text(mean)}")


def spark(values: Sequence[float | None], top: float | None = None) -> str:
    """Points of a polyline in a 100 × 26 box; gaps are left out, zero is the bottom."""
    if len(values) > _SPARK_POINTS:
        step = len(values) / _SPARK_POINTS
        values = [values[int(n * step)] for n in range(_SPARK_POINTS)]
    known = [v for v in values if v is not None]
    if not known:
        return ""
    scale = top or max(known) or 1.0
    last = max(1, len(values) - 1)
    return " ".join(
        f"{n * 100 / last:.1f},{25 - min(v / scale, 1.0) * 23:.1f}"
        for n, v in enumerate(values)
        if v is not None
    )
