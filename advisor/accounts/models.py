"""Who may do what: users, organisations, roles, API tokens, audit.

Every other row belongs to an organisation, and every query starts from it.
"""

from __future__ import annotations

import uuid
from typing import ClassVar

from django.contrib.auth.models import AbstractBaseUser, BaseUserManager, PermissionsMixin
from django.db import models
from django.utils import timezone


class UserManager(BaseUserManager["User"]):
    def create_user(self, email: str, password: str | None = None, **extra: object) -> User:
        user = self.model(email=self.normalize_email(email).lower(), **extra)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **extra: object) -> User:
        return self.create_user(email, password, is_staff=True, is_superuser=True, **extra)


class User(AbstractBaseUser, PermissionsMixin):
    """A person. The e-mail address is the name to sign in with."""

    email = models.EmailField(unique=True)
    name = models.CharField(max_length=120, blank=True)
    is_active = models.BooleanField(default=True)
    is_staff = models.BooleanField(default=False)
    date_joined = models.DateTimeField(default=timezone.now)

    objects: ClassVar[UserManager] = UserManager()

    USERNAME_FIELD = "email"
    EMAIL_FIELD = "email"

    def __str__(self) -> str:
        return self.email


class Role(models.TextChoices):
    """viewer reads; member also submits and cancels; owner also manages people, tokens, agents."""

    OWNER = "owner", "Owner"
    MEMBER = "member", "Member"
    VIEWER = "viewer", "Viewer"


class Org(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=120)
    created_at = models.DateTimeField(default=timezone.now)
    next_study_number = models.PositiveIntegerField(default=1)

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    org = models.ForeignKey(Org, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=10, choices=Role.choices)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["org", "user"], name="one_membership")]

    def __str__(self) -> str:
        return f"{self.user} is {self.role} of {self.org}"

    @property
    def can_write(self) -> bool:
        return self.role in (Role.OWNER, Role.MEMBER)

    @property
    def can_manage(self) -> bool:
        return self.role == Role.OWNER


class TokenScope(models.TextChoices):
    READ = "read", "Read"
    WRITE = "write", "Read and write"


class ApiToken(models.Model):
    """A token for scripts. Only a hash of the secret is kept; the prefix finds the row."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    org = models.ForeignKey(Org, on_delete=models.CASCADE, related_name="tokens")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=80)
    prefix = models.CharField(max_length=16, unique=True)
    secret_hash = models.CharField(max_length=64)
    scope = models.CharField(max_length=8, choices=TokenScope.choices)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix})"

    @property
    def is_live(self) -> bool:
        return self.revoked_at is None and self.expires_at > timezone.now()


class GpuPrice(models.Model):
    """What the organisation itself pays for a GPU of the catalogue; wins over the list price."""

    org = models.ForeignKey(Org, on_delete=models.CASCADE, related_name="gpu_prices")
    gpu = models.CharField(max_length=80)
    usd_per_gpu_hour = models.FloatField()
    reason = models.CharField(max_length=120, blank=True)
    changed_by = models.CharField(max_length=200)
    changed_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["gpu"]
        constraints = [models.UniqueConstraint(fields=["org", "gpu"], name="one_price_per_gpu")]

    def __str__(self) -> str:
        return f"{self.gpu}: {self.usd_per_gpu_hour} USD/h"


class IdempotencyKey(models.Model):
    """Answer to a POST, kept for a day: the same key and body get the same answer."""

    org = models.ForeignKey(Org, on_delete=models.CASCADE)
    actor = models.CharField(max_length=80)
    key = models.CharField(max_length=120)
    body_sha256 = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField(null=True)
    response = models.JSONField(null=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["org", "actor", "key"], name="one_answer_per_key")
        ]

    def __str__(self) -> str:
        return self.key


class AuditEvent(models.Model):
    """Append-only: who did what to which object."""

    org = models.ForeignKey(Org, on_delete=models.CASCADE, related_name="audit_events")
    at = models.DateTimeField(default=timezone.now)
    actor = models.CharField(max_length=200)
    action = models.CharField(max_length=60)
    target = models.CharField(max_length=200)
    detail = models.JSONField(default=dict)

    class Meta:
        indexes = [models.Index(fields=["org", "-at"])]

    def __str__(self) -> str:
        return f"{self.actor} {self.action} {self.target}"
