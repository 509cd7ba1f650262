"""Guided diagnoses of a study."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from advisor.diagnoses import Diagnosis
from advisor.errors import InvalidInput
from advisor.pages.access import reading
from advisor.studies.diagnosing import study_diagnosis
from advisor.studies.selectors import study_get

# Of the walk's outcome and of a step's verdict: kind of the style sheet, and word.
OUTCOMES = {
    "cause": ("bad", "Cause found"),
    "no_complaint": ("good", "No complaint"),
    "cannot_tell": ("warn", "Cannot tell"),
    "nothing_found": ("good", "Nothing found"),
}
STEPS = {
    "fail": ("bad", "Cause"),
    "pass": ("good", "Fine"),
    "cannot_tell": ("warn", "Cannot tell"),
}


@reading
def study_diagnose(request: HttpRequest, study_id: UUID, complaint: str) -> HttpResponse:
    """`?trial=3` compares throughput with that trial; a bad one says so and keeps the default."""
    study = study_get(org=request.org, study_id=study_id)
    error, status = "", 200
    try:
        found = study_diagnosis(study, complaint, trial=request.GET.get("trial"))
    except InvalidInput as refused:
        error, status = refused.message, 400
        found = study_diagnosis(study, complaint)
    context = {
        "study": study,
        "found": found,
        "outcome": OUTCOMES[found.outcome],
        "rows": [(STEPS[step.verdict], step) for step in found.steps],
        "error": error,
        "other": _other(found),
    }
    return render(request, "pages/diagnose.html", context, status=status)


def _other(found: Diagnosis) -> tuple[str, str]:
    """(name, words) of the other walk."""
    if found.id == "memory":
        return "throughput", "Throughput did not improve"
    return "memory", "Memory is unusually high"
