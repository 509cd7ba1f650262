"""API tokens of the organisation. Owners only, for reading as well."""

from __future__ import annotations

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from advisor.accounts.auth import actor_of, auth_of, org_of
from advisor.accounts.selectors import token_get, tokens_of
from advisor.accounts.services import token_issue, token_revoke
from advisor.api.idempotency import once
from advisor.api.pagination import NewestFirst
from advisor.api.schema import IDEMPOTENCY, PAGING, operation
from advisor.api.serializers.base import respond
from advisor.api.serializers.tokens import (
    IssuedToken,
    TokenAnswer,
    TokenPage,
    TokenRequest,
    token_answer,
)
from advisor.api.wire_parser import parse_body


class TokenList(APIView):
    owner_only = owner_reads = True

    @operation(
        "tokens_list",
        tag="tokens",
        summary="Tokens, newest first, ended ones too",
        response=TokenPage,
        parameters=PAGING,
        errors=(400,),
    )
    def get(self, request: Request) -> Response:
        return NewestFirst().respond(request, tokens_of(org_of(request)), token_answer)

    @operation(
        "tokens_create",
        tag="tokens",
        summary="Issue a token for the caller",
        description="The secret is in this answer and nowhere else.",
        request=TokenRequest,
        response=IssuedToken,
        status=201,
        parameters=(IDEMPOTENCY,),
        errors=(400, 409, 422),
    )
    def post(self, request: Request) -> Response:
        wanted = parse_body(request, TokenRequest)

        def issue() -> Response:
            auth = auth_of(request)
            token, secret = token_issue(
                org=auth.org,
                user=auth.membership.user,
                name=wanted.name,
                scope=wanted.scope,
                days=wanted.days,
                not_after=auth.token.expires_at if auth.token else None,
            )
            return respond(
                IssuedToken(token=token_answer(token), secret=secret),
                status=201,
                headers={"Cache-Control": "no-store"},
            )

        return once(request, lambda: issue, never_stored=("secret",))


class TokenDetail(APIView):
    owner_only = owner_reads = True

    @operation(
        "tokens_read", tag="tokens", summary="One token", response=TokenAnswer, errors=(404,)
    )
    def get(self, request: Request, token_id: UUID) -> Response:
        return respond(token_answer(token_get(org=org_of(request), token_id=token_id)))

    @operation(
        "tokens_revoke",
        tag="tokens",
        summary="Revoke a token, effective at once",
        response=None,
        status=204,
        errors=(404,),
    )
    def delete(self, request: Request, token_id: UUID) -> Response:
        token_revoke(org=org_of(request), token_id=token_id, actor=actor_of(request))
        return Response(status=204)
