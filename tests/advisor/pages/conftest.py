from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from advisor.accounts.models import Org, User
from advisor.fleet.models import Agent
from tests import factories

MARKUP = "<script>alert(1)</script>"


@pytest.fixture
def agent(org: Org) -> Agent:
    return factories.create_agent(org, "bench-1")


@pytest.fixture
def browser(alice: User, org: Org, signed_in: Any) -> Client:
    """Alice's browser: she owns the organisation."""
    return signed_in(alice)


@pytest.fixture
def viewer(bob: User, signed_in: Any) -> Client:
    return signed_in(bob)


@pytest.fixture
def member(dora: User, signed_in: Any) -> Client:
    return signed_in(dora)


@pytest.fixture
def stranger(charlie: User, signed_in: Any) -> Client:
    return signed_in(charlie)
