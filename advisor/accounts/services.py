"""Changing accounts: organisations, members, API tokens, the audit trail.

Every change writes its audit event in the same transaction.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote
from uuid import UUID

from allauth.account import app_settings as allauth_settings
from allauth.account.utils import user_pk_to_url_str
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.urls import reverse
from django.utils import timezone

from advisor import secrets
from advisor.accounts.models import (
    ApiToken,
    AuditEvent,
    GpuPrice,
    Membership,
    Org,
    Role,
    TokenScope,
    User,
)
from advisor.accounts.selectors import member_get, token_get
from advisor.catalog import UnknownNameError, find_gpu
from advisor.errors import Conflict, InvalidInput

MAX_TOKEN_DAYS = 365
DEFAULT_TOKEN_DAYS = 90
MAX_USD_PER_GPU_HOUR = 1_000


def audit(
    *, org: Org, actor: str, action: str, target: str, detail: dict[str, Any] | None = None
) -> AuditEvent:
    """Append one line to the trail. `actor` as `actor_of` writes it, `detail` is JSON."""
    return AuditEvent.objects.create(
        org=org, actor=actor[:200], action=action, target=target[:200], detail=detail or {}
    )


# --- organisations and members -----------------------------------------------------------------


@transaction.atomic
def org_create(*, name: str, owner: User) -> Org:
    org = Org.objects.create(name=_clean_name(name, maximum=120))
    Membership.objects.create(org=org, user=owner, role=Role.OWNER)
    audit(org=org, actor=owner.email, action="org.create", target=org.name)
    return org


def user_rename(*, user: User, name: str) -> None:
    """The name that others see; empty shows the e-mail address. Raises InvalidInput."""
    user.name = _clean_name(name, maximum=120) if name.strip() else ""
    user.save(update_fields=["name"])


@transaction.atomic
def member_add(*, org: Org, user: User, role: str, actor: str) -> Membership:
    """Let a person who has an account join. Raises Conflict for one who has joined already."""
    membership, created = Membership.objects.get_or_create(
        org=org, user=user, defaults={"role": _clean_role(role)}
    )
    if not created:
        raise Conflict(
            f"{user.email} is a member already.", {"email": ["This person is a member already."]}
        )
    audit(org=org, actor=actor, action="member.add", target=user.email, detail={"role": role})
    return membership


@transaction.atomic
def member_invite(*, org: Org, email: str, role: str, actor: str) -> tuple[Membership, str | None]:
    """Add a person by e-mail address, with a new account where there is none.

    Returns the membership and, for a new account, the one-time link that sets its password. A
    person who has a password already gets no link: it would let the inviter take the account.
    """
    address = email.strip().lower()
    try:
        validate_email(address)
    except ValidationError:
        raise InvalidInput(
            "The e-mail address is not valid.",
            {"email": ["Enter an e-mail address, for example ada@example.org."]},
        ) from None
    user = User.objects.filter(email__iexact=address).first()
    created = user is None
    if user is None:
        user = User.objects.create_user(address)
    membership = member_add(org=org, user=user, role=role, actor=actor)
    return membership, password_link(user) if created else None


def member_password_link(*, org: Org, membership_id: int) -> str:
    """A fresh link for an invited person who has set no password yet.

    Refused for everybody else: the link would give the account, and through it other
    organisations, to whoever asks for it.
    """
    user = member_get(org=org, membership_id=membership_id).user
    elsewhere = user.memberships.exclude(org=org).exists()
    if user.has_usable_password() or elsewhere or user.is_staff:
        raise Conflict(
            f"{user.email} has an account of their own and resets the password by e-mail."
        )
    return password_link(user)


@transaction.atomic
def member_role_set(*, org: Org, membership_id: int, role: str, actor: str) -> Membership:
    membership = member_get(org=org, membership_id=membership_id)
    before, membership.role = membership.role, _clean_role(role)
    if before == Role.OWNER and membership.role != Role.OWNER:
        _keep_an_owner(org, leaving=membership)
    membership.save(update_fields=["role"])
    audit(
        org=org,
        actor=actor,
        action="member.role",
        target=membership.user.email,
        detail={"before": before, "after": membership.role},
    )
    return membership


@transaction.atomic
def member_remove(*, org: Org, membership_id: int, actor: str) -> None:
    """End a membership and revoke the person's tokens, so that a later return revives none."""
    membership = member_get(org=org, membership_id=membership_id)
    if membership.role == Role.OWNER:
        _keep_an_owner(org, leaving=membership)
    ApiToken.objects.filter(org=org, user=membership.user, revoked_at=None).update(
        revoked_at=timezone.now()
    )
    membership.delete()
    audit(org=org, actor=actor, action="member.remove", target=membership.user.email)


def password_link(user: User) -> str:
    """Absolute link that lets `user` set a password once, without an e-mail being sent.

    It is allauth's own reset link: signed, valid for PASSWORD_RESET_TIMEOUT (3 days) and dead as
    soon as the password was set, since the signature covers the old password's hash.
    """
    key = allauth_settings.PASSWORD_RESET_TOKEN_GENERATOR().make_token(user)
    path = reverse(
        "account_reset_password_from_key", kwargs={"uidb36": "UID", "key": "KEY"}
    ).replace("UID-KEY", quote(f"{user_pk_to_url_str(user)}-{key}"))
    return f"{settings.PUBLIC_URL}{path}"


