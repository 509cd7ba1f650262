"""What only a real database server and a real Redis can show. Run by scripts/test_services.sh."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from celery import Celery
from django.db import connection
from redis import Redis

from advisor.accounts.models import Org
from advisor.celery import _configure
from advisor.fleet.models import Agent
from advisor.studies import dispatch, leases
from advisor.studies.models import Attempt, Trial
from advisor.studies.states import TrialState
from gpuagent.worker import WakeListener
from tests import factories

pytestmark = [
    pytest.mark.services,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        "postgres" not in os.environ.get("DATABASE_URL", ""),
        reason="needs PostgreSQL and Redis (make test-services)",
    ),
]


def claim_in_thread(agent_id: object, instance: str) -> object:
    try:
        agent = Agent.objects.get(pk=agent_id)
        return leases._try_claim(
            Trial.objects.values_list("pk", flat=True).get(),
            0,
            agent=agent,
            instance=instance,
            now=__import__("django.utils.timezone", fromlist=["now"]).now(),
        )
    finally:
        connection.close()


def test_fifty_claims_of_one_trial_at_once_have_one_winner(org: Org) -> None:
    agent = factories.create_agent(org)
    study = factories.create_study(org, agent=agent)
    with ThreadPoolExecutor(16) as pool:
        for round_number in range(10):
            Trial.objects.all().delete()
            trial = factories.create_trial(study)
            claims = list(pool.map(lambda i: claim_in_thread(agent.pk, f"{i:08x}"), range(50)))
            assert sum(claim is not None for claim in claims) == 1, f"round {round_number}"
            trial.refresh_from_db()
            assert (trial.state, trial.epoch) == (TrialState.LEASED, 1)
            assert Attempt.objects.filter(trial=trial).count() == 1


def test_a_wake_travels_through_redis_to_a_listening_agent(
    org: Org, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = factories.create_agent(org, slug="redis-agent")
    trial = factories.create_trial(factories.create_study(org, agent=agent))
    url = os.environ["REDIS_URL"]
    settings.REDIS_URL = url
    # The process's own app keeps the connection that its first message opened, here to no broker.
    sender = Celery("advisor", set_as_current=False)
    sender.on_configure.connect(_configure)
    monkeypatch.setattr(dispatch, "app", sender)
    woken: list[float] = []
    listener = WakeListener(url, agent.slug, lambda: woken.append(time.monotonic()))
    listener.start()
    try:
        deadline = time.monotonic() + 20
        while not woken and time.monotonic() < deadline:
            dispatch._offer((str(trial.pk), agent.queue))
            time.sleep(0.5)
        assert woken
        assert not Redis.from_url(url).exists("unacked"), "acknowledged early"
    finally:
        listener.stop()
