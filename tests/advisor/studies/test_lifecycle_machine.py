"""The dispatch contract walked at random: claim, renew, lose, cancel, duplicate, late result.

A small model beside the database says what each call must answer. After every step: at most one
accepted result, no terminal state changed, only allowed transitions, exactly one open attempt for
a live trial. At the end the trial is driven home: nothing may be lost.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import pytest
from django.db import transaction
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from advisor.errors import StaleLease
from advisor.fleet.models import Agent
from advisor.studies import leases, sweep
from advisor.studies.models import Attempt, Result, Trial
from advisor.studies.states import (
    LIVE,
    MAX_AGENT_DEATHS,
    MAX_ATTEMPTS,
    TERMINAL,
    TRANSITIONS,
    TrialState,
)
from gpuagent.wire import Failure, FailureReason, TrialOutcome
from gpuagent.wire.protocol import Lease
from tests import builders, factories

RESULT = builders.make_trial(builders.make_baseline_result(n_requests=1)).result
EXAMPLES = int(os.environ.get("LIFECYCLE_EXAMPLES", "40"))

OUTCOMES: dict[str, TrialOutcome] = {
    "succeeded": TrialOutcome(status="succeeded", result=RESULT),
    "cancelled": TrialOutcome(status="cancelled"),
    "deterministic": TrialOutcome(
        status="failed", failure=Failure(reason=FailureReason.OUT_OF_MEMORY, message="no room")
    ),
    "retryable": TrialOutcome(
        status="failed", failure=Failure(reason=FailureReason.CHILD_KILLED, message="killed")
    ),
}


class Lifecycle(RuleBasedStateMachine):
    """One trial, one agent that dies and comes back, any number of leases old and new."""

    def __init__(self) -> None:
        super().__init__()
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self._open: list[AbstractContextManager[Any]] = []
        self._enter(transaction.atomic())
        self._enter(mock.patch("django.utils.timezone.now", side_effect=lambda: self.now))
        self._enter(mock.patch("advisor.studies.dispatch._offer"))
        self._enter(mock.patch("advisor.studies.advance.study_advance_safely"))
        self.issued: list[Lease] = []
        self.accepted: Lease | None = None
        self.instance = "0" * 8
        self.last_state = TrialState.QUEUED

    def _enter(self, context: AbstractContextManager[Any]) -> None:
        context.__enter__()
        self._open.append(context)

    def teardown(self) -> None:
        try:
            self._drive_home()
        finally:
            transaction.set_rollback(True)
            for context in reversed(self._open):
                context.__exit__(None, None, None)

    @initialize()
    def begin(self) -> None:
        org = factories.create_org()
        self.agent = factories.create_agent(org)
        study = factories.create_study(org, agent=self.agent)
        self.trial_id = factories.create_trial(study, queued_at=self.now).pk
        sweep.sweep()

    # --- helpers -------------------------------------------------------------------------------

    @property
    def trial(self) -> Trial:
        return Trial.objects.get(pk=self.trial_id)

    def holds(self, lease: Lease) -> bool:
        """Whether `lease` is the newest and its trial is live."""
        trial = self.trial
        return trial.state in LIVE and lease == self.issued[-1] and lease.epoch == trial.epoch

    def any_lease(self, index: int) -> Lease:
        return self.issued[index % len(self.issued)]

    # --- what can happen -----------------------------------------------------------------------

    @rule(restarted=st.booleans())
    def agent_claims(self, restarted: bool) -> None:
        before = self.trial
        if restarted:
            self.instance = f"{int(self.instance, 16) + 1:08x}"
        agent = Agent.objects.get(pk=self.agent.pk)
        claim = leases.trial_claim(agent=agent, instance=self.instance)
        if before.state in TERMINAL:
            assert claim is None
        if claim is not None:
            assert claim.lease.epoch == before.epoch + 1
            assert claim.lease.token not in {lease.token for lease in self.issued}
            self.issued.append(claim.lease)

    @precondition(lambda self: self.issued)
    @rule(index=st.integers(min_value=0), running=st.booleans())
    def agent_renews(self, index: int, running: bool) -> None:
        lease = self.any_lease(index)
        cancel_asked = self.trial.cancel_requested_at is not None
        if self.holds(lease):
            control = leases.lease_renew(agent=self.agent, lease=lease, running=running)
            assert control.cancel == cancel_asked
            assert control.lease_until > self.now
        else:
            with pytest.raises(StaleLease):
                leases.lease_renew(agent=self.agent, lease=lease, running=running)

    @precondition(lambda self: self.issued)
    @rule(index=st.integers(min_value=0), kind=st.sampled_from(sorted(OUTCOMES)))
    def agent_delivers(self, index: int, kind: str) -> None:
        lease = self.any_lease(index)
        outcome = OUTCOMES[kind]
        if self.holds(lease):
            leases.result_record(agent=self.agent, lease=lease, outcome=outcome)
            if self.trial.state in TERMINAL:
                self.accepted = lease
        elif lease == self.accepted:
            leases.result_record(agent=self.agent, lease=lease, outcome=outcome)
        else:
            with pytest.raises(StaleLease):
                leases.result_record(agent=self.agent, lease=lease, outcome=outcome)

    @precondition(lambda self: self.issued)
    @rule(index=st.integers(min_value=0))
    def agent_gives_back(self, index: int) -> None:
        lease = self.any_lease(index)
        if not self.holds(lease):
            with pytest.raises(StaleLease):
                leases.trial_release(agent=self.agent, lease=lease, reason="stopped")
            return
        used = self.trial.attempts_used
        leases.trial_release(agent=self.agent, lease=lease, reason="stopped")
        assert self.trial.attempts_used == used - 1

    @precondition(lambda self: self.issued)
    @rule(index=st.integers(min_value=0))
    def thief_guesses_a_token(self, index: int) -> None:
        forged = self.any_lease(index).model_copy(update={"token": "guessed-token-0123456789"})
        with pytest.raises(StaleLease):
            leases.result_record(agent=self.agent, lease=forged, outcome=OUTCOMES["succeeded"])

    @precondition(lambda self: self.issued)
    @rule(index=st.integers(min_value=0))
    def other_agent_uses_the_lease(self, index: int) -> None:
        other = factories.create_agent(self.agent.org)
        with pytest.raises(StaleLease):
            leases.lease_renew(agent=other, lease=self.any_lease(index), running=True)

    @rule()
    def user_cancels(self) -> None:
        leases.trial_cancel(trial=self.trial)

    @rule(seconds=st.sampled_from([5, 30, 70, 130, 310, 700]), server_was_down=st.booleans())
    def time_passes(self, seconds: int, server_was_down: bool) -> None:
        """The sweeper runs in between, unless the server was down and it runs once, late."""
        if server_was_down:
            self.now += timedelta(seconds=seconds)
            live = self.trial.state in LIVE
            sweep.sweep()
            if live and seconds >= 70 and self.trial.cancel_requested_at is None:
                assert self.trial.state in LIVE, "an outage of the server must not lose a trial"
            return
        for _ in range(seconds // 50 + 1):
            self.now += timedelta(seconds=min(seconds, 50))
            sweep.sweep()

    # --- what must always hold -----------------------------------------------------------------

    @invariant()
    def one_result_and_allowed_ways_only(self) -> None:
        if not hasattr(self, "trial_id"):
            return
        trial = self.trial
        state = TrialState(trial.state)
        results = Result.objects.filter(trial=trial).count()
        assert results == (1 if state == TrialState.SUCCEEDED else 0)
        if self.last_state in TERMINAL:
            assert state == self.last_state
        if state != self.last_state:
            assert self._reachable(self.last_state, state), f"{self.last_state} -> {state}"
        self.last_state = state
        still_open = Attempt.objects.filter(trial=trial, end="")
        assert [a.number for a in still_open] == ([trial.epoch] if state in LIVE else [])
        assert trial.attempts_used <= MAX_ATTEMPTS
        assert trial.agent_deaths <= MAX_AGENT_DEATHS
        assert (trial.finished_at is not None) == (state in TERMINAL)

    @staticmethod
    def _reachable(old: TrialState, new: TrialState) -> bool:
        """One rule may take several steps: a claim first ends the forgotten lease."""
        seen, border = {old}, [old]
        while border:
            for step in TRANSITIONS[border.pop()] - seen:
                seen.add(step)
                border.append(step)
        return new in seen

    def _drive_home(self) -> None:
        if not hasattr(self, "trial_id"):
            return
        for _ in range(10):
            if self.trial.state in TERMINAL:
                return
            self.now += timedelta(seconds=400)
            sweep.sweep()
            agent = Agent.objects.get(pk=self.agent.pk)
            claim = leases.trial_claim(agent=agent, instance=self.instance)
            if claim is not None:
                leases.result_record(agent=agent, lease=claim.lease, outcome=OUTCOMES["succeeded"])
        raise AssertionError(f"the trial was lost in state {self.trial.state}")


@pytest.mark.slow
@pytest.mark.django_db
def test_any_order_of_events_keeps_one_result_and_loses_no_trial() -> None:
    run_state_machine_as_test(
        Lifecycle,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
