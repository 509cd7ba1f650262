"""Checks of a submitted spec that need the organisation's agents or the hub.

What a type alone can check is checked by the wire types. Every refusal names the field and says
what to do; nothing is stored before all checks pass.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from advisor.accounts.models import Org
from advisor.errors import InvalidInput
from advisor.evidence import DeviceFacts
from advisor.fleet.models import Agent
from advisor.fleet.selectors import agents_of
from advisor.shapes import ModelShape, ShapeError, shape_from_config
from advisor.studies.diagnosis import EXPERIMENTS as DIAGNOSIS
from advisor.studies.hub import hub_config
from gpuagent.simulator import MACHINES
from gpuagent.wire import (
    AgentHello,
    ConfigModel,
    HubModel,
    ImportedModel,
    InventoryModel,
    LocalModel,
    SimulatedModel,
    StudySpec,
)


@dataclass(frozen=True, slots=True)
class Intake:
    """A spec that may run, with what was found out about its model and hardware."""

    spec: StudySpec
    agent: Agent | None
    config: dict[str, Any] | None
    shape: ModelShape | None
    device: DeviceFacts | None
    notices: tuple[str, ...]


def check(*, org: Org, spec: StudySpec) -> Intake:
    """Raises InvalidInput with `fields` keyed by path into the spec."""
    agent = _agent(org, spec)
    config, field, notices = _config(spec, agent)
    shape = _shape(config, field, agent, spec) if config is not None else None
    device = study_device(spec, agent)
    _gpus(spec, device)
    return Intake(
        spec=spec,
        agent=agent,
        config=config,
        shape=shape,
        device=device,
        notices=notices,
    )


def study_device(spec: StudySpec, agent: Agent | None) -> DeviceFacts | None:
    """What the study's trials run on: the agent's device, or the one that is simulated."""
    if isinstance(spec.model, SimulatedModel) and spec.model.name in MACHINES:
        machine = MACHINES[spec.model.name]
        name = f"{machine.name} (simulated)"
        return DeviceFacts(agent.slug if agent else "", "gpu", name, 1, int(machine.memory_bytes))
    if agent is None:
        return None
    return replace(device_facts(agent), experiments=able(agent.hello, spec))


def able(hello: AgentHello, spec: StudySpec) -> frozenset[str]:
    """What this agent can run with the study's model: GGUF files are not loaded part by part."""
    found = frozenset(hello.experiments)
    weights = {model.name: model.weights for model in hello.models}
    if isinstance(spec.model, LocalModel) and weights.get(spec.model.name) == "gguf":
        return found - {"tensor_parallel"}
    return found


def device_facts(agent: Agent) -> DeviceFacts:
    """The device that trials of this agent run on: its first kind of GPU, else the CPU."""
    hello = agent.hello
    if hello.gpus:
        first = hello.gpus[0]
        same = [gpu for gpu in hello.gpus if gpu.name == first.name]
        facts = DeviceFacts(agent.slug, "gpu", first.name, len(same), first.memory_bytes)
    else:
        facts = DeviceFacts(agent.slug, "cpu", hello.host.cpu, 1, hello.host.memory_bytes)
    return replace(
        facts,
        ceilings=agent.ceilings,
        ceilings_before=agent.ceilings_before,
        experiments=frozenset(hello.experiments),
    )


def _refuse(field: str, message: str) -> InvalidInput:
    return InvalidInput("The study cannot start like this.", {field: [message]})


