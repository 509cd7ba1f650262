"""System checks of the settings that a public server needs and a laptop does not.

They follow from one fact, whether ADVISOR_PUBLIC_URL is https, and run with every management
command: an installation that would leak or lose something does not migrate or start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@register(Tags.security)
def check_public_server(app_configs: Sequence[Any] | None, **_: Any) -> list[CheckMessage]:
    """What must differ from the defaults once other machines reach the server by https."""
    if not settings.IS_HTTPS:
        return _check_plain_http()
    return [
        *_check_secret_key(),
        *_check_cache(),
        *_check_email(),
        *_check_database(),
        *_check_signup(),
        *_check_hosts(),
        *_check_agent_broker(),
    ]


def _check_plain_http() -> list[CheckMessage]:
    host = urlsplit(settings.PUBLIC_URL).hostname
    if host in _LOOPBACK:
        return []
    return [
        Warning(
            f"ADVISOR_PUBLIC_URL is http on {host}: passwords and tokens cross the network in"
            " clear text.",
            hint="Put a TLS proxy in front and set ADVISOR_PUBLIC_URL=https://…",
            id="advisor.W008",
        )
    ]


def _check_secret_key() -> list[CheckMessage]:
    if settings.SECRET_KEY_FROM_ENV:
        return []
    return [
        Error(
            "The secret key comes from the data folder.",
            hint="Set ADVISOR_SECRET_KEY (or ADVISOR_SECRET_KEY_FILE) to at least 50 random"
            " characters, the same for every process.",
            id="advisor.E001",
        )
    ]


def _check_cache() -> list[CheckMessage]:
    if "locmem" not in settings.CACHES["default"]["BACKEND"].lower():
        return []
    return [
        Error(
            "The cache is local to each process, so the limits on sign-in attempts are too.",
            hint="Set CACHE_URL=redis://… to a cache that all web processes share.",
            id="advisor.E002",
        )
    ]


def _check_email() -> list[CheckMessage]:
    if not settings.EMAIL_BACKEND.endswith((".console.EmailBackend", ".dummy.EmailBackend")):
        return []
    return [
        Error(
            "E-mail goes to the log, password-reset links with it.",
            hint="Set EMAIL_URL=smtp+tls://user:password@host:587 (or smtp+ssl://…).",
            id="advisor.E003",
        )
    ]


def _check_database() -> list[CheckMessage]:
    if settings.DATABASES["default"]["ENGINE"] != "django.db.backends.sqlite3":
        return []
    return [
        Warning(
            "The database is SQLite: one writer at a time and one web host.",
            hint="Set DATABASE_URL=postgres://user:password@host/name.",
            id="advisor.W004",
        )
    ]


def _check_signup() -> list[CheckMessage]:
    if not settings.ADVISOR_OPEN_SIGNUP or settings.ACCOUNT_EMAIL_VERIFICATION == "mandatory":
        return []
    return [
        Warning(
            "Anybody can sign up with an e-mail address that is not theirs.",
            hint="Set ADVISOR_EMAIL_VERIFICATION=mandatory, or close sign-up.",
            id="advisor.W005",
        )
    ]


def _check_hosts() -> list[CheckMessage]:
    if "*" not in settings.ALLOWED_HOSTS:
        return []
    return [
        Warning(
            "ADVISOR_ALLOWED_HOSTS accepts every host name, so links can point elsewhere.",
            hint="List the names under which the server is reached.",
            id="advisor.W006",
        )
    ]


def _check_agent_broker() -> list[CheckMessage]:
    if not settings.AGENT_BROKER_URL:
        return []
    broker = urlsplit(settings.AGENT_BROKER_URL)
    if broker.scheme != "redis" or broker.hostname in _LOOPBACK:
        return []
    return [
        Warning(
            "Agents are given a broker address without TLS.",
            hint="Set ADVISOR_AGENT_BROKER_URL=rediss://…, or leave it empty: agents then work"
            " by HTTPS polling.",
            id="advisor.W007",
        )
    ]
