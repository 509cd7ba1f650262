"""Reading accounts. What is about one person aside, everything starts from an organisation."""

from __future__ import annotations

from uuid import UUID

from django.db.models import QuerySet
from django.utils import timezone

from advisor.accounts.models import ApiToken, AuditEvent, GpuPrice, Membership, Org, User
from advisor.errors import NotFound


def orgs_of(user: User) -> QuerySet[Org]:
    """Organisations that the person belongs to, oldest membership first."""
    return Org.objects.filter(memberships__user=user).order_by("memberships__created_at")


def membership_of(*, user: User, org_id: str | UUID | None) -> Membership | None:
    """The person's membership in `org_id`, else in the organisation joined first, else None.

    `org_id` comes from the session and may be stale or nonsense; then the first one is taken.
    """
    mine = memberships_of(user)
    if org_id:
        try:
            chosen = UUID(str(org_id))
        except ValueError:
            chosen = None
        if chosen and (found := mine.filter(org_id=chosen).first()):
            return found
    return mine.first()


def memberships_of(user: User) -> QuerySet[Membership]:
    """The person's memberships with their organisations, oldest first."""
    return Membership.objects.filter(user=user).select_related("org").order_by("created_at", "pk")


def own_tokens(user: User) -> QuerySet[ApiToken]:
    """The person's tokens that still work, in organisations they still belong to; newest first."""
    return (
        ApiToken.objects.filter(
            user=user,
            revoked_at=None,
            expires_at__gt=timezone.now(),
            org__memberships__user=user,
        )
        .select_related("org")
        .order_by("-created_at")
    )


def members_of(org: Org) -> QuerySet[Membership]:
    return org.memberships.select_related("user").order_by("user__email")


def member_get(*, org: Org, membership_id: int) -> Membership:
    found = members_of(org).filter(pk=membership_id).first()
    if found is None:
        raise NotFound("There is no such member in this organisation.")
    return found


def tokens_of(org: Org) -> QuerySet[ApiToken]:
    """All tokens, revoked and expired ones too, newest first."""
    return org.tokens.select_related("user").order_by("-created_at")


def token_get(*, org: Org, token_id: UUID | str) -> ApiToken:
    found = tokens_of(org).filter(pk=token_id).first()
    if found is None:
        raise NotFound("There is no such token in this organisation.")
    return found


def prices_of(org: Org) -> QuerySet[GpuPrice]:
    """The organisation's own prices, by GPU."""
    return org.gpu_prices.order_by("gpu")


def audit_events_of(org: Org) -> QuerySet[AuditEvent]:
    return org.audit_events.order_by("-at", "-pk")
