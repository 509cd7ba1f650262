"""States of trials and studies, and the only allowed ways between them.

`lost` is not a resting place: a lost attempt sends its trial back to the queue, into quarantine or
to `failed`. "Agent unreachable" is derived from the age of the lease, never stored.
"""

from __future__ import annotations

from enum import StrEnum


class TrialState(StrEnum):
    QUEUED = "queued"
    LEASED = "leased"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    QUARANTINED = "quarantined"


class AttemptEnd(StrEnum):
    """How an attempt ended. `released` and `lost` send the trial back to the queue."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    RELEASED = "released"
    LOST = "lost"


class StudyState(StrEnum):
    """waiting: has no agent yet. finished covers met, missed and not proven alike."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    CANCELLED = "cancelled"


LIVE = (TrialState.LEASED, TrialState.RUNNING)
TERMINAL = (
    TrialState.SUCCEEDED,
    TrialState.FAILED,
    TrialState.CANCELLED,
    TrialState.QUARANTINED,
)

TRANSITIONS: dict[TrialState, frozenset[TrialState]] = {
    TrialState.QUEUED: frozenset({TrialState.LEASED, TrialState.CANCELLED}),
    TrialState.LEASED: frozenset(
        {
            TrialState.RUNNING,
            TrialState.SUCCEEDED,
            TrialState.FAILED,
            TrialState.CANCELLED,
            TrialState.QUEUED,
            TrialState.QUARANTINED,
        }
    ),
    TrialState.RUNNING: frozenset(
        {
            TrialState.SUCCEEDED,
            TrialState.FAILED,
            TrialState.CANCELLED,
            TrialState.QUEUED,
            TrialState.QUARANTINED,
        }
    ),
    TrialState.SUCCEEDED: frozenset(),
    TrialState.FAILED: frozenset(),
    TrialState.CANCELLED: frozenset(),
    TrialState.QUARANTINED: frozenset(),
}

MAX_ATTEMPTS = 3
MAX_AGENT_DEATHS = 2
