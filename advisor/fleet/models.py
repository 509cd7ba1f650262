"""Agents, how they join, and what they sampled.

fleet never points at studies: telemetry belongs to an agent and a time span, and a trial finds its
own by agent and time.
"""

from __future__ import annotations

import uuid
from functools import cached_property
from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone

from advisor.accounts.models import Org, User
from gpuagent.wire import AgentHello, parse_from_peer
from gpuagent.wire.ceilings import Ceilings


class AgentState(models.TextChoices):
    """draining: finishes its trial and takes no other. revoked: its credential is refused."""

    ACTIVE = "active", "Active"
    DRAINING = "draining", "Draining"
    REVOKED = "revoked", "Removed"


class Agent(models.Model):
    """One daemon on one host. `slug` is unique in the installation: it names its Celery queue."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    org = models.ForeignKey(Org, on_delete=models.CASCADE, related_name="agents")
    slug = models.SlugField(max_length=64, unique=True)
    credential_prefix = models.CharField(max_length=16, unique=True)
    credential_hash = models.CharField(max_length=64)
    state = models.CharField(max_length=10, choices=AgentState.choices, default=AgentState.ACTIVE)
    wire_version = models.PositiveSmallIntegerField()
    hello_json = models.JSONField()
    hello_at = models.DateTimeField(default=timezone.now)
    last_seen_at = models.DateTimeField(default=timezone.now)
    instance = models.CharField(max_length=40, blank=True)
    infra_failures = models.PositiveSmallIntegerField(default=0)
    ceilings_json = models.JSONField(null=True, blank=True)
    ceilings_before_json = models.JSONField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return self.slug

    @cached_property
    def hello(self) -> AgentHello:
        return parse_from_peer(AgentHello, self.hello_json)

    @property
    def ceilings(self) -> Ceilings | None:
        """What its last calibration measured."""
        return _ceilings(self.ceilings_json)

    @property
    def ceilings_before(self) -> Ceilings | None:
        """The calibration before the last one, to tell whether the device changed."""
        return _ceilings(self.ceilings_before_json)

    @property
    def silent_s(self) -> float:
        return (timezone.now() - self.last_seen_at).total_seconds()

    @property
    def is_reachable(self) -> bool:
        """Derived from the last contact, never stored."""
        return self.silent_s <= settings.LEASE_UNREACHABLE_S

    @property
    def queue(self) -> str:
        return f"agent.{self.slug}"


def _ceilings(stored: dict[str, Any] | None) -> Ceilings | None:
    return None if stored is None else parse_from_peer(Ceilings, stored)


class RegistrationToken(models.Model):
    """Lets one agent join one organisation, once, within the hour."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    org = models.ForeignKey(Org, on_delete=models.CASCADE, related_name="registration_tokens")
    created_by = models.ForeignKey(User, on_delete=models.CASCADE, null=True)
    prefix = models.CharField(max_length=16, unique=True)
    secret_hash = models.CharField(max_length=64)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)
    agent = models.ForeignKey(Agent, on_delete=models.SET_NULL, null=True, blank=True)

    def __str__(self) -> str:
        return self.prefix


class TelemetryChunk(models.Model):
    """A batch of `HostSample`s, kept for 30 days."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="telemetry")
    from_at = models.DateTimeField()
    to_at = models.DateTimeField()
    samples = models.JSONField()

    class Meta:
        indexes = [models.Index(fields=["agent", "from_at"])]

    def __str__(self) -> str:
        return f"{self.agent} {self.from_at:%H:%M:%S}"
