"""OpenAPI: how callers authenticate, and the answers that every endpoint shares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema

from advisor.api.idempotency import HEADER, MAX_KEY
from gpuagent.wire.protocol import ErrorReply

View = TypeVar("View", bound=Callable[..., Any])

CURSOR = OpenApiParameter("cursor", str, description="From `next` or `previous`.")
LIMIT = OpenApiParameter("limit", int, description="Entries a page, 1 to 200; 50 by default.")
PAGING = (CURSOR, LIMIT)
IDEMPOTENCY = OpenApiParameter(
    HEADER,
    str,
    OpenApiParameter.HEADER,
    description=f"Up to {MAX_KEY} characters. The same key and body get the same answer for a"
    " day; another body is refused with 422.",
)

_ERRORS: dict[int, str] = {
    400: "The request is not valid; `fields` says where.",
    401: "No token, or one that is unknown, expired or revoked.",
    403: "The role or the token's scope does not allow this.",
    404: "No such object in the caller's organisation.",
    409: "The object's state does not allow this, or the first request with this key still runs.",
    413: "The body is too large.",
    422: "The Idempotency-Key was used for another request.",
    503: "The server lacks a tool for this; `message` says which.",
}


def operation(
    operation_id: str,
    *,
    tag: str,
    summary: str,
    response: Any,
    status: int = 200,
    request: Any = None,
    parameters: Sequence[OpenApiParameter] = (),
    errors: Sequence[int] = (),
    description: str | None = None,
) -> Callable[[View], View]:
    """`extend_schema` with the error answers; 401 and 403 belong to every operation."""
    codes = sorted({401, 403, *errors})
    return extend_schema(
        operation_id=operation_id,
        tags=[tag],
        summary=summary,
        description=description,
        request=request,
        parameters=list(parameters),
        responses={
            **(response if isinstance(response, dict) else {status: response}),
            **{code: OpenApiResponse(ErrorReply, _ERRORS[code]) for code in codes},
        },
    )


class ApiTokenScheme(OpenApiAuthenticationExtension):
    target_class = "advisor.accounts.auth.ApiTokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, str]:
        return {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "ta_…",
            "description": "A token from the Tokens page. Scope read allows GET alone.",
        }


class SessionScheme(OpenApiAuthenticationExtension):
    target_class = "advisor.accounts.auth.OrgSessionAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, str]:
        from django.conf import settings

        return {
            "type": "apiKey",
            "in": "cookie",
            "name": settings.SESSION_COOKIE_NAME,
            "description": "The browser session; writing needs the CSRF token as well.",
        }
