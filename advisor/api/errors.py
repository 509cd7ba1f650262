"""One shape for every error of the API: `{code, message, fields}`.

`code` is stable and for programs, `message` one sentence for people, `fields` says what to change
where: dotted path -> messages. Nothing else leaves the server, least of all a traceback.
"""

from __future__ import annotations

import logging
from typing import Any

from django.core.exceptions import PermissionDenied as DjangoPermissionDenied
from django.core.exceptions import SuspiciousOperation
from django.db import OperationalError
from django.http import Http404, HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import set_rollback

from advisor.errors import AdvisorError, InvalidInput

log = logging.getLogger(__name__)

NO_ENDPOINT = "There is no such endpoint: see /api/docs/."

_CODES: dict[type[exceptions.APIException], str] = {
    exceptions.ValidationError: "invalid",
    exceptions.ParseError: "parse_error",
    exceptions.NotAuthenticated: "not_authenticated",
    exceptions.AuthenticationFailed: "authentication_failed",
    exceptions.PermissionDenied: "forbidden",
    exceptions.NotFound: "not_found",
    exceptions.MethodNotAllowed: "method_not_allowed",
    exceptions.NotAcceptable: "not_acceptable",
    exceptions.UnsupportedMediaType: "unsupported_media_type",
    exceptions.Throttled: "throttled",
}


def exception_handler(exc: Exception, context: dict[str, Any]) -> Response:
    """Answer for whatever a view raised. What nobody foresaw is logged and becomes a 500."""
    set_rollback()
    if isinstance(exc, AdvisorError):
        return error(exc.status, exc.code, exc.message, exc.fields)
    if isinstance(exc, Http404):
        return error(404, "not_found", "There is no such object.")
    if isinstance(exc, DjangoPermissionDenied):
        return error(403, "forbidden", "You may not do this.")
    if isinstance(exc, exceptions.APIException):
        return _from_rest_framework(exc)
    if isinstance(exc, SuspiciousOperation):
        return error(400, "invalid", "The request is malformed.")
    view = type(context.get("view")).__name__
    if isinstance(exc, OperationalError):
        log.error("%s: the database did not answer: %s", view, exc)
        busy = error(503, "unavailable", "The database is busy: try again in a few seconds.")
        busy["Retry-After"] = "5"
        return busy
    log.error("%s failed", view, exc_info=exc)
    return error(500, "internal", "The server failed on this request; its log says why.")


def error(
    status: int, code: str, message: str, fields: dict[str, list[str]] | None = None
) -> Response:
    return Response({"code": code, "message": message, "fields": fields or {}}, status=status)


def invalid_fields(fields: dict[str, list[str]]) -> InvalidInput:
    """The error for these fields; its message names the first one."""
    path, messages = next(iter(fields.items()))
    sentence = messages[0] if path == "__all__" else f"{path}: {messages[0]}"
    others = len(fields) - 1
    return InvalidInput(f"{sentence} ({others} more in fields)" if others else sentence, fields)


@csrf_exempt
def no_such_endpoint(request: HttpRequest, rest: str = "") -> JsonResponse:
    """Last route of the API, so that a mistyped path is answered as JSON too."""
    body = {"code": "not_found", "message": NO_ENDPOINT, "fields": {}}
    return JsonResponse(body, status=404)


def _from_rest_framework(exc: exceptions.APIException) -> Response:
    fields: dict[str, list[str]] = {}
    if isinstance(exc, exceptions.ValidationError) and isinstance(exc.detail, dict):
        fields = {key: [str(text) for text in texts] for key, texts in exc.detail.items()}
        message = invalid_fields(fields).message if fields else "The request is not valid."
    elif isinstance(exc.detail, list):
        message = " ".join(str(text) for text in exc.detail)
    else:
        message = str(exc.detail)
    code = next((c for kind, c in _CODES.items() if isinstance(exc, kind)), exc.default_code)
    response = error(exc.status_code, code, message, fields)
    if challenge := getattr(exc, "auth_header", None):
        response["WWW-Authenticate"] = challenge
    if wait := getattr(exc, "wait", None):
        response["Retry-After"] = str(int(wait))
    return response
