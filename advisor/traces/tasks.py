"""Thin Celery task of the server queue."""

from __future__ import annotations

from celery import shared_task

from advisor.traces import services


@shared_task(name="advisor.traces.expire", ignore_result=True)
def expire_task() -> None:
    services.traces_expire()
