"""The error pages. They say what happened and what to do, never a traceback."""

from __future__ import annotations

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.utils.translation import get_language
from django.views.decorators.csrf import requires_csrf_token
from django.views.decorators.http import require_safe

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
    return HttpResponse(_alone("500.html"), status=500)


@require_safe
def offline(request: HttpRequest) -> HttpResponse:
    """What the service worker keeps and shows while the server cannot be reached."""
    return HttpResponse(_alone("offline.html"))


@require_safe
def service_worker(request: HttpRequest) -> HttpResponse:
    """At the root, since a worker serves the folder that it comes from and those below it."""
    script = render_to_string(
        "service_worker.js",
        {
            "sheets": [static(s) for s in _SHEETS],
            "version": settings.VERSION,
            # With another language the script differs, so browsers fetch the page it keeps again.
            "language": get_language(),
        },
    )
    return HttpResponse(
        script, content_type="text/javascript", headers={"Cache-Control": "no-cache"}
    )


_SHEETS = tuple(f"css/{name}.css" for name in ("tokens", "reset", "base", "layout", "components"))


def _alone(template: str) -> str:
    """A page without request, session or database: they may be what failed."""
    return render_to_string(template, {"sheets": _sheets()})


def _sheets() -> list[str]:
    try:
        return [static(sheet) for sheet in _SHEETS]
    except ValueError:  # style sheets were not collected
        return []
