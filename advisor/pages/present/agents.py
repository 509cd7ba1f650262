"""Cards of the agents page: those that need a hand first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from advisor import units
from advisor.fleet.models import Agent, AgentState
from advisor.pages.present.targets import Bullet
from advisor.studies.models import Trial
from gpuagent.wire import HostSample, wire_version_accepted
from gpuagent.wire.ceilings import Ceilings

_RANK = {"bad": 0, "warn": 1, "run": 2, "good": 3, "na": 4}


@dataclass(frozen=True, slots=True)
class Device:
    """One line of hardware with a memory bar."""

    name: str
    text: str
    bar: Bullet


@dataclass(frozen=True, slots=True)
class AgentCard:
    agent: Agent
    kind: str
    word: str
    advice: str
    command: str
    devices: tuple[Device, ...]
    now: Trial | None
    next_text: str
    facts: tuple[tuple[str, str], ...]
    problems: tuple[str, ...]


def agent_cards(
    agents: Iterable[Agent],
    running: Mapping[object, Trial],
    queued: Mapping[object, int],
    samples: Mapping[object, HostSample | None],
) -> list[AgentCard]:
    """running, queued, samples: by the agent's primary key."""
    cards = [
        agent_card(a, running.get(a.pk), queued.get(a.pk, 0), samples.get(a.pk)) for a in agents
    ]
    return sorted(cards, key=lambda card: (_RANK[card.kind], card.agent.slug))


def agent_card(
    agent: Agent, now: Trial | None, waiting: int, sample: HostSample | None
) -> AgentCard:
    kind, word, advice, command = _state(agent, now)
    fresh = sample if agent.is_reachable else None
    return AgentCard(
        agent=agent,
        kind=kind,
        word=word,
        advice=advice,
        command=command,
        devices=_devices(agent, fresh),
        now=now,
        next_text=_next(waiting),
        facts=_facts(agent),
        problems=agent.hello.problems,
    )


def _state(agent: Agent, now: Trial | None) -> tuple[str, str, str, str]:
    if not wire_version_accepted(agent.wire_version):
        advice = f"It speaks version {agent.wire_version} of the protocol and takes no trials."
        return "warn", "Update needed", advice, "pip install --upgrade '.[agent]'"
    if not agent.is_reachable:
        advice = "Look at the host, then start it again. Trials wait; nothing is lost."
        return "bad", "Offline", advice, "python -m gpuagent run"
    if agent.state == AgentState.DRAINING:
        tail = "finishes its trial and takes no other." if now else "takes no trials."
        return "warn", "Draining", f"It {tail}", ""
    if not agent.hello.engines:
        advice = "No engine can run here. The doctor says what is missing."
        return "warn", "No engine", advice, "python -m gpuagent doctor"
    return ("run", "Running", "", "") if now else ("good", "Idle", "", "")


def _next(waiting: int) -> str:
    if not waiting:
        return "Idle"
    return f"{waiting} trial{'s' if waiting > 1 else ''} queued"


def _devices(agent: Agent, sample: HostSample | None) -> tuple[Device, ...]:
    hello = agent.hello
    if not hello.gpus:
        total = hello.host.memory_bytes
        free = sample.memory_available_bytes if sample else None
        used = total - free if free is not None else None
        parts = [f"{units.memory(used)} of {units.memory(total)}"]
        if sample and sample.cpu_frac is not None:
            parts.append(f"CPU {units.percent(sample.cpu_frac)}")
        name = f"{hello.host.cpu}, {hello.host.logical_cores} cores"
        return (Device(name, " · ".join(parts), _bar(used, total)),)
    by_index = {gpu.index: gpu for gpu in sample.gpus} if sample else {}
    devices = []
    for gpu in hello.gpus:
        reading = by_index.get(gpu.index)
        used = reading.memory_used_bytes if reading else None
        parts = [f"{units.memory(used)} of {units.memory(gpu.memory_bytes)}"]
        if reading and reading.util_frac is not None:
            parts.append(units.percent(reading.util_frac))
        if reading and reading.power_w is not None:
            parts.append(f"{reading.power_w:.0f}{units.NBSP}W")
        if reading and reading.temperature_c is not None:
            parts.append(f"{reading.temperature_c:.0f}{units.NBSP}°C")
        name = gpu.name if len(hello.gpus) == 1 else f"{gpu.name}, {gpu.index}"
        devices.append(Device(name, " · ".join(parts), _bar(used, gpu.memory_bytes)))
    return tuple(devices)


def _bar(used: float | None, total: float | None) -> Bullet:
    share = used / total * 100 if used is not None and total else 0.0
    return Bullet("na", round(min(share, 100.0), 2), 0.0, None, None)


def _facts(agent: Agent) -> tuple[tuple[str, str], ...]:
    hello = agent.hello
    facts = [("Host", f"{hello.host.hostname}, {hello.host.os}")]
    if hello.gpus:
        facts.append(("Driver", hello.driver_version or units.DASH))
    facts.append(("Engines", ", ".join(hello.engines) or "none"))
    versions = ", ".join(f"{name} {version}" for name, version in hello.versions.items())
    facts.append(("Versions", versions or units.DASH))
    usable = [model.name for model in hello.models if model.problem is None]
    refused = len(hello.models) - len(usable)
    models = ", ".join(usable[:4]) or "none"
    if len(usable) > 4:
        models += f" and {len(usable) - 4} more"
    if refused:
        models += f"; {refused} unusable"
    facts.append(("Models", models))
    if agent.ceilings is not None:
        facts.append(("Ceilings", _ceilings_text(agent.ceilings)))
    facts.append(("Agent", f"{hello.agent_version}, protocol {agent.wire_version}"))
    return tuple(facts)


def _ceilings_text(found: Ceilings) -> str:
    """The fastest matrix rate and the read bandwidth of the last calibration, with its day."""
    rates = [
        (e.rate.value, e.variant)
        for e in found.entries
        if e.kind == "gemm" and e.rate.value is not None
    ]
    parts = [f"reads {units.bandwidth(found.rate('read'))}"]
    if rates:
        value, variant = max(rates)
        parts.append(f"{units.number(value / 1e12)}{units.NBSP}TFLOP/s in {variant}")
    day = datetime.fromtimestamp(found.measured_at_s, tz=UTC).date().isoformat()
    return f"{', '.join(parts)}, calibrated {day}"
