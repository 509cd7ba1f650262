"""Who may see a page: signed in, in an organisation, with the right for it.

Another organisation's object is 404 (the selectors see to that); a right that is missing is 403.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from advisor import errors

View = Callable[..., HttpResponse]


def actor_of(request: HttpRequest) -> str:
    """Who acts, as the audit log writes it."""
    return str(request.user.email)


def _org_page(view: View, right: str | None) -> View:
    @login_required
    @wraps(view)
    def inner(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        membership = getattr(request, "membership", None)
        if membership is None:
            raise PermissionDenied(
                "You are not a member of an organisation. Ask an owner to add you."
            )
        if right and not getattr(membership, right):
            raise PermissionDenied(_DENIED[right])
        try:
            return view(request, *args, **kwargs)
        except errors.NotFound as error:
            raise Http404(error.message) from error
        except errors.Forbidden as error:
            raise PermissionDenied(error.message) from error

    return inner


_DENIED = {
    "can_write": "Your role is viewer: it reads studies, but does not start or cancel them.",
    "can_manage": "Only an owner of the organisation may do this.",
}


def reading(view: View) -> View:
    """GET for every member."""
    return require_safe(_org_page(view, None))


def asking(view: View) -> View:
    """GET and POST of a form that changes nothing, for every member."""
    return require_http_methods(["GET", "HEAD", "POST"])(_org_page(view, None))


def writing(view: View) -> View:
    """POST for members and owners."""
    return require_POST(_org_page(view, "can_write"))


def writing_form(view: View) -> View:
    """GET and POST of a form that members and owners may send."""
    return require_http_methods(["GET", "HEAD", "POST"])(_org_page(view, "can_write"))


def member(view: View) -> View:
    """POST for every member, viewers too; the view itself knows the limits."""
    return require_POST(_org_page(view, None))


def managing(view: View) -> View:
    """POST for owners."""
    return require_POST(_org_page(view, "can_manage"))
