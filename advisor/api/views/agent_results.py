"""`POST events`, `telemetry`, `result`: facts of a running trial."""

from __future__ import annotations

import time

from rest_framework.request import Request
from rest_framework.response import Response

from advisor.api.views.agent_base import AgentView, control_reply, reply
from advisor.fleet.services import agent_seen, telemetry_record
from advisor.studies.advance import study_advance_safely
from advisor.studies.leases import events_record, result_record
from advisor.studies.models import Trial
from gpuagent.wire.protocol import (
    EventsRequest,
    ResultReply,
    ResultRequest,
    TelemetryRequest,
)


class EventsView(AgentView):
    def post(self, request: Request) -> Response:
        message = self.parse(EventsRequest)
        control = events_record(agent=self.agent, lease=message.lease, events=message.events)
        return reply(control_reply(control, time.time()))


class TelemetryView(AgentView):
    def post(self, request: Request) -> Response:
        message = self.parse(TelemetryRequest)
        agent_seen(agent=self.agent)
        telemetry_record(agent=self.agent, samples=message.samples)
        return Response(status=204)


class ResultView(AgentView):
    def post(self, request: Request) -> Response:
        message = self.parse(ResultRequest)
        missing = result_record(agent=self.agent, lease=message.lease, outcome=message.outcome)
        study_id = Trial.objects.values_list("study_id", flat=True).get(pk=message.lease.trial_id)
        study_advance_safely(study_id)
        return reply(ResultReply(accepted=True, missing=missing))
