"""Thin Celery tasks of the server queue: fetch, call a service, nothing else. All idempotent."""

from __future__ import annotations

from celery import shared_task

from advisor.studies import sweep


@shared_task(name="advisor.studies.sweep", ignore_result=True)
def sweep_task() -> None:
    sweep.sweep()


@shared_task(name="advisor.studies.housekeeping", ignore_result=True)
def housekeeping_task() -> None:
    sweep.housekeeping()
