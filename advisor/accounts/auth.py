"""Who calls the REST API, and what they may do. Everything starts from one organisation.

Two ways in: a bearer token (scripts; cookies are not read), or the browser session (the API docs
and pages; CSRF is enforced). Both end in an `OrgAuth`. Agents have their own authentication.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django.utils import timezone
from rest_framework.authentication import (
    BaseAuthentication,
    SessionAuthentication,
    get_authorization_header,
)
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated, PermissionDenied
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from advisor import secrets
from advisor.accounts.models import ApiToken, Membership, Org, TokenScope, User

LAST_USED_EVERY = timedelta(minutes=1)
"""`last_used_at` is for people; writing it on every request would cost a write per read."""

REFUSED = "The token is unknown, expired or revoked. Make a new one on the Tokens page."
"""One text for all reasons, so that a guess learns nothing."""


@dataclass(frozen=True, slots=True)
class OrgAuth:
    """`request.auth`: the organisation, the caller's membership, and the token if there is one."""

    org: Org
    membership: Membership
    token: ApiToken | None = None

    @property
    def actor(self) -> str:
        """The caller as the audit trail names it."""
        email = self.membership.user.email
        return f"{email} ({self.token.prefix})" if self.token else email


def auth_of(request: Request) -> OrgAuth:
    """The caller's standing. Raises for a caller without one, whatever the permissions said."""
    if not isinstance(request.auth, OrgAuth):
        raise NotAuthenticated("Sign in or send a token.")
    return request.auth


def org_of(request: Request) -> Org:
    return auth_of(request).org


def actor_of(request: Request) -> str:
    return auth_of(request).actor


class ApiTokenAuthentication(BaseAuthentication):
    """`Authorization: Bearer ta_…`. A bearer header decides alone: no fallback to the session."""

    realm = "LLM Tuning Advisor"

    def authenticate(self, request: Request) -> tuple[User, OrgAuth] | None:
        parts = get_authorization_header(request).split()
        if not parts or parts[0].lower() != b"bearer":
            return None
        if len(parts) != 2:
            raise AuthenticationFailed("Send the token as: Authorization: Bearer ta_…")
        return self._by_secret(parts[1].decode("latin-1"))

    def authenticate_header(self, request: Request) -> str:
        return f'Bearer realm="{self.realm}"'

    def _by_secret(self, secret: str) -> tuple[User, OrgAuth]:
        prefix = secrets.split(secret, "ta")
        if prefix is None:
            raise AuthenticationFailed(REFUSED)
        token = ApiToken.objects.select_related("org", "user").filter(prefix=prefix).first()
        if token is None or not secrets.matches(secret, token.secret_hash):
            raise AuthenticationFailed(REFUSED)
        if not token.is_live or not token.user.is_active:
            raise AuthenticationFailed(REFUSED)
        membership = Membership.objects.filter(org=token.org, user=token.user).first()
        if membership is None:
            raise AuthenticationFailed(REFUSED)
        _note_use(token)
        membership.user, membership.org = token.user, token.org
        return token.user, OrgAuth(token.org, membership, token)


class OrgSessionAuthentication(SessionAuthentication):
    """The signed-in person, in the organisation that `OrgMiddleware` chose."""

    def authenticate(self, request: Request) -> tuple[User, OrgAuth | None] | None:
        found = super().authenticate(request)
        if found is None:
            return None
        user, _ = found
        membership = getattr(request._request, "membership", None)
        if membership is None:
            return user, None
        return user, OrgAuth(membership.org, membership)


class OrgPermission(BasePermission):
    """Read for everybody in the organisation; write needs a member's role and a write token.

    A view with `owner_only = True` needs an owner to change something, one with
    `owner_reads = True` needs one to read as well. Under `changes_nothing = True` a POST only
    asks, and who may read may send it.
    """

    def has_permission(self, request: Request, view: object) -> bool:
        if not isinstance(request.auth, OrgAuth):
            if request.user.is_authenticated:
                raise PermissionDenied("Your account belongs to no organisation.")
            return False
        membership = request.auth.membership
        if getattr(view, "owner_reads", False) and not membership.can_manage:
            raise PermissionDenied("Only an owner of the organisation may see this.")
        if request.method in SAFE_METHODS or getattr(view, "changes_nothing", False):
            return True
        require_write(request.auth)
        if getattr(view, "owner_only", False) and not membership.can_manage:
            raise PermissionDenied("Only an owner of the organisation may do this.")
        return True


def require_write(auth: OrgAuth) -> None:
    """Raises PermissionDenied for a viewer and for a token that may only read."""
    if auth.token is not None and auth.token.scope != TokenScope.WRITE:
        raise PermissionDenied("The token may only read. Use one with scope write.")
    if not auth.membership.can_write:
        raise PermissionDenied("Your role is viewer: ask an owner to make you a member.")


def _note_use(token: ApiToken) -> None:
    now = timezone.now()
    if token.last_used_at is None or now - token.last_used_at > LAST_USED_EVERY:
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
