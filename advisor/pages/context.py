"""What every page shows: navigation, organisation, rights, version."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

NAV = (
    ("studies", _("Studies"), ("studies", "study", "trial", "compare")),
    ("model", _("Model"), ("model",)),
    ("traces", _("Traces"), ("trace",)),
    ("agents", _("Agents"), ("agent",)),
    ("rules", _("Rules"), ("rule",)),
    ("organisation", _("Organisation"), ("organisation", "token", "member", "price")),
)


def page_context(request: HttpRequest) -> dict[str, Any]:
    """`nav` (url name, word, current?), `org`, `membership`, rights and the version."""
    membership = getattr(request, "membership", None)
    match = getattr(request, "resolver_match", None)
    name = (match.url_name if match else None) or ""
    return {
        "nav": [
            (url, word, any(name.startswith(prefix) for prefix in prefixes))
            for url, word, prefixes in NAV
        ],
        "org": getattr(request, "org", None),
        "membership": membership,
        "can_write": bool(membership and membership.can_write),
        "can_manage": bool(membership and membership.can_manage),
        "version": settings.VERSION,
        "public_url": settings.PUBLIC_URL,
        "open_signup": settings.ADVISOR_OPEN_SIGNUP,
    }
