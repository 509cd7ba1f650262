"""What lists of studies sort, filter and search by, kept beside each study.

Derived from state, verdict and spec, and written with them: a list of a hundred thousand studies
then needs one index and no JSON. Whether an agent is silent changes without any write, so it is
not part of it; the query adds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import Count, Q, QuerySet

from advisor.accounts.models import Org
from advisor.fleet.models import Agent
from advisor.studies.models import Study, Trial
from advisor.studies.states import TERMINAL, StudyState

MISSED, DECIDE, RUNNING, WAITING, INFORMATIVE, MET, CANCELLED = range(7)
"""Need for attention of a study, the greatest first."""

_BY_VERDICT = {
    "missed": MISSED,
    "no_verdict": MISSED,
    "not_proven": DECIDE,
    "no_targets": INFORMATIVE,
    "met": MET,
}
SEARCH_CHARS = 400
GROUPS = ("attention", "running", "met")


def need_of(state: str, verdict: Mapping[str, Any] | None) -> int:
    """Rank of a study: a finished one by its verdict, else by its state."""
    if state == StudyState.CANCELLED:
        return CANCELLED
    if state == StudyState.WAITING:
        return WAITING
    if state == StudyState.FINISHED:
        return _BY_VERDICT.get((verdict or {}).get("status", ""), MISSED)
    return RUNNING


def listing_of(study: Study) -> dict[str, object]:
    """Values of the listing columns, from the study as it stands in memory."""
    spec = study.spec
    best = (study.verdict_json or {}).get("best_title") or ""
    agent = study.agent.slug if study.agent else ""
    words = f"{study.name} {spec.model.label} {spec.workload.preset} {agent} {best}"
    return {
        "need": need_of(study.state, study.verdict_json),
        "preset": spec.workload.preset,
        "search": words.lower()[:SEARCH_CHARS],
    }


def listed(org: Org, *, silent: list[Agent], chosen: Mapping[str, str]) -> QuerySet[Study]:
    """Studies by need for attention, then the newest. chosen: status, preset and q as typed."""
    rows = Study.objects.filter(org=org)
    group = chosen.get("status", "")
    if group in GROUPS:
        rows = rows.filter(_group(group, silent))
    elif group:
        rows = rows.none()
    if chosen.get("preset"):
        rows = rows.filter(preset=chosen["preset"])
    for word in chosen.get("q", "").lower().split()[:8]:
        rows = rows.filter(search__contains=word)
    return rows.order_by("need", "-created_at", "-number")


def _group(group: str, silent: list[Agent]) -> Q:
    unheard = Q(need=RUNNING, agent__in=silent) if silent else Q(pk__in=[])
    if group == "attention":
        return Q(need__lte=DECIDE) | unheard
    if group == "running":
        return Q(need__in=(RUNNING, WAITING)) & ~unheard
    return Q(need=MET)


def counts(org: Org, *, silent: list[Agent]) -> tuple[dict[str, int], dict[str, int], int]:
    """(studies by group, by preset, all of them)."""
    by_need: dict[int, int] = {}
    by_preset: dict[str, int] = {}
    found = Study.objects.filter(org=org).order_by().values_list("need", "preset")
    for need, preset, n in found.annotate(n=Count("pk")):
        by_need[need] = by_need.get(need, 0) + n
        by_preset[preset] = by_preset.get(preset, 0) + n
    unheard = Study.objects.filter(org=org, need=RUNNING, agent__in=silent).count() if silent else 0
    groups = {
        "attention": by_need.get(MISSED, 0) + by_need.get(DECIDE, 0) + unheard,
        "running": by_need.get(RUNNING, 0) + by_need.get(WAITING, 0) - unheard,
        "met": by_need.get(MET, 0),
    }
    return groups, by_preset, sum(by_need.values())


def with_progress(studies: list[Study]) -> list[Study]:
    """`total` and `done` trials on those that still run; one query for all."""
    live = [study.pk for study in studies if not study.is_terminal]
    found = {
        pk: (total, done)
        for pk, total, done in Trial.objects.filter(study__in=live)
        .order_by()
        .values_list("study")
        .annotate(total=Count("pk"), done=Count("pk", filter=Q(state__in=TERMINAL)))
    }
    for study in studies:
        study.total, study.done = found.get(study.pk, (0, 0))
    return studies
