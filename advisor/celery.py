"""The server's Celery app. Celery carries hints; the database alone knows the truth.

`advisor` is the server's own queue (periodic sweep, late evaluation). A wake for an agent is sent
by name to `agent.<slug>`; see `advisor.studies.dispatch`.
"""

from __future__ import annotations

import os
from typing import Any

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "advisor.settings")

VISIBILITY_TIMEOUT_S = 3600

BROKER_TRANSPORT_OPTIONS: dict[str, Any] = {
    "visibility_timeout": VISIBILITY_TIMEOUT_S,
    # Sweep of unacknowledged messages every 10 s instead of about 100 s (kombu 5.7).
    "unacked_restore_interval": 10,
    "unacked_restore_throttle": 1,
    # Without socket_timeout a half-open connection hangs for good.
    "socket_timeout": 15,
    "socket_connect_timeout": 5,
    "socket_keepalive": True,
    "health_check_interval": 10,
    "retry_on_timeout": True,
}

app = Celery("advisor")


@app.on_configure.connect  # type: ignore[untyped-decorator]
def _configure(sender: Celery, **_: object) -> None:
    from django.conf import settings

    data_dir = settings.DATA_DIR
    sender.conf.update(
        broker_url=settings.REDIS_URL,
        broker_transport_options=BROKER_TRANSPORT_OPTIONS,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_pool_acquire_timeout=5,
        task_serializer="json",
        result_serializer="json",
        accept_content=["json"],
        result_accept_content=["json"],
        task_ignore_result=True,
        task_default_queue="advisor",
        task_acks_late=True,
        task_reject_on_worker_lost=False,
        task_soft_time_limit=240,
        task_time_limit=300,
        worker_prefetch_multiplier=1,
        worker_max_tasks_per_child=200,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_soft_shutdown_timeout=5,
        worker_hijack_root_logger=False,
        beat_schedule_filename=str(data_dir / "celerybeat-schedule"),
        beat_schedule={
            "sweep": {
                "task": "advisor.studies.sweep",
                "schedule": settings.SWEEP_EVERY_S,
                "options": {"expires": settings.SWEEP_EVERY_S},
            },
            "housekeeping": {
                "task": "advisor.studies.housekeeping",
                "schedule": 3600.0,
                "options": {"expires": 3600},
            },
            "traces": {
                "task": "advisor.traces.expire",
                "schedule": 3600.0,
                "options": {"expires": 3600},
            },
        },
        timezone="UTC",
    )


app.autodiscover_tasks(["advisor.studies", "advisor.traces"])
