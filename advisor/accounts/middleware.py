"""Puts the organisation that a signed-in person works in onto the request."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from advisor.accounts.selectors import membership_of

SESSION_KEY = "org"
"""Session key of the chosen organisation's id; without it the first membership counts."""


class OrgMiddleware:
    """Sets `request.org` and `request.membership`; both None for a stranger to all of them.

    Sessions only. A request with a bearer token gets its organisation from the token
    (`accounts.auth`), so its cookies are not even read; pages never accept tokens.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        membership = None
        by_token = request.headers.get("Authorization", "").lower().startswith("bearer")
        if not by_token and request.user.is_authenticated:
            membership = membership_of(user=request.user, org_id=request.session.get(SESSION_KEY))
        request.membership = membership
        request.org = membership.org if membership else None
        return self.get_response(request)