# --- tokens ------------------------------------------------------------------------------------


@transaction.atomic
def token_issue(
    *,
    org: Org,
    user: User,
    name: str,
    scope: str,
    days: int = DEFAULT_TOKEN_DAYS,
    not_after: datetime | None = None,
) -> tuple[ApiToken, str]:
    """Return a new token of a member with its secret, which is not kept and never shown again.

    not_after: the token ends no later. A token that issues another one passes its own end, so
    that a leaked token cannot prolong itself.
    """
    if scope not in TokenScope.values:
        raise InvalidInput("The scope is unknown.", {"scope": ["Choose read or write."]})
    if isinstance(days, bool) or not isinstance(days, int) or not 1 <= days <= MAX_TOKEN_DAYS:
        raise InvalidInput(
            "The lifetime of the token is out of range.",
            {"days": [f"Enter a whole number of days from 1 to {MAX_TOKEN_DAYS}."]},
        )
    secret = secrets.new_secret("ta")
    expires_at = timezone.now() + timedelta(days=days)
    token = ApiToken.objects.create(
        org=org,
        user=user,
        name=_clean_name(name, maximum=80),
        prefix=secret.prefix,
        secret_hash=secret.sha256,
        scope=scope,
        expires_at=min(expires_at, not_after) if not_after else expires_at,
    )
    audit(
        org=org,
        actor=user.email,
        action="token.issue",
        target=token.prefix,
        detail={"name": token.name, "scope": scope, "expires_at": token.expires_at.isoformat()},
    )
    return token, secret.full


@transaction.atomic
def token_revoke(*, org: Org, token_id: UUID | str, actor: str) -> ApiToken:
    """End a token now. Revoking it again changes nothing."""
    token = token_get(org=org, token_id=token_id)
    if token.revoked_at is None:
        token.revoked_at = timezone.now()
        token.save(update_fields=["revoked_at"])
        audit(org=org, actor=actor, action="token.revoke", target=token.prefix)
    return token


# --- prices ------------------------------------------------------------------------------------


@transaction.atomic
def price_set(*, org: Org, gpu: str, usd_per_gpu_hour: float, reason: str, actor: str) -> GpuPrice:
    """The organisation's own price of a GPU, in USD per GPU and hour without tax.

    gpu: a name or alias of the catalogue. Raises InvalidInput.
    """
    name = _gpu_name(gpu)
    if not 0 < usd_per_gpu_hour <= MAX_USD_PER_GPU_HOUR:
        raise InvalidInput(
            "The price is out of range.",
            {"usd_per_gpu_hour": [f"Enter a price above 0 and up to {MAX_USD_PER_GPU_HOUR:,}."]},
        )
    reason = reason.strip()
    if len(reason) > 120 or not reason.isprintable():
        raise InvalidInput(
            "The reason cannot be stored.",
            {"reason": ["Use at most 120 characters, without control characters."]},
        )
    price, _ = GpuPrice.objects.update_or_create(
        org=org,
        gpu=name,
        defaults={
            "usd_per_gpu_hour": usd_per_gpu_hour,
            "reason": reason,
            "changed_by": actor[:200],
            "changed_at": timezone.now(),
        },
    )
    detail = {"usd_per_gpu_hour": usd_per_gpu_hour, "reason": reason}
    audit(org=org, actor=actor, action="price.set", target=name, detail=detail)
    return price


@transaction.atomic
def price_remove(*, org: Org, gpu: str, actor: str) -> None:
    """Back to the list price. Removing a price that is not there changes nothing."""
    name = _gpu_name(gpu)
    removed, _ = GpuPrice.objects.filter(org=org, gpu=name).delete()
    if removed:
        audit(org=org, actor=actor, action="price.remove", target=name)


# --- helpers -----------------------------------------------------------------------------------


def _clean_name(name: str, *, maximum: int) -> str:
    cleaned = name.strip()
    if not cleaned:
        raise InvalidInput("The name is missing.", {"name": ["Enter a name."]})
    if len(cleaned) > maximum:
        raise InvalidInput(
            "The name is too long.", {"name": [f"Shorten the name to {maximum} characters."]}
        )
    if not cleaned.isprintable():
        raise InvalidInput(
            "The name holds control characters.", {"name": ["Remove control characters."]}
        )
    return cleaned


def _gpu_name(gpu: str) -> str:
    try:
        return find_gpu(gpu).name
    except UnknownNameError as error:
        raise InvalidInput("The GPU is unknown.", {"gpu": [f"{error}."]}) from None


def _clean_role(role: str) -> str:
    if role not in Role.values:
        raise InvalidInput(
            "The role is unknown.", {"role": [f"Choose one of {', '.join(Role.values)}."]}
        )
    return role


def _keep_an_owner(org: Org, *, leaving: Membership) -> None:
    # Row locks make two owners who leave at the same moment wait for each other (PostgreSQL; on
    # SQLite the transaction itself holds the write lock).
    owners = list(org.memberships.select_for_update().filter(role=Role.OWNER))
    if all(owner.pk == leaving.pk for owner in owners):
        raise Conflict(
            "An organisation keeps at least one owner: make somebody else an owner first."
        )
