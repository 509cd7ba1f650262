"""Links to a report: what may be shown of them, and the request for a new one."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from advisor.api.serializers.base import Answer, Page
from advisor.studies.models import StudyShare


class ShareRequest(BaseModel):
    """A new link, valid for so many days."""

    model_config = ConfigDict(extra="forbid")

    days: Literal[1, 7, 30] = 7


class ShareAnswer(Answer):
    """A link; of its secret only the prefix is known."""

    id: UUID
    prefix: str
    live: bool
    created_by: str | None
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None


class IssuedShare(Answer):
    """url is shown this once; a repeated request gets null."""

    share: ShareAnswer
    url: str | None


class SharePage(Page[ShareAnswer]):
    pass


def share_answer(share: StudyShare) -> ShareAnswer:
    return ShareAnswer(
        id=share.pk,
        prefix=share.prefix,
        live=share.is_live,
        created_by=share.created_by.email if share.created_by else None,
        created_at=share.created_at,
        expires_at=share.expires_at,
        revoked_at=share.revoked_at,
    )
