from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from advisor.accounts.models import Org, User
from advisor.fleet.models import Agent
from tests import factories
from tests.conftest import ApiClient


@pytest.fixture
def agent(org: Org) -> Agent:
    return factories.create_agent(org, "bench-1")


@pytest.fixture
def api(org: Org, alice: User, with_token: ApiClient) -> Client:
    """A script with a write token of an owner."""
    return with_token(alice)


@pytest.fixture
def reader(org: Org, bob: User, with_token: ApiClient) -> Client:
    """A script with a read token of a viewer."""
    return with_token(bob, scope="read")


@pytest.fixture
def stranger(charlie: User, with_token: ApiClient) -> Client:
    return with_token(charlie)


@pytest.fixture
def body(agent: Agent) -> Callable[..., dict[str, Any]]:
    """`body(**overrides)`: a study request that works."""

    def make(**overrides: Any) -> dict[str, Any]:
        return {
            "name": "Chat on two cores",
            "model": {"kind": "local", "name": "SmolLM2-135M-Instruct"},
            "workload": {
                "preset": "chat",
                "input_tokens": {"mean": 64},
                "output_tokens": {"mean": 16},
                "requests": 20,
            },
            "targets": [{"metric": "ttft_s", "statistic": "p95", "limit": 0.2}],
            "agent": agent.slug,
            **overrides,
        }

    return make
