"""`/healthz` (the process answers), `/readyz` (it can work), `/metrics` (Prometheus)."""

from __future__ import annotations

import hmac

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.models import Count
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from advisor.fleet.models import Agent, AgentState
from advisor.studies.models import Study, Trial


def healthz(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"status": "ok", "version": settings.VERSION})


def readyz(request: HttpRequest) -> HttpResponse:
    """Ready means the database answers. The broker is no condition: agents also poll."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM studies_sweepstate LIMIT 1")
    except DatabaseError:
        return JsonResponse({"status": "no database"}, status=503)
    return JsonResponse({"status": "ok"})


def metrics(request: HttpRequest) -> HttpResponse:
    """Installation-wide counts without names; needs ADVISOR_METRICS_TOKEN unless on loopback."""
    if not _may_read_metrics(request):
        return HttpResponse("metrics need the bearer token", status=403, content_type="text/plain")
    registry = CollectorRegistry()
    trials = Gauge("advisor_trials", "Trials by state", ["state"], registry=registry)
    for row in Trial.objects.values("state").annotate(n=Count("pk")).order_by():
        trials.labels(row["state"]).set(row["n"])
    studies = Gauge("advisor_studies", "Studies by state", ["state"], registry=registry)
    for row in Study.objects.values("state").annotate(n=Count("pk")).order_by():
        studies.labels(row["state"]).set(row["n"])
    agents = Gauge("advisor_agents", "Agents by reachability", ["state"], registry=registry)
    living = Agent.objects.exclude(state=AgentState.REVOKED)
    reachable = sum(agent.is_reachable for agent in living)
    agents.labels("reachable").set(reachable)
    agents.labels("silent").set(living.count() - reachable)
    oldest = Trial.objects.filter(state="queued").order_by("queued_at").first()
    waiting = Gauge(
        "advisor_oldest_queued_seconds", "Age of the oldest queued trial", registry=registry
    )
    waiting.set((timezone.now() - oldest.queued_at).total_seconds() if oldest else 0.0)
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


def _may_read_metrics(request: HttpRequest) -> bool:
    token = settings.METRICS_TOKEN
    if token:
        given = request.headers.get("Authorization", "")
        return hmac.compare_digest(given.encode(), f"Bearer {token}".encode())
    if settings.IS_HTTPS:  # behind a proxy every client looks like loopback
        return False
    return request.META.get("REMOTE_ADDR") in ("127.0.0.1", "::1")
