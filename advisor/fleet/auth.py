"""Authentication of agents: `Authorization: Bearer tag_…`, compared in constant time."""

from __future__ import annotations

from dataclasses import dataclass

from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.views import APIView

from advisor import secrets
from advisor.fleet.models import Agent, AgentState


@dataclass(frozen=True, slots=True)
class AgentPrincipal:
    """Stands where DRF expects a user."""

    agent: Agent
    is_authenticated: bool = True


class AgentAuthentication(BaseAuthentication):
    """Finds the agent by the visible prefix of its credential. Reads no cookies."""

    def authenticate(self, request: Request) -> tuple[AgentPrincipal, Agent] | None:
        header = request.headers.get("Authorization", "")
        scheme, _, credential = header.partition(" ")
        if scheme.lower() != "bearer" or not credential:
            return None
        refused = AuthenticationFailed(
            "The agent's credential is unknown or was removed. Register the agent again."
        )
        prefix = secrets.split(credential.strip(), "tag")
        agent = Agent.objects.filter(credential_prefix=prefix).select_related("org").first()
        if agent is None or not secrets.matches(credential.strip(), agent.credential_hash):
            raise refused
        if agent.state == AgentState.REVOKED:
            raise refused
        return AgentPrincipal(agent), agent

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="agent"'


class IsAgent(BasePermission):
    def has_permission(self, request: Request, view: APIView) -> bool:
        return isinstance(request.user, AgentPrincipal)
