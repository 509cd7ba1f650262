"""Periodic repair: lost leases, wakes that got lost, studies whose evaluation was interrupted.

Celery beat calls it, and so does every agent poll when it is due, so that a dead broker or a dead
worker never stops a study. Running it twice at once is harmless.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from django.conf import settings
from django.utils import timezone

from advisor.accounts.models import IdempotencyKey
from advisor.fleet.models import RegistrationToken, TelemetryChunk
from advisor.studies import advance, dispatch, leases
from advisor.studies.models import Study, SweepState

log = logging.getLogger(__name__)

TELEMETRY_DAYS = 30


def sweep_if_due() -> bool:
    """Sweep unless somebody did within the interval. Cheap when it is not due: one read."""
    state = SweepState.objects.filter(pk=1).first()
    due = timezone.now() - timedelta(seconds=settings.SWEEP_EVERY_S)
    if state is not None and state.last_run_at > due:
        return False
    sweep()
    return True


def sweep() -> None:
    """One pass. Each part stands alone: a failing one is logged and does not stop the others."""
    now = timezone.now()
    state, created = SweepState.objects.get_or_create(pk=1, defaults={"last_run_at": now})
    gap_s = 0.0 if created else (now - state.last_run_at).total_seconds()
    SweepState.objects.filter(pk=1).update(last_run_at=now)
    leases.leases_grant_grace(gap_s=gap_s)
    leases.leases_expire()
    for study_id in Study.objects.exclude(stale_since=None).values_list("pk", flat=True)[:50]:
        advance.study_advance_safely(study_id)
    dispatch.wakes_resend()


def housekeeping() -> None:
    """Drop what is past its keep-time."""
    now = timezone.now()
    TelemetryChunk.objects.filter(to_at__lt=now - timedelta(days=TELEMETRY_DAYS)).delete()
    IdempotencyKey.objects.filter(created_at__lt=now - timedelta(days=1)).delete()
    RegistrationToken.objects.filter(expires_at__lt=now - timedelta(days=7), used_at=None).delete()
