"""What all daemon endpoints share: wire version, body limit, wire types in and out."""

from __future__ import annotations

import json
from typing import IO, Any, TypeVar

from django.conf import settings
from drf_spectacular.utils import extend_schema
from pydantic import ValidationError
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from advisor.errors import InvalidInput, TooLarge, WireVersionRefused
from advisor.fleet.auth import AgentAuthentication, IsAgent
from advisor.fleet.models import Agent
from advisor.studies.leases import Control
from advisor.wire_errors import fields_from_validation_error
from gpuagent.wire import WIRE_VERSION, WireModel, parse_from_peer, wire_version_accepted
from gpuagent.wire.base import WIRE_HEADER
from gpuagent.wire.protocol import ControlReply, Intervals

M = TypeVar("M", bound=WireModel)


class LimitedJSONParser(BaseParser):
    """JSON up to AGENT_BODY_MAX_BYTES: results carry raw samples, so 2.5 MiB are not enough."""

    media_type = "application/json"

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Any = None
    ) -> Any:
        limit = settings.AGENT_BODY_MAX_BYTES
        body = stream.read(limit + 1)
        if len(body) > limit:
            raise TooLarge(f"The body is larger than {limit // 2**20} MiB. Send fewer samples.")
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise InvalidInput("The body is not JSON.") from error


@extend_schema(exclude=True)
class AgentView(APIView):
    """Base of the daemon endpoints. `self.agent` is the authenticated agent."""

    authentication_classes = [AgentAuthentication]
    permission_classes = [IsAgent]
    parser_classes = [LimitedJSONParser]

    def initial(self, request: Request, *args: object, **kwargs: object) -> None:
        check_wire_version(request)
        super().initial(request, *args, **kwargs)

    @property
    def agent(self) -> Agent:
        agent: Agent = self.request.auth
        return agent

    def parse(self, kind: type[M]) -> M:
        return parse_body(self.request, kind)


def check_wire_version(request: Request) -> None:
    """Raises WireVersionRefused (426) unless the agent's version is ours or the one before."""
    text = request.headers.get(WIRE_HEADER, "")
    if not text.isdigit() or not wire_version_accepted(int(text)):
        raise WireVersionRefused(
            f"This server speaks wire version {WIRE_VERSION} and {WIRE_VERSION - 1}; the agent"
            f" speaks {text[:8] or 'none'}. Update the agent: pip install --upgrade '.[agent]'."
        )


def parse_body(request: Request, kind: type[M]) -> M:
    """The body as a wire value. Raises InvalidInput with field paths."""
    try:
        return parse_from_peer(kind, request.data)
    except ValidationError as error:
        raise InvalidInput(
            "The message does not have the expected form.", fields_from_validation_error(error)
        ) from error


def reply(value: WireModel) -> Response:
    return Response(value.model_dump(mode="json"))


def control_reply(control: Control, server_time_s: float) -> ControlReply:
    return ControlReply(
        cancel=control.cancel,
        drain=control.drain,
        server_time_s=server_time_s,
        lease_until_s=control.lease_until.timestamp(),
    )


def intervals() -> Intervals:
    """The pace that the server sets; an agent stops itself before the server calls it lost."""
    return Intervals(
        renew_s=settings.LEASE_RENEW_S,
        poll_s=settings.AGENT_POLL_S,
        fence_s=settings.LEASE_LOST_S * 0.9,
    )
