"""Two to four trials side by side, or the best trials of studies."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from advisor.accounts.models import Org
from advisor.comparison import LEAST, MOST
from advisor.errors import InvalidInput
from advisor.pages.access import reading
from advisor.pages.present.compare import chosen_of, compare_page, others
from advisor.studies.comparing import best_trials, sides_of, trial_ids, trials_marker
from advisor.studies.selectors import studies_of

STUDIES_OFFERED = 30
CACHE_S = 3600


@reading
def compare_page_view(request: HttpRequest) -> HttpResponse:
    """Ids in the address, repeated or joined by commas; one alone, or none, offers a choice."""
    error = ""
    try:
        studies = trial_ids(request.GET.getlist("studies"), "studies")
        ids = trial_ids(request.GET.getlist("trials"))
        if studies and not ids:
            # The address then names the trials, so that it stays right when a study goes on.
            ids = best_trials(org=request.org, study_ids=studies)
            if ids:
                joined = ",".join(str(pk) for pk in ids)
                return redirect(f"{reverse('compare')}?trials={joined}")
    except InvalidInput as refused:
        ids, error = (), refused.message
    context = {"error": error, "most": MOST, **_shown(request.org, ids)}
    if not ids:
        context["studies"] = _offered(request)
    return render(request, "pages/compare.html", context, status=400 if error else 200)


def _shown(org: Org, ids: tuple[UUID, ...]) -> dict[str, Any]:
    """From the cache where no study of these trials was evaluated since."""
    key = ":".join(["compare", str(org.pk), *map(str, ids), trials_marker(org=org, ids=ids)])
    found: dict[str, Any] | None = cache.get(key)
    if found is None:
        sides = sides_of(org=org, ids=ids)
        found = {
            "page": compare_page(sides) if len(sides) >= LEAST else None,
            "chosen": chosen_of(sides),
            "others": others(sides),
        }
        cache.set(key, found, CACHE_S)
    return found


def _offered(request: HttpRequest) -> list[tuple[str, str]]:
    return [
        (str(study.pk), f"{study.number} · {study.name}")
        for study in studies_of(request.org).only("number", "name", "created_at", "agent", "org")[
            :STUDIES_OFFERED
        ]
    ]
