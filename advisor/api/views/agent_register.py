"""`POST register`: a one-time token becomes an agent with its own credential."""

from __future__ import annotations

from django.conf import settings
from rest_framework.request import Request
from rest_framework.response import Response

from advisor.api.views.agent_base import AgentView, intervals, reply
from advisor.fleet.services import agent_register
from gpuagent.wire.protocol import RegisterReply, RegisterRequest


class RegisterView(AgentView):
    authentication_classes = []
    permission_classes = []

    def post(self, request: Request) -> Response:
        message = self.parse(RegisterRequest)
        agent, credential = agent_register(
            registration_token=message.registration_token, slug=message.slug, hello=message.hello
        )
        return reply(
            RegisterReply(
                agent_id=str(agent.pk),
                slug=agent.slug,
                credential=credential,
                broker_url=settings.AGENT_BROKER_URL,
                intervals=intervals(),
            )
        )
