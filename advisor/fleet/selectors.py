"""Reads of agents and telemetry. Every function starts from the organisation or an agent of it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from django.db.models import OuterRef, QuerySet, Subquery

from advisor.accounts.models import Org
from advisor.errors import NotFound
from advisor.fleet.models import Agent, AgentState, TelemetryChunk
from gpuagent.wire import HostSample, parse_from_peer


def agents_of(org: Org) -> QuerySet[Agent]:
    """Agents that were not removed, oldest first."""
    return Agent.objects.filter(org=org).exclude(state=AgentState.REVOKED).order_by("created_at")


def agent_get(*, org: Org, slug: str) -> Agent:
    """Raises NotFound, also for another organisation's agent."""
    agent = agents_of(org).filter(slug=slug).first()
    if agent is None:
        raise NotFound("There is no such agent.")
    return agent


def telemetry_window(agent: Agent, from_at: datetime, to_at: datetime) -> list[HostSample]:
    """Samples of `agent` within the span, in time order."""
    chunks = TelemetryChunk.objects.filter(
        agent=agent, from_at__lte=to_at, to_at__gte=from_at
    ).order_by("from_at")
    first, last = from_at.timestamp(), to_at.timestamp()
    return [
        parse_from_peer(HostSample, sample)
        for chunk in chunks
        for sample in chunk.samples
        if first <= sample["at_s"] <= last
    ]


def telemetry_newest(agents: Iterable[Agent]) -> dict[object, HostSample]:
    """Primary key -> newest sample, for those of `agents` that ever sent one; two queries."""
    newest = (
        TelemetryChunk.objects.filter(agent=OuterRef("pk")).order_by("-from_at").values("pk")[:1]
    )
    chunks = (
        Agent.objects.filter(pk__in=[agent.pk for agent in agents])
        .annotate(newest=Subquery(newest))
        .values_list("newest", flat=True)
    )
    found = TelemetryChunk.objects.filter(pk__in=[pk for pk in chunks if pk is not None])
    return {
        chunk.agent_id: parse_from_peer(HostSample, chunk.samples[-1])
        for chunk in found
        if chunk.samples
    }
