"""Requests and replies of `agent/v1/`. All authority goes over HTTP; Celery only nudges.

Every write of a leased trial carries its `lease` (trial, epoch, token). A token that is no longer
the newest is answered 409 `stale_lease`, and the agent stops the trial.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gpuagent.wire.agent import AgentHello
from gpuagent.wire.base import WireModel
from gpuagent.wire.events import TrialEvent
from gpuagent.wire.telemetry import HostSample
from gpuagent.wire.trial import TrialId, TrialOutcome, TrialSpec
from gpuagent.wire.units import Name, PositiveSeconds, Seconds


class Lease(WireModel):
    """The right to write one trial, for a while."""

    trial_id: TrialId
    epoch: Annotated[int, Field(ge=1)]
    token: Annotated[str, Field(min_length=16, max_length=128)]


class Intervals(WireModel):
    """The server sets the pace, so that it can change it without an agent update."""

    renew_s: PositiveSeconds = 15
    poll_s: PositiveSeconds = 20
    fence_s: PositiveSeconds = 270
    events_s: PositiveSeconds = 2
    telemetry_s: PositiveSeconds = 5


class RegisterRequest(WireModel):
    registration_token: Annotated[str, Field(min_length=16, max_length=200)]
    slug: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
    hello: AgentHello


class RegisterReply(WireModel):
    """`credential` is shown once. `broker_url` is None where agents work by polling alone."""

    agent_id: Name
    slug: Name
    credential: Name
    broker_url: str | None = None
    intervals: Intervals = Intervals()


class ClaimRequest(WireModel):
    """Also the agent's sign of life: `hello` is sent at start and when it changed.

    instance: random per process start. A claim says that the agent runs nothing, so a lease it
    still holds ends: it died with an earlier instance, or the reply to its claim was lost.
    """

    instance: Annotated[str, Field(pattern=r"^[0-9a-f]{8,40}$")]
    hello: AgentHello | None = None


class ClaimReply(WireModel):
    """`lease` and `spec` come together, or neither when there is nothing to do."""

    spec: TrialSpec | None = None
    lease: Lease | None = None
    attempt: Annotated[int, Field(ge=1)] | None = None
    drain: bool = False
    server_time_s: Seconds
    intervals: Intervals = Intervals()


class RenewRequest(WireModel):
    lease: Lease
    running: bool = True


class ControlReply(WireModel):
    """Rides on every answer to a leased write, so a cancel arrives within seconds."""

    cancel: bool = False
    drain: bool = False
    server_time_s: Seconds
    lease_until_s: Seconds


class EventsRequest(WireModel):
    lease: Lease
    events: Annotated[tuple[TrialEvent, ...], Field(max_length=500)]


class TelemetryRequest(WireModel):
    """Samples belong to the agent and a time span; a trial finds its own by time."""

    samples: Annotated[tuple[HostSample, ...], Field(min_length=1, max_length=1000)]


class ResultRequest(WireModel):
    lease: Lease
    outcome: TrialOutcome


class ResultReply(WireModel):
    """`missing`: sha256 of announced artefacts whose bytes the server does not have yet."""

    accepted: bool
    missing: tuple[str, ...] = ()


class ReleaseRequest(WireModel):
    """The agent gives a trial back unharmed (it is being stopped): no attempt is lost."""

    lease: Lease
    reason: Annotated[str, Field(max_length=200)] = ""


class ErrorReply(WireModel):
    """The one error shape of the whole API."""

    code: Name
    message: str
    fields: dict[str, list[str]] = {}
