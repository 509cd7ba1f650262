"""Agents: cards, joining, draining, removing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from django.contrib import messages
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _

from advisor.fleet.models import Agent
from advisor.fleet.selectors import agent_get, agents_of, telemetry_newest, telemetry_window
from advisor.fleet.services import (
    agent_drain,
    agent_resume,
    agent_revoke,
    registration_token_issue,
)
from advisor.pages.access import actor_of, managing, reading
from advisor.pages.present.agent_page import agent_page
from advisor.pages.present.agents import agent_cards
from advisor.studies.models import Trial
from advisor.studies.states import LIVE, TrialState

RECENT = 20
"""How many of its last trials the page of an agent shows."""
WINDOW_S = 600.0
"""How far back its telemetry is summed up."""
TRIAL_FIELDS = (
    "study__name",
    "study__number",
    "agent_id",
    "ordinal",
    "title",
    "state",
    "estimate_s",
    "failure_json",
    "attempts_used",
    "epoch",
    "lease_until",
    "renewed_at",
    "phase",
    "progress_text",
    "done_frac",
    "remaining_s",
    "started_at",
    "finished_at",
)


@reading
def agent_list(request: HttpRequest) -> HttpResponse:
    agents = list(agents_of(request.org))
    mine = Trial.objects.filter(study__org=request.org, agent__in=agents)
    live = mine.filter(state__in=LIVE).select_related("study").only(*TRIAL_FIELDS)
    running = {t.agent_id: t for t in live}
    queued = dict(
        mine.filter(state=TrialState.QUEUED)
        .order_by()
        .values_list("agent_id")
        .annotate(waiting=Count("pk"))
    )
    samples = telemetry_newest(agents)
    cards = agent_cards(agents, running, queued, samples)
    counts = {kind: sum(c.kind == kind for c in cards) for kind in ("run", "good")}
    attention = len(cards) - sum(counts.values())
    context = {"cards": cards, "counts": counts, "attention": attention}
    return render(request, "pages/agents.html", context)


@reading
def agent_detail(request: HttpRequest, slug: str) -> HttpResponse:
    agent = agent_get(org=request.org, slug=slug)
    mine = (
        Trial.objects.filter(study__org=request.org, agent=agent)
        .select_related("study")
        .only(*TRIAL_FIELDS)
    )
    running = mine.filter(state__in=LIVE).first()
    waiting = mine.filter(state=TrialState.QUEUED).count()
    recent = list(mine.exclude(started_at=None).order_by("-started_at")[:RECENT])
    now = timezone.now()
    samples = telemetry_window(agent, now - timedelta(seconds=WINDOW_S), now)
    page = agent_page(agent, running, waiting, recent, samples)
    return render(request, "pages/agent.html", {"agent": agent, "page": page})


@managing
def agent_add(request: HttpRequest) -> HttpResponse:
    """Issue a one-time registration token; this page is the only place that ever shows it."""
    token, secret = registration_token_issue(
        org=request.org, user=request.user, actor=actor_of(request)
    )
    response = render(request, "pages/agent_add.html", {"token": token, "secret": secret})
    response["Cache-Control"] = "no-store"
    return response


@managing
def agent_drain_view(request: HttpRequest, slug: str) -> HttpResponse:
    return _change(request, slug, agent_drain, _("{name} finishes its trial and takes no other."))


@managing
def agent_resume_view(request: HttpRequest, slug: str) -> HttpResponse:
    return _change(request, slug, agent_resume, _("{name} takes trials again."))


@managing
def agent_remove_view(request: HttpRequest, slug: str) -> HttpResponse:
    return _change(request, slug, agent_revoke, _("{name} is removed; its credential is refused."))


def _change(
    request: HttpRequest, slug: str, service: Callable[..., None], text: str
) -> HttpResponse:
    agent: Agent = agent_get(org=request.org, slug=slug)
    service(agent=agent, actor=actor_of(request))
    messages.info(request, text.format(name=agent.slug))
    return redirect("agents")
