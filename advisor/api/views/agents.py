"""Agents of the organisation: what they are, and whether they take trials."""

from __future__ import annotations

from collections.abc import Callable

from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from advisor.accounts.auth import actor_of, org_of
from advisor.api.idempotency import once
from advisor.api.pagination import NewestFirst
from advisor.api.schema import IDEMPOTENCY, PAGING, operation
from advisor.api.serializers.base import respond
from advisor.api.serializers.fleet import AgentAnswer, AgentPage, agent_answer
from advisor.fleet.selectors import agent_get, agents_of
from advisor.fleet.services import agent_drain, agent_resume


class AgentList(APIView):
    @operation(
        "agents_list",
        tag="agents",
        summary="Agents of the organisation, newest first",
        response=AgentPage,
        parameters=PAGING,
        errors=(400,),
    )
    def get(self, request: Request) -> Response:
        return NewestFirst().respond(request, agents_of(org_of(request)), agent_answer)


class AgentDetail(APIView):
    @operation(
        "agents_read", tag="agents", summary="One agent", response=AgentAnswer, errors=(404,)
    )
    def get(self, request: Request, slug: str) -> Response:
        return respond(agent_answer(agent_get(org=org_of(request), slug=slug)))


class AgentDrain(APIView):
    owner_only = True

    @operation(
        "agents_drain",
        tag="agents",
        summary="Finish the running trial and take no other",
        response=AgentAnswer,
        parameters=(IDEMPOTENCY,),
        errors=(404, 409, 422),
    )
    def post(self, request: Request, slug: str) -> Response:
        return _change(request, slug, agent_drain)


class AgentResume(APIView):
    owner_only = True

    @operation(
        "agents_resume",
        tag="agents",
        summary="Take trials again",
        response=AgentAnswer,
        parameters=(IDEMPOTENCY,),
        errors=(404, 409, 422),
    )
    def post(self, request: Request, slug: str) -> Response:
        return _change(request, slug, agent_resume)


def _change(request: Request, slug: str, service: Callable[..., None]) -> Response:
    agent = agent_get(org=org_of(request), slug=slug)

    def change() -> Response:
        service(agent=agent, actor=actor_of(request))
        return respond(agent_answer(agent))

    return once(request, lambda: change)
