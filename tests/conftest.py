"""The cast, the clients, and what keeps tests fast and to themselves.

alice owns `org`, bob may only read it, charlie owns another organisation and knows neither.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connections
from django.test import Client

from advisor.accounts.models import Org, Role, User
from tests import factories

ApiClient = Callable[..., Client]

# Two workers on two cores: torch with a thread for each core in both is many times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings: None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """SQLite as the product runs it: a file, where a second writer waits.

    A database in memory refuses it at once ("table is locked"), whatever the time-out.
    """
    database = connections.databases["default"]
    if database["ENGINE"] == "django.db.backends.sqlite3":
        database["TEST"]["NAME"] = str(tmp_path_factory.mktemp("db") / "test.sqlite3")


@pytest.fixture
def alice(db: None) -> User:
    return factories.create_user("alice@example.org", name="Alice")


@pytest.fixture
def org(alice: User) -> Org:
    return factories.create_org("Serving team", owner=alice)


@pytest.fixture
def bob(org: Org) -> User:
    user = factories.create_user("bob@example.org", name="Bob")
    factories.create_member(org, user, Role.VIEWER)
    return user


@pytest.fixture
def dora(org: Org) -> User:
    """Member of `org`: may submit and cancel, but manages nobody."""
    user = factories.create_user("dora@example.org", name="Dora")
    factories.create_member(org, user, Role.MEMBER)
    return user


@pytest.fixture
def charlie(db: None) -> User:
    user = factories.create_user("charlie@example.org", name="Charlie")
    factories.create_org("Somebody else", owner=user)
    return user


@pytest.fixture
def signed_in() -> ApiClient:
    """`signed_in(user)`: a browser with that person's session."""

    def make(user: User, **kwargs: Any) -> Client:
        client = Client(**kwargs)
        client.force_login(user)
        return client

    return make


@pytest.fixture
def with_token() -> ApiClient:
    """`with_token(user, scope="read")`: a script with a token of that person."""

    def make(user: User, *, scope: str = "write", org: Org | None = None) -> Client:
        org = org or user.memberships.get().org
        _, secret = factories.create_token(org, user, scope=scope)
        return Client(headers={"Authorization": f"Bearer {secret}"})

    return make


@pytest.fixture(autouse=True)
def _quick_and_alone(settings: Any, tmp_path: Any) -> Iterator[None]:
    """No collected static files, no hub, no broker, no cache left from the test before."""
    settings.STORAGES = {
        **settings.STORAGES,
        "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
    }
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    settings.HUB_CHECK = False
    settings.REDIS_URL = "memory://"
    settings.STATIC_ROOT = tmp_path
    settings.ARTIFACT_DIR = tmp_path / "artifacts"
    settings.TRACE_DIR = tmp_path / "traces"
    cache.clear()
    yield
    cache.clear()


@pytest.fixture(autouse=True)
def _loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that reaches for another machine fails with a sentence instead of hanging."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and not _is_loopback(address[0]):
            raise OSError(f"tests talk to this machine only, not to {address[0]}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow files first: no worker is left alone with them at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
