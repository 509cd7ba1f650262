"""Joining, leaving and reporting of agents."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from django.db import IntegrityError, transaction
from django.utils import timezone

from advisor import secrets
from advisor.accounts.models import Org, User
from advisor.accounts.services import audit
from advisor.errors import Conflict, Forbidden
from advisor.fleet.models import Agent, AgentState, RegistrationToken, TelemetryChunk
from gpuagent.wire import AgentHello, HostSample
from gpuagent.wire.ceilings import Ceilings

REGISTRATION_TOKEN_S = 3600


def registration_token_issue(
    *, org: Org, user: User | None, actor: str
) -> tuple[RegistrationToken, str]:
    """A one-time token for one agent; the secret is returned here and never again."""
    full, prefix, digest = secrets.new_secret("tar")
    token = RegistrationToken.objects.create(
        org=org,
        created_by=user,
        prefix=prefix,
        secret_hash=digest,
        expires_at=timezone.now() + timedelta(seconds=REGISTRATION_TOKEN_S),
    )
    audit(org=org, actor=actor, action="agent.token", target=prefix)
    return token, full


def agent_register(*, registration_token: str, slug: str, hello: AgentHello) -> tuple[Agent, str]:
    """Turn a one-time token into an agent and its credential.

    A slug that is taken gets a number appended: it is never taken over. Raises Forbidden for an
    unknown, used or expired token, all with the same words.
    """
    refused = Forbidden(
        "The registration token is unknown, used or expired. Make a new one under Agents."
    )
    prefix = secrets.split(registration_token, "tar")
    row = RegistrationToken.objects.filter(prefix=prefix).select_related("org").first()
    if row is None or not secrets.matches(registration_token, row.secret_hash):
        raise refused
    now = timezone.now()
    with transaction.atomic():
        # Compare-and-set, so that two agents with the same token cannot both join.
        if not RegistrationToken.objects.filter(pk=row.pk, used_at=None, expires_at__gt=now).update(
            used_at=now
        ):
            raise refused
        full, credential_prefix, digest = secrets.new_secret("tag")
        agent = _create_agent(
            org=row.org,
            slug=slug,
            hello=hello,
            credential_prefix=credential_prefix,
            credential_hash=digest,
        )
        RegistrationToken.objects.filter(pk=row.pk).update(agent=agent)
        if hello.ceilings is not None:
            agent_calibrated(agent=agent, ceilings=hello.ceilings)
        audit(org=row.org, actor=f"token {row.prefix}", action="agent.join", target=agent.slug)
    return agent, full


def _create_agent(*, org: Org, slug: str, hello: AgentHello, **credential: str) -> Agent:
    for number in range(1, 100):
        candidate = slug if number == 1 else f"{slug[:58]}-{number}"
        if Agent.objects.filter(slug=candidate).exists():
            continue
        try:
            with transaction.atomic():
                return Agent.objects.create(
                    org=org,
                    slug=candidate,
                    wire_version=hello.wire_version,
                    hello_json=hello.model_dump(mode="json"),
                    **credential,
                )
        except IntegrityError:
            continue
    raise Conflict(f"The name {slug} and its numbered variants are taken. Choose another.")


def agent_seen(
    *, agent: Agent, instance: str | None = None, hello: AgentHello | None = None
) -> None:
    """Note a sign of life, and what the agent says about itself where that changed."""
    changes: dict[str, object] = {"last_seen_at": timezone.now()}
    if instance is not None:
        changes["instance"] = instance
    if hello is not None:
        changes |= {
            "hello_json": hello.model_dump(mode="json"),
            "hello_at": changes["last_seen_at"],
            "wire_version": hello.wire_version,
        }
        agent.__dict__.pop("hello", None)
    Agent.objects.filter(pk=agent.pk).update(**changes)
    for name, value in changes.items():
        setattr(agent, name, value)
    if hello is not None and hello.ceilings is not None:
        agent_calibrated(agent=agent, ceilings=hello.ceilings)


def agent_calibrated(*, agent: Agent, ceilings: Ceilings) -> None:
    """Keep the newest ceilings, and the ones before them to compare with.

    Repeated and older ones change nothing. Another device starts anew.
    """
    last = agent.ceilings
    if last is not None and last.measured_at_s >= ceilings.measured_at_s:
        return
    before = agent.ceilings_json if last is not None and last.device == ceilings.device else None
    changes = {
        "ceilings_json": ceilings.model_dump(mode="json"),
        "ceilings_before_json": before,
    }
    Agent.objects.filter(pk=agent.pk).update(**changes)
    for name, value in changes.items():
        setattr(agent, name, value)


def agent_drain(*, agent: Agent, actor: str) -> None:
    """Let the agent finish its trial and take no other."""
    _set_state(agent, AgentState.ACTIVE, AgentState.DRAINING, actor, "agent.drain")


def agent_resume(*, agent: Agent, actor: str) -> None:
    _set_state(agent, AgentState.DRAINING, AgentState.ACTIVE, actor, "agent.resume")


def agent_revoke(*, agent: Agent, actor: str) -> None:
    """Remove the agent: its credential is refused from its next request on."""
    Agent.objects.filter(pk=agent.pk).update(state=AgentState.REVOKED, credential_hash="")
    agent.state = AgentState.REVOKED
    audit(org=agent.org, actor=actor, action="agent.remove", target=agent.slug)


def _set_state(agent: Agent, old: AgentState, new: AgentState, actor: str, action: str) -> None:
    if Agent.objects.filter(pk=agent.pk, state=old).update(state=new):
        agent.state = new
        audit(org=agent.org, actor=actor, action=action, target=agent.slug)


def telemetry_record(*, agent: Agent, samples: Sequence[HostSample]) -> None:
    """Store one batch of samples."""
    times = [sample.at_s for sample in samples]
    TelemetryChunk.objects.create(
        agent=agent,
        from_at=datetime.fromtimestamp(min(times), tz=UTC),
        to_at=datetime.fromtimestamp(max(times), tz=UTC),
        samples=[sample.model_dump(mode="json", exclude_none=True) for sample in samples],
    )
