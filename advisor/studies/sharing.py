"""Links that show one study's report to whoever holds them, until they expire or are revoked."""

from __future__ import annotations

from datetime import timedelta
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.urls import reverse
from django.utils import timezone

from advisor import secrets
from advisor.accounts.models import User
from advisor.accounts.services import audit
from advisor.errors import Conflict, InvalidInput, NotFound
from advisor.studies.models import Study, StudyShare

SHARE_DAYS: Final = (1, 7, 30)
MAX_LIVE: Final = 20


@transaction.atomic
def share_create(*, study: Study, user: User, days: int, actor: str) -> tuple[StudyShare, str]:
    """A new link and its address, which is not kept and never shown again.

    Raises InvalidInput for another lifetime, Conflict where too many links are live.
    """
    if isinstance(days, bool) or days not in SHARE_DAYS:
        choices = ", ".join(map(str, SHARE_DAYS))
        raise InvalidInput("The link cannot live so long.", {"days": [f"Choose one of {choices}."]})
    live = study.shares.filter(revoked_at=None, expires_at__gt=timezone.now()).count()
    if live >= MAX_LIVE:
        raise Conflict(f"This study has {live} live links. Revoke one of them first.")
    secret = secrets.new_secret("tas")
    share = StudyShare.objects.create(
        study=study,
        created_by=user,
        prefix=secret.prefix,
        secret_hash=secret.sha256,
        expires_at=timezone.now() + timedelta(days=days),
    )
    detail = {"link": share.prefix, "expires_at": share.expires_at.isoformat()}
    target = f"study {study.number}"
    audit(org=study.org, actor=actor, action="share.create", target=target, detail=detail)
    return share, settings.PUBLIC_URL + reverse("shared-report", args=[secret.full])


@transaction.atomic
def share_revoke(*, study: Study, share_id: UUID, actor: str) -> StudyShare:
    """End a link now. Revoking it again changes nothing. Raises NotFound."""
    share = study.shares.filter(pk=share_id).first()
    if share is None:
        raise NotFound("There is no such link to this study.")
    if share.revoked_at is None:
        share.revoked_at = timezone.now()
        share.save(update_fields=["revoked_at"])
        detail = {"link": share.prefix}
        target = f"study {study.number}"
        audit(org=study.org, actor=actor, action="share.revoke", target=target, detail=detail)
    return share


def share_find(full: str) -> StudyShare | None:
    """The link with this secret, ended ones too; None for anything else."""
    prefix = secrets.split(full, "tas")
    found = (
        StudyShare.objects.filter(prefix=prefix)
        .select_related("study", "study__org", "study__agent")
        .first()
        if prefix
        else None
    )
    return found if found is not None and secrets.matches(full, found.secret_hash) else None
