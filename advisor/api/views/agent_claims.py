"""`POST claim`, `renew`, `release`: the lease on a trial."""

from __future__ import annotations

import time

from rest_framework.request import Request
from rest_framework.response import Response

from advisor.api.views.agent_base import AgentView, control_reply, intervals, reply
from advisor.fleet.models import AgentState
from advisor.fleet.services import agent_seen
from advisor.studies.leases import lease_renew, trial_claim, trial_release
from advisor.studies.sweep import sweep_if_due
from gpuagent.wire.protocol import ClaimReply, ClaimRequest, ReleaseRequest, RenewRequest


class ClaimView(AgentView):
    def post(self, request: Request) -> Response:
        message = self.parse(ClaimRequest)
        agent_seen(agent=self.agent, instance=message.instance, hello=message.hello)
        sweep_if_due()
        claim = trial_claim(agent=self.agent, instance=message.instance)
        return reply(
            ClaimReply(
                spec=claim.spec if claim else None,
                lease=claim.lease if claim else None,
                attempt=claim.attempt.number if claim else None,
                drain=self.agent.state == AgentState.DRAINING,
                server_time_s=time.time(),
                intervals=intervals(),
            )
        )


class RenewView(AgentView):
    def post(self, request: Request) -> Response:
        message = self.parse(RenewRequest)
        agent_seen(agent=self.agent)
        control = lease_renew(agent=self.agent, lease=message.lease, running=message.running)
        sweep_if_due()
        return reply(control_reply(control, time.time()))


class ReleaseView(AgentView):
    def post(self, request: Request) -> Response:
        message = self.parse(ReleaseRequest)
        trial_release(agent=self.agent, lease=message.lease, reason=message.reason)
        return Response(status=204)
