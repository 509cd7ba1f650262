"""The error pages. They say what happened and what to do, never a traceback."""

from __future__ import annotations

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.csrf import requires_csrf_token

from advisor import units


def _page(request: HttpRequest, status: int, reason: str = "") -> HttpResponse:
    return render(request, f"{status}.html", {"reason": reason}, status=status)


@requires_csrf_token
def bad_request(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    if isinstance(exception, RequestDataTooBig):
        most = units.memory(settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
        return _page(
            request,
            400,
            f"The form is too large: it may hold {most} of text. Go back; the browser still has"
            " what you typed. A config.json has no weights and far less text than that.",
        )
    return _page(request, 400)


@requires_csrf_token
def forbidden(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    return _page(request, 403, str(exception or ""))


@requires_csrf_token
def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    return _page(request, 404)


def unavailable(request: HttpRequest, reason: str) -> HttpResponse:
    """What this server has no tool for; `reason` says how to get it."""
    return _page(request, 503, reason)


@requires_csrf_token
def server_error(request: HttpRequest) -> HttpResponse:
    # No context processors: they may be what failed.
    return HttpResponse(_STATIC_500, status=500)


_STATIC_500 = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Error · LLM Tuning Advisor</title></head>
<body><h1>The server failed on this page</h1>
<p>Nothing was changed. Load the page again; if it stays, tell the operator the time and the
address: the server's log has the cause.</p>
<p><a href="/studies/">Studies</a></p></body>
</html>
"""
