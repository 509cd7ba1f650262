"""The page of one agent: its ceilings and their drift, its inventory and its last trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from advisor import units
from advisor.fleet.models import Agent
from advisor.pages.present import telemetry
from advisor.pages.present.agents import AgentCard, agent_card
from advisor.pages.present.telemetry import Reading
from advisor.reports import words
from advisor.studies.models import Trial
from advisor.thresholds import CEILING_DRIFT
from advisor.verification import signed_percent
from gpuagent.wire import HostSample, InventoryModel
from gpuagent.wire.ceilings import Ceiling, Ceilings

_KINDS = {
    "read": "Memory read",
    "copy": "Memory copy",
    "gemm": "Matrix product",
    "launch": "Kernel launch",
    "host_to_device": "Host to device",
    "device_to_host": "Device to host",
    "all_reduce": "All-reduce",
}


@dataclass(frozen=True, slots=True)
class CeilingLine:
    """One ceiling of the last calibration and of the one before. kind: of the drift's status."""

    name: str
    now: str
    before: str
    drift: str
    kind: str
    n: int


@dataclass(frozen=True, slots=True)
class ModelLine:
    name: str
    architecture: str
    weights: str
    size: str
    problem: str


@dataclass(frozen=True, slots=True)
class TrialLine:
    trial_id: str
    study_id: str
    study: str
    title: str
    kind: str
    word: str
    detail: str
    started_at: datetime | None
    seconds: str


@dataclass(frozen=True, slots=True)
class AgentPage:
    """What `pages/agent.html` prints beside the agent itself."""

    card: AgentCard
    facts: tuple[tuple[str, str], ...]
    versions: tuple[tuple[str, str], ...]
    ceilings: tuple[CeilingLine, ...]
    calibrated: datetime | None
    calibrated_before: datetime | None
    clock: str
    readings: tuple[Reading, ...]
    throttling: tuple[str, ...]
    sample_count: int
    sample_span_s: float | None
    models: tuple[ModelLine, ...]
    trials: tuple[TrialLine, ...]
    failed: int


def agent_page(
    agent: Agent,
    running: Trial | None,
    waiting: int,
    recent: Sequence[Trial],
    samples: Sequence[HostSample],
) -> AgentPage:
    """running: under its lease now. recent: started trials, the newest first."""
    hello, found = agent.hello, agent.ceilings
    lines = tuple(_trial(trial) for trial in recent)
    return AgentPage(
        card=agent_card(agent, running, waiting, samples[-1] if samples else None),
        facts=_facts(agent),
        versions=tuple(sorted(hello.versions.items())),
        ceilings=_ceilings(found, agent.ceilings_before),
        calibrated=_day(found),
        calibrated_before=_day(agent.ceilings_before),
        clock=_clock(found),
        readings=tuple(telemetry.readings(list(samples))),
        throttling=tuple(telemetry.throttling(list(samples))),
        sample_count=len(samples),
        sample_span_s=samples[-1].at_s - samples[0].at_s if samples else None,
        models=tuple(_model(model) for model in hello.models),
        trials=lines,
        failed=sum(line.kind == "bad" for line in lines),
    )


def _facts(agent: Agent) -> tuple[tuple[str, str], ...]:
    hello = agent.hello
    host = hello.host
    cores = f"{host.logical_cores} logical cores"
    if host.physical_cores is not None:
        cores += f" ({host.physical_cores} physical)"
    facts = [
        ("Host", host.hostname),
        ("System", host.os),
        ("CPU", f"{host.cpu}, {cores}"),
        ("Memory", units.memory(host.memory_bytes)),
    ]
    for gpu in hello.gpus:
        parts = [gpu.name, units.memory(gpu.memory_bytes)]
        if gpu.compute_capability:
            parts.append(f"compute capability {gpu.compute_capability}")
        if gpu.power_limit_w is not None:
            parts.append(f"{gpu.power_limit_w:.0f}{units.NBSP}W")
        if gpu.mig:
            parts.append("MIG")
        facts.append((f"GPU {gpu.index}", ", ".join(parts)))
    if hello.gpus:
        facts.append(("Driver", hello.driver_version or units.DASH))
    facts += [
        ("Engines", ", ".join(hello.engines) or "none"),
        ("Experiments", ", ".join(hello.experiments) or "none"),
        ("Agent", f"{hello.agent_version}, protocol {agent.wire_version}"),
        ("Credential", f"{agent.credential_prefix}…"),
    ]
    return tuple(facts)


def _ceilings(now: Ceilings | None, before: Ceilings | None) -> tuple[CeilingLine, ...]:
    if now is None:
        return ()
    earlier = {(e.kind, e.variant): e for e in before.entries} if before is not None else {}
    return tuple(_ceiling(e, earlier.get((e.kind, e.variant))) for e in now.entries)


def _ceiling(now: Ceiling, before: Ceiling | None) -> CeilingLine:
    """Drift: change of the rate; a launch is a time, so that more is worse."""
    value, old = now.rate.value, before.rate.value if before is not None else None
    drift, kind = units.DASH, ""
    if value is not None and old:
        change = value / old - 1
        drift = signed_percent(change)
        worse = change if now.kind == "launch" else -change
        kind = "warn" if worse > CEILING_DRIFT.value else ""
    return CeilingLine(
        name=f"{_KINDS[now.kind]}{f', {now.variant}' if now.variant else ''}",
        now=_rate(now) if value is not None else (now.rate.reason or units.DASH),
        before=_rate(before) if before is not None else units.DASH,
        drift=drift,
        kind=kind,
        n=now.seconds.n,
    )


def _rate(entry: Ceiling) -> str:
    value = entry.rate.value
    if entry.kind == "launch":
        return units.seconds(value)
    if entry.kind == "gemm":
        return units.DASH if value is None else f"{units.number(value / 1e12)}{units.NBSP}TFLOP/s"
    return units.bandwidth(value)


def _day(found: Ceilings | None) -> datetime | None:
    return None if found is None else datetime.fromtimestamp(found.measured_at_s, tz=UTC)


def _clock(found: Ceilings | None) -> str:
    if found is None or found.clock_hz.value is None:
        return ""
    return f"{units.number(found.clock_hz.value / 1e6, 4)}{units.NBSP}MHz"


def _model(model: InventoryModel) -> ModelLine:
    architectures = (model.config or {}).get("architectures")
    first = architectures[0] if isinstance(architectures, list) and architectures else None
    return ModelLine(
        name=model.name,
        architecture=first if isinstance(first, str) else units.DASH,
        weights=model.weights or units.DASH,
        size=units.memory(model.weight_bytes),
        problem=model.problem or "",
    )


def _trial(trial: Trial) -> TrialLine:
    kind, word = words.TRIALS[trial.state]
    spent = units.DASH
    if trial.started_at and trial.finished_at:
        spent = units.seconds((trial.finished_at - trial.started_at).total_seconds(), 2)
    return TrialLine(
        trial_id=str(trial.pk),
        study_id=str(trial.study_id),
        study=f"{trial.study.number} · {trial.study.name}",
        title=f"{trial.ordinal} · {trial.title}",
        kind=kind,
        word=word,
        detail=trial.failure.kind.text if trial.failure is not None else "",
        started_at=trial.started_at,
        seconds=spent,
    )