def _agent(org: Org, spec: StudySpec) -> Agent | None:
    if spec.agent is None:
        if isinstance(spec.model, LocalModel):
            raise _refuse("agent", "A folder needs the agent that holds it. Choose the agent.")
        return None
    agent = agents_of(org).filter(slug=spec.agent).first()
    if agent is None:
        names = ", ".join(agents_of(org).values_list("slug", flat=True)) or "none yet"
        raise _refuse("agent", f"There is no agent of this name. Agents: {names}.")
    if spec.engine not in agent.hello.engines:
        offered = ", ".join(agent.hello.engines) or "no engine"
        raise _refuse(
            "engine", f"Agent {agent.slug} offers {offered}. Run its doctor to see what is missing."
        )
    if spec.endpoint is not None and spec.endpoint not in agent.hello.endpoints:
        offered = ", ".join(agent.hello.endpoints) or "none"
        raise _refuse(
            "endpoint", f"Agent {agent.slug} has no endpoint {spec.endpoint}. Endpoints: {offered}."
        )
    lacking = [name for name in DIAGNOSIS if name not in agent.hello.experiments]
    if spec.goal == "diagnose" and lacking:
        raise _refuse(
            "goal", f"Agent {agent.slug} cannot run {', '.join(lacking)}. Update it, or optimise."
        )
    if spec.profile and "profile" not in agent.hello.experiments:
        raise _refuse(
            "profile", f"Agent {agent.slug} cannot record profiles. Update it, or leave this out."
        )
    if spec.robustness and "robustness" not in agent.hello.experiments:
        raise _refuse(
            "robustness",
            f"Agent {agent.slug} cannot misuse servers. Update it or leave this out.",
        )
    return agent


def _gpus(spec: StudySpec, device: DeviceFacts | None) -> None:
    """Refuse more GPUs than there are: the server would say so after minutes."""
    asked = spec.current.gpus
    if device is not None and device.kind == "gpu" and asked > device.count:
        raise _refuse(
            "current.tensor_parallel",
            f"These degrees take {asked} GPUs, and the agent has {device.count}. "
            "Lower one of them.",
        )


def _config(
    spec: StudySpec, agent: Agent | None
) -> tuple[dict[str, Any] | None, str, tuple[str, ...]]:
    model = spec.model
    if isinstance(model, ConfigModel):
        if _runs_code(model.config):
            raise _refuse("model.config", _AUTO_MAP)
        return model.config, "model.config", ()
    if isinstance(model, LocalModel):
        entry = _inventory_entry(model.name, agent)
        return entry.config, "model.name", ()
    if isinstance(model, HubModel):
        answer = hub_config(model)
        if answer.config is not None and _runs_code(answer.config):
            raise _refuse("model.id", _AUTO_MAP)
        return answer.config, "model.id", (answer.notice,) if answer.notice else ()
    if isinstance(model, SimulatedModel):
        if model.name not in MACHINES:
            known = ", ".join(sorted(MACHINES))
            raise _refuse("model.name", f"The simulator does not know this. It knows: {known}.")
        return None, "model.name", (_SIMULATED,)
    if isinstance(model, ImportedModel):
        raise _refuse("engine", "Imported results are kept on the import page, from their file.")
    raise TypeError(f"unknown kind of model: {type(model)}")


_SIMULATED = "Simulated: the engine is a simulator; nothing here was measured on a device."

_AUTO_MAP = (
    "The config names code of its own (auto_map), which is never run here."
    " Use a model that the engine knows, without auto_map."
)


def _runs_code(config: dict[str, Any]) -> bool:
    return bool(config.get("auto_map"))


def _inventory_entry(name: str, agent: Agent | None) -> InventoryModel:
    hello: AgentHello | None = agent.hello if agent else None
    models = hello.models if hello else ()
    entry = next((m for m in models if m.name == name), None)
    if entry is None:
        usable = [m.name for m in models if m.problem is None]
        offered = ", ".join(usable[:8]) or "none"
        raise _refuse(
            "model.name",
            f"Agent {agent.slug if agent else '–'} has no model folder of this name."
            f" Usable folders: {offered}. New folders appear within 30 s.",
        )
    if entry.problem is not None:
        raise _refuse("model.name", entry.problem)
    return entry


def _shape(config: dict[str, Any], field: str, agent: Agent | None, spec: StudySpec) -> ModelShape:
    try:
        shape = shape_from_config(config)
    except ShapeError as error:
        raise _refuse(field, f"The model's config cannot be used: {error}") from error
    if spec.engine != "transformers":
        # A server has a list of its own, which it tells when it starts.
        return shape
    supported = agent.hello.architectures if agent else ()
    model_type = str(config.get("model_type", ""))
    if supported and model_type not in supported:
        raise _refuse(
            field,
            f"The agent's transformers does not support the architecture {model_type or '(none)'}."
            " Use a newer transformers on the agent or another model.",
        )
    if not supported and not shape.known:
        raise _refuse(
            field,
            f"The architecture {shape.architecture} is not known here. Use a model of a known"
            " family, or choose an agent whose engine supports it.",
        )
    return shape
