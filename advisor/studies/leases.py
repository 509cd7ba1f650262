"""The dispatch contract: claim, renew, record, release, cancel, expire.

Every change of a trial is one `UPDATE ... WHERE id AND state AND epoch`; 0 rows means somebody else
was first, and the caller is refused. That works alike on SQLite and PostgreSQL and needs no lock
that outlives a statement. An older lease token is fenced because its epoch is no longer the row's.

Time is the server's clock; agents never decide by theirs except to fence themselves.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F, Q
from django.utils import timezone

from advisor.errors import StaleLease
from advisor.fleet.models import Agent, AgentState
from advisor.fleet.services import agent_calibrated
from advisor.studies.models import Attempt, Event, Result, StoredArtifact, Study, Trial
from advisor.studies.states import (
    LIVE,
    MAX_AGENT_DEATHS,
    MAX_ATTEMPTS,
    TERMINAL,
    AttemptEnd,
    TrialState,
)
from gpuagent.wire import (
    Failure,
    FailureReason,
    TrialEvent,
    TrialOutcome,
    TrialResult,
    TrialSpec,
)
from gpuagent.wire.inside import CalibrateResult
from gpuagent.wire.protocol import Lease

RETRY_DELAY_S = 5.0


@dataclass(frozen=True, slots=True)
class Claim:
    """What a successful claim hands out. The token exists in clear only here."""

    trial: Trial
    attempt: Attempt
    lease: Lease
    spec: TrialSpec


@dataclass(frozen=True, slots=True)
class Control:
    """What every answer to a leased write carries."""

    cancel: bool
    drain: bool
    lease_until: datetime


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _lease_end(now: datetime) -> datetime:
    return now + timedelta(seconds=settings.LEASE_LOST_S)


def touch_study(study_id: object, now: datetime | None = None) -> None:
    """Mark a study for `advance`; the mark is in the same transaction as what caused it."""
    Study.objects.filter(pk=study_id, stale_since=None).update(stale_since=now or timezone.now())


# --- claim -------------------------------------------------------------------------------------


def trial_claim(*, agent: Agent, instance: str) -> Claim | None:
    """Lease the agent's next trial, or None.

    An agent claims only when it runs nothing. A lease it still holds is therefore over: from
    another instance the agent died with it; from the same one the reply to the claim was lost.
    """
    now = timezone.now()
    _end_forgotten_leases(agent=agent, instance=instance, now=now)
    if agent.state != AgentState.ACTIVE:
        return None
    candidates = (
        Trial.objects.filter(agent=agent, state=TrialState.QUEUED, cancel_requested_at=None)
        .filter(Q(not_before=None) | Q(not_before__lte=now))
        .order_by("study__created_at", "ordinal")
        .values_list("pk", "epoch")[:5]
    )
    for trial_id, epoch in list(candidates):
        claim = _try_claim(trial_id, epoch, agent=agent, instance=instance, now=now)
        if claim is not None:
            return claim
    return None


def _try_claim(
    trial_id: object, epoch: int, *, agent: Agent, instance: str, now: datetime
) -> Claim | None:
    token = secrets.token_urlsafe(32)
    with transaction.atomic():
        won = Trial.objects.filter(
            pk=trial_id, state=TrialState.QUEUED, epoch=epoch, cancel_requested_at=None
        ).update(
            state=TrialState.LEASED,
            epoch=F("epoch") + 1,
            attempts_used=F("attempts_used") + 1,
            lease_hash=_digest(token),
            lease_until=_lease_end(now),
            renewed_at=now,
            started_at=now,
            phase="prepare",
            progress_text="",
            done_frac=None,
            remaining_s=None,
        )
        if not won:
            return None
        trial = Trial.objects.select_related("study").get(pk=trial_id)
        attempt = Attempt.objects.create(
            trial=trial, number=trial.epoch, agent=agent, instance=instance, claimed_at=now
        )
    lease = Lease(trial_id=str(trial.pk), epoch=trial.epoch, token=token)
    return Claim(trial=trial, attempt=attempt, lease=lease, spec=trial.spec)


def _end_forgotten_leases(*, agent: Agent, instance: str, now: datetime) -> None:
    for trial in Trial.objects.filter(agent=agent, state__in=LIVE):
        attempt = trial.attempts.filter(number=trial.epoch).first()
        same = attempt is not None and attempt.instance == instance
        if same:
            _requeue(trial, AttemptEnd.RELEASED, now=now)
        else:
            _lose(trial, now=now)


# --- writes under a lease ----------------------------------------------------------------------


def _leased(lease: Lease, agent: Agent) -> Trial:
    """The trial that `lease` may write to, or StaleLease. Looked up within the agent's own."""
    trial = Trial.objects.filter(
        pk=lease.trial_id, agent=agent, state__in=LIVE, epoch=lease.epoch
    ).first()
    if trial is None or not hmac.compare_digest(trial.lease_hash, _digest(lease.token)):
        raise StaleLease("This lease is over. Stop the trial and claim anew.")
    return trial


