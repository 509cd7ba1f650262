"""Wakes: hints to agents that a trial waits for them. Losing one costs seconds, never a trial.

A wake is published after commit, from one background thread, so that a broker that hangs cannot
hold a web request; when the queue of hints is full, the newest is dropped, because the agent polls
anyway and the sweeper sends again.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterable
from datetime import timedelta
from functools import partial

from django.conf import settings
from django.db import transaction
from django.utils import timezone
from kombu.exceptions import OperationalError

from advisor.celery import app
from advisor.studies.models import Trial
from advisor.studies.states import LIVE, TrialState
from gpuagent.wire import WIRE_VERSION

log = logging.getLogger(__name__)

WAKE_TASK = "gpuagent.wake"

_hints: queue.Queue[tuple[str, str]] = queue.Queue(maxsize=1000)
_lock = threading.Lock()
_publisher: threading.Thread | None = None


def wake_after_commit(trials: Iterable[Trial]) -> None:
    """Wake the agents of `trials` once the surrounding transaction is durable."""
    hints = [(str(t.pk), t.agent.queue) for t in trials if t.agent is not None]
    for hint in hints[:1] if len({h[1] for h in hints}) == 1 else hints:
        transaction.on_commit(partial(_offer, hint))


def wakes_resend() -> int:
    """Wake agents again whose trial has been waiting for longer than a minute."""
    now = timezone.now()
    overdue = now - timedelta(seconds=settings.WAKE_RESEND_S)
    waiting = Trial.objects.filter(
        state=TrialState.QUEUED, queued_at__lt=overdue, agent__isnull=False
    ).exclude(woken_at__gt=overdue)
    # An agent that is busy needs no wake: it claims again when its trial ends.
    waiting = waiting.exclude(agent__trials__state__in=LIVE).select_related("agent")
    sent = 0
    for trial in waiting.order_by("queued_at")[:100]:
        if Trial.objects.filter(pk=trial.pk, woken_at=trial.woken_at).update(woken_at=now):
            _offer((str(trial.pk), trial.agent.queue if trial.agent else ""))
            sent += 1
    return sent


def _offer(hint: tuple[str, str]) -> None:
    global _publisher
    try:
        _hints.put_nowait(hint)
    except queue.Full:
        return
    with _lock:
        if _publisher is None or not _publisher.is_alive():
            _publisher = threading.Thread(target=_publish, name="wakes", daemon=True)
            _publisher.start()


def _publish() -> None:
    """Send hints until none came for a while; a broken broker is logged and otherwise ignored."""
    while True:
        try:
            trial_id, agent_queue = _hints.get(timeout=30)
        except queue.Empty:
            return
        try:
            app.send_task(
                WAKE_TASK,
                kwargs={"trial_id": trial_id, "wire_version": WIRE_VERSION},
                queue=agent_queue,
                expires=settings.WAKE_RESEND_S,
                retry=False,
                ignore_result=True,
            )
        except (OperationalError, OSError) as error:
            log.warning("no wake sent to %s: %s; the agent will poll", agent_queue, error)
