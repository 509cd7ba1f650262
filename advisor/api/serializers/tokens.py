"""API tokens: what may be shown of them, and the request for a new one."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from advisor.accounts.models import ApiToken, TokenScope
from advisor.accounts.services import DEFAULT_TOKEN_DAYS, MAX_TOKEN_DAYS
from advisor.api.serializers.base import Answer, Page


class TokenRequest(BaseModel):
    """A new token. A token that was issued with a token ends no later than that one."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, StringConstraints(min_length=1, max_length=80, strip_whitespace=True)]
    scope: Literal["read", "write"] = "read"
    days: Annotated[int, Field(ge=1, le=MAX_TOKEN_DAYS)] = DEFAULT_TOKEN_DAYS


class TokenAnswer(Answer):
    """A token; of its secret only the prefix is known."""

    id: UUID
    name: str
    prefix: str
    scope: TokenScope
    user: str
    live: bool
    created_at: datetime
    expires_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


class IssuedToken(Answer):
    """secret is shown this once; a repeated request gets null."""

    token: TokenAnswer
    secret: str | None


class TokenPage(Page[TokenAnswer]):
    pass


def token_answer(token: ApiToken) -> TokenAnswer:
    return TokenAnswer(
        id=token.pk,
        name=token.name,
        prefix=token.prefix,
        scope=TokenScope(token.scope),
        user=token.user.email,
        live=token.is_live,
        created_at=token.created_at,
        expires_at=token.expires_at,
        last_used_at=token.last_used_at,
        revoked_at=token.revoked_at,
    )