def _extend(trial: Trial, *, running: bool, now: datetime) -> Control:
    gap_s = (now - trial.renewed_at).total_seconds() if trial.renewed_at else 0.0
    changes: dict[str, object] = {"lease_until": _lease_end(now), "renewed_at": now}
    if running:
        changes["state"] = TrialState.RUNNING
    kept = Trial.objects.filter(pk=trial.pk, state__in=LIVE, epoch=trial.epoch).update(**changes)
    if not kept:
        raise StaleLease("This lease is over. Stop the trial and claim anew.")
    Attempt.objects.filter(trial=trial, number=trial.epoch, longest_gap_s__lt=gap_s).update(
        longest_gap_s=gap_s
    )
    agent = trial.agent
    return Control(
        cancel=trial.cancel_requested_at is not None,
        drain=agent is not None and agent.state == AgentState.DRAINING,
        lease_until=_lease_end(now),
    )


def lease_renew(*, agent: Agent, lease: Lease, running: bool) -> Control:
    """Extend the lease. Raises StaleLease when it is not the newest any more."""
    return _extend(_leased(lease, agent), running=running, now=timezone.now())


def events_record(*, agent: Agent, lease: Lease, events: Sequence[TrialEvent]) -> Control:
    """Store events; a replayed `seq` is ignored. Also renews, so that a cancel arrives early."""
    trial = _leased(lease, agent)
    now = timezone.now()
    attempt = Attempt.objects.get(trial=trial, number=lease.epoch)
    rows = [
        Event(
            attempt=attempt,
            seq=event.seq,
            at=datetime.fromtimestamp(event.at_s, tz=now.tzinfo),
            phase=event.phase,
            level=event.level,
            message=event.message,
            done_frac=event.done_frac,
        )
        for event in events
    ]
    Event.objects.bulk_create(rows, ignore_conflicts=True)
    control = _extend(trial, running=True, now=now)
    latest = max(events, key=lambda event: event.seq, default=None)
    if latest is not None:
        Trial.objects.filter(pk=trial.pk, epoch=lease.epoch, state__in=LIVE).update(
            phase=latest.phase,
            progress_text=latest.message[:300],
            done_frac=latest.done_frac,
            remaining_s=latest.remaining_s,
        )
    return control


