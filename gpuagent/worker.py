"""The Celery side of an agent: listens for wakes on its own queue and nudges the daemon.

The task does no work: the daemon's single claim loop decides, so that a wake and a poll cannot run
two trials, and a lost, late or repeated wake means nothing. The consumer runs in a thread of the
daemon and imports no torch. While the broker is away it reconnects; the daemon polls anyway.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from celery import Celery
from celery.worker import WorkController
from kombu import Queue

from gpuagent.wire import wire_version_accepted

log = logging.getLogger(__name__)

WAKE_TASK = "gpuagent.wake"
RESTART_S = 5.0

TRANSPORT_OPTIONS: dict[str, Any] = {
    "visibility_timeout": 3600,
    "unacked_restore_interval": 10,
    "unacked_restore_throttle": 1,
    "socket_timeout": 15,
    "socket_connect_timeout": 5,
    "socket_keepalive": True,
    "health_check_interval": 10,
    "retry_on_timeout": True,
}


def make_app(broker_url: str, slug: str, on_wake: Callable[[], None]) -> Celery:
    """A Celery app that consumes `agent.<slug>` and nothing else."""
    queue = f"agent.{slug}"
    # No fixups: with DJANGO_SETTINGS_MODULE in the environment Celery would load Django here.
    app = Celery("gpuagent", broker=broker_url, set_as_current=False, fixups=[])
    app.conf.update(
        broker_transport_options=TRANSPORT_OPTIONS,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_connection_timeout=5,
        accept_content=["json"],
        task_serializer="json",
        task_ignore_result=True,
        # The lease recovers a trial, not the broker: acknowledge at once, never run twice.
        task_acks_late=False,
        task_queues=[Queue(queue)],
        task_default_queue=queue,
        task_create_missing_queues=False,
        worker_prefetch_multiplier=1,
        worker_enable_remote_control=False,
        worker_hijack_root_logger=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
    )

    @app.task(name=WAKE_TASK, ignore_result=True)
    def wake(trial_id: str = "", wire_version: int = 0, **unknown: object) -> None:
        """Look for a trial now. Unknown arguments of a newer server are ignored."""
        if wire_version_accepted(wire_version):
            on_wake()

    return app


class WakeListener:
    """Runs the consumer in a daemon thread and starts it again should it ever end."""

    def __init__(self, broker_url: str, slug: str, on_wake: Callable[[], None]) -> None:
        self._app = make_app(broker_url, slug, on_wake)
        self._thread = threading.Thread(target=self._run, name="wakes", daemon=True)
        self._stopping = threading.Event()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Do not start again. The thread ends with the process: it holds no work."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                WorkController(
                    app=self._app,
                    pool_cls="threads",
                    concurrency=1,
                    without_gossip=True,
                    without_mingle=True,
                    without_heartbeat=True,
                ).start()
            except Exception:
                log.exception("the wake listener ended; the agent polls meanwhile")
            if not self._stopping.wait(RESTART_S):
                log.info("starting the wake listener again at %s", time.ctime())
