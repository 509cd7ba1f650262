"""Agents and the models they offer."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from advisor.api.serializers.base import Answer, Page
from advisor.fleet.models import Agent, AgentState
from gpuagent.wire import GpuInfo, HostInfo, InventoryModel


class AgentAnswer(Answer):
    """An agent. reachable: it was heard of within the last minute."""

    id: UUID
    slug: str
    state: AgentState
    reachable: bool
    last_seen_at: datetime
    created_at: datetime
    wire_version: int
    agent_version: str
    host: HostInfo
    gpus: list[GpuInfo]
    driver_version: str | None
    versions: dict[str, str]
    engines: list[str]
    experiments: list[str]
    problems: list[str]


class ModelAnswer(Answer):
    """A model folder of one agent. problem: why a study cannot use it, or null."""

    agent: str
    name: str
    architecture: str | None
    config: dict[str, Any] | None
    weights: str | None
    weight_bytes: int | None
    problem: str | None


class AgentPage(Page[AgentAnswer]):
    pass


class ModelPage(Page[ModelAnswer]):
    pass


def agent_answer(agent: Agent) -> AgentAnswer:
    hello = agent.hello
    return AgentAnswer(
        id=agent.pk,
        slug=agent.slug,
        state=AgentState(agent.state),
        reachable=agent.is_reachable,
        last_seen_at=agent.last_seen_at,
        created_at=agent.created_at,
        wire_version=agent.wire_version,
        agent_version=hello.agent_version,
        host=hello.host,
        gpus=list(hello.gpus),
        driver_version=hello.driver_version,
        versions=hello.versions,
        engines=list(hello.engines),
        experiments=list(hello.experiments),
        problems=list(hello.problems),
    )


def model_answer(agent: Agent, model: InventoryModel) -> ModelAnswer:
    architectures = (model.config or {}).get("architectures")
    first = architectures[0] if isinstance(architectures, list) and architectures else None
    return ModelAnswer(
        agent=agent.slug,
        name=model.name,
        architecture=first if isinstance(first, str) else None,
        config=model.config,
        weights=model.weights,
        weight_bytes=model.weight_bytes,
        problem=model.problem,
    )