def result_record(*, agent: Agent, lease: Lease, outcome: TrialOutcome) -> tuple[str, ...]:
    """Accept the outcome of an attempt, exactly once; return the hashes still to be uploaded.

    Repeating an accepted outcome (the reply was lost) is answered the same way. Anything from an
    older lease raises StaleLease. A retryable failure sends the trial back to the queue.
    """
    if _is_replay(agent=agent, lease=lease):
        return _missing(lease)
    trial = _leased(lease, agent)
    now = timezone.now()
    try:
        with transaction.atomic():
            attempt = Attempt.objects.get(trial=trial, number=lease.epoch)
            if outcome.status == "succeeded" and outcome.result is not None:
                _finish(trial, TrialState.SUCCEEDED, AttemptEnd.SUCCEEDED, outcome, now=now)
                Result.objects.create(
                    trial=trial,
                    attempt=attempt,
                    payload=outcome.result.model_dump(mode="json"),
                    received_at=now,
                )
                _keep_ceilings(agent, outcome.result)
            elif outcome.status == "cancelled":
                _finish(trial, TrialState.CANCELLED, AttemptEnd.CANCELLED, outcome, now=now)
            elif outcome.failure is not None and _may_retry(trial, outcome.failure):
                _requeue(trial, AttemptEnd.FAILED, now=now, failure=outcome.failure)
            else:
                _finish(trial, TrialState.FAILED, AttemptEnd.FAILED, outcome, now=now)
            StoredArtifact.objects.bulk_create(
                [
                    StoredArtifact(
                        attempt=attempt, name=a.name, sha256=a.sha256, size_bytes=a.size_bytes
                    )
                    for a in outcome.artifacts
                ],
                ignore_conflicts=True,
            )
            touch_study(trial.study_id, now)
    except IntegrityError as error:
        raise StaleLease("Another result of this trial was accepted before.") from error
    return _missing(lease)


def _keep_ceilings(agent: Agent, result: TrialResult) -> None:
    measured = result.measurements
    if isinstance(measured, CalibrateResult) and result.validity.verdict != "invalid":
        agent_calibrated(agent=agent, ceilings=measured.ceilings)


def _is_replay(*, agent: Agent, lease: Lease) -> bool:
    """Whether this very lease already delivered its outcome (its reply may have been lost)."""
    attempt = (
        Attempt.objects.filter(trial_id=lease.trial_id, agent=agent, number=lease.epoch)
        .exclude(end__in=("", AttemptEnd.LOST, AttemptEnd.RELEASED))
        .select_related("trial")
        .first()
    )
    return attempt is not None and hmac.compare_digest(
        attempt.trial.lease_hash, _digest(lease.token)
    )


def _missing(lease: Lease) -> tuple[str, ...]:
    return tuple(
        StoredArtifact.objects.filter(
            attempt__trial_id=lease.trial_id, attempt__number=lease.epoch, stored_at=None
        ).values_list("sha256", flat=True)
    )


def trial_release(*, agent: Agent, lease: Lease, reason: str) -> None:
    """The agent is being stopped and gives the trial back unharmed: the attempt does not count."""
    _requeue(_leased(lease, agent), AttemptEnd.RELEASED, now=timezone.now(), note=reason)


# --- ends --------------------------------------------------------------------------------------


def _may_retry(trial: Trial, failure: Failure) -> bool:
    return (
        failure.kind.retryable
        and trial.attempts_used < MAX_ATTEMPTS
        and trial.cancel_requested_at is None
    )


def _finish(
    trial: Trial,
    state: TrialState,
    end: AttemptEnd,
    outcome: TrialOutcome,
    *,
    now: datetime,
) -> None:
    failure = outcome.failure.model_dump(mode="json") if outcome.failure else None
    changed = Trial.objects.filter(pk=trial.pk, state__in=LIVE, epoch=trial.epoch).update(
        state=state,
        lease_until=None,
        finished_at=now,
        failure_json=failure,
        log_tail=outcome.log_tail,
        done_frac=1.0 if state == TrialState.SUCCEEDED else F("done_frac"),
        remaining_s=None,
    )
    if not changed:
        raise StaleLease("This lease is over. Stop the trial and claim anew.")
    Attempt.objects.filter(trial=trial, number=trial.epoch).update(
        end=end, ended_at=now, failure_json=failure
    )


