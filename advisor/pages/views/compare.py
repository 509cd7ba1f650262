"""Two to four trials side by side, or the best trials of studies."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from advisor.comparison import LEAST, MOST
from advisor.errors import InvalidInput
from advisor.pages.access import reading
from advisor.pages.present.compare import chosen_of, compare_page, others
from advisor.studies.comparing import best_trials, sides_of, trial_ids
from advisor.studies.selectors import studies_of

STUDIES_OFFERED = 30


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
    sides = sides_of(org=request.org, ids=ids)
    context = {
        "page": compare_page(sides) if len(sides) >= LEAST else None,
        "chosen": chosen_of(sides),
        "others": others(sides),
        "studies": _offered(request) if not sides else (),
        "error": error,
        "most": MOST,
    }
    return render(request, "pages/compare.html", context, status=400 if error else 200)


def _offered(request: HttpRequest) -> list[tuple[str, str]]:
    return [
        (str(study.pk), f"{study.number} · {study.name}")
        for study in studies_of(request.org).only("number", "name", "created_at", "agent", "org")[
            :STUDIES_OFFERED
        ]
    ]
