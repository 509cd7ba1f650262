"""Results of other load tools, judged by targets; read and not kept."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from advisor.imports import ImportedStatus, ImportedTrial, ImportRefused, judge_import, read_import
from advisor.pages.access import asking
from advisor.pages.forms.imports import ImportForm

# Shape and word of a verdict; what is not proven also tells the side the tool's number lies on.
_WORDS = {
    "met": ("good", "met"),
    "missed": ("bad", "missed"),
    "not_proven": ("warn", "not proven"),
    "not_measured": ("na", "not measured"),
}


@asking
def import_page(request: HttpRequest) -> HttpResponse:
    form = ImportForm(request.POST, request.FILES) if request.method == "POST" else ImportForm()
    trials = _judged(form) if form.is_bound and form.is_valid() else None
    status = 400 if form.is_bound and trials is None else 200
    return render(request, "pages/imports.html", {"form": form, "trials": trials}, status=status)


def _judged(
    form: ImportForm,
) -> list[tuple[ImportedTrial, list[tuple[str, str, ImportedStatus]]]] | None:
    try:
        found = read_import(form.cleaned_data["file"].read())
    except ImportRefused as error:
        form.add_error("file", str(error))
        return None
    return [
        (
            trial,
            [(*_WORDS[s.verdict], s) for s in judge_import(trial, form.cleaned_data["targets"])],
        )
        for trial in found
    ]