def _requeue(
    trial: Trial,
    end: AttemptEnd,
    *,
    now: datetime,
    failure: Failure | None = None,
    note: str = "",
) -> bool:
    """Back to the queue. A released attempt is given back to the budget of attempts."""
    released = end == AttemptEnd.RELEASED
    target = TrialState.QUEUED
    if trial.cancel_requested_at is not None:
        target = TrialState.CANCELLED
    with transaction.atomic():
        changed = Trial.objects.filter(pk=trial.pk, state__in=LIVE, epoch=trial.epoch).update(
            state=target,
            lease_hash="",
            lease_until=None,
            attempts_used=F("attempts_used") - (1 if released else 0),
            queued_at=now,
            woken_at=None,
            finished_at=now if target == TrialState.CANCELLED else None,
            not_before=None if released else now + timedelta(seconds=RETRY_DELAY_S),
            progress_text=note[:300],
            done_frac=None,
            remaining_s=None,
            phase="",
        )
        if changed:
            Attempt.objects.filter(trial=trial, number=trial.epoch).update(
                end=end,
                ended_at=now,
                failure_json=failure.model_dump(mode="json") if failure else None,
            )
            touch_study(trial.study_id, now)
    return bool(changed)


def _lose(trial: Trial, *, now: datetime) -> bool:
    """The agent died with the trial: retry, or quarantine a trial that kills its agents."""
    deaths = trial.agent_deaths + 1
    failure = Failure(
        reason=FailureReason.AGENT_LOST,
        message=f"The agent stopped answering during attempt {trial.attempts_used}.",
    )
    changes: dict[str, object] = {
        "lease_hash": "",
        "lease_until": None,
        "agent_deaths": deaths,
        "done_frac": None,
        "remaining_s": None,
    }
    if trial.cancel_requested_at is not None:
        changes |= {"state": TrialState.CANCELLED, "finished_at": now}
    elif deaths >= MAX_AGENT_DEATHS:
        changes |= {
            "state": TrialState.QUARANTINED,
            "finished_at": now,
            "failure_json": failure.model_dump(mode="json"),
        }
    elif trial.attempts_used >= MAX_ATTEMPTS:
        changes |= {
            "state": TrialState.FAILED,
            "finished_at": now,
            "failure_json": failure.model_dump(mode="json"),
        }
    else:
        changes |= {
            "state": TrialState.QUEUED,
            "queued_at": now,
            "woken_at": None,
            "phase": "",
            "progress_text": "The agent was lost; the trial is queued again.",
        }
    with transaction.atomic():
        changed = Trial.objects.filter(pk=trial.pk, state__in=LIVE, epoch=trial.epoch).update(
            **changes
        )
        if changed:
            Attempt.objects.filter(trial=trial, number=trial.epoch).update(
                end=AttemptEnd.LOST, ended_at=now, failure_json=failure.model_dump(mode="json")
            )
            touch_study(trial.study_id, now)
    return bool(changed)


def trial_cancel(*, trial: Trial) -> bool:
    """Cancel: at once where no agent works on it, else through the agent's next renewal.

    False where that was asked before, or the trial has ended.
    """
    now = timezone.now()
    with transaction.atomic():
        asked = (
            Trial.objects.filter(pk=trial.pk, cancel_requested_at=None)
            .exclude(state__in=TERMINAL)
            .update(cancel_requested_at=now)
        )
        Trial.objects.filter(pk=trial.pk, state=TrialState.QUEUED).update(
            state=TrialState.CANCELLED, finished_at=now
        )
        touch_study(trial.study_id, now)
    return bool(asked)


# --- the sweeper -------------------------------------------------------------------------------


def leases_grant_grace(*, gap_s: float) -> int:
    """After a server outage: agents could not renew, so no live lease ends within a minute."""
    if gap_s < settings.LEASE_UNREACHABLE_S:
        return 0
    floor = timezone.now() + timedelta(seconds=settings.LEASE_UNREACHABLE_S)
    return Trial.objects.filter(state__in=LIVE, lease_until__lt=floor).update(lease_until=floor)


def leases_expire() -> int:
    """Lose trials whose lease ran out, and force cancels that no agent confirmed."""
    now = timezone.now()
    ended = sum(
        _lose(trial, now=now) for trial in Trial.objects.filter(state__in=LIVE, lease_until__lt=now)
    )
    overdue = now - timedelta(seconds=settings.CANCEL_FORCE_S)
    for trial in Trial.objects.filter(state__in=LIVE, cancel_requested_at__lt=overdue):
        ended += _requeue(trial, AttemptEnd.CANCELLED, now=now)
    return ended
