"""Results of other load tools, judged by targets, and kept as studies where that is asked for."""

from __future__ import annotations

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _

from advisor.imports import ImportedStatus, ImportedTrial, ImportRefused, judge_import, read_import
from advisor.pages.access import actor_of, asking
from advisor.pages.forms.imports import ImportForm
from advisor.studies.importing import Kept, Labels, import_keep

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
    keep = request.POST.get("action") == "keep"
    if keep and not request.membership.can_write:
        raise PermissionDenied(_("Your role is viewer: it judges results, but keeps none."))
    trials, kept = _judged(request, form, keep) if form.is_bound and form.is_valid() else (None, [])
    if len(kept) == 1:
        if kept[0].existed:
            told = _("This file was kept before, with these targets, scenario and hardware.")
            messages.info(request, told)
        return redirect("study", study_id=kept[0].study.pk)
    context = {
        "form": form,
        "trials": trials,
        "kept": kept,
        "can_write": request.membership.can_write,
    }
    status = 400 if form.is_bound and trials is None else 200
    return render(request, "pages/imports.html", context, status=status)


Judged = list[tuple[ImportedTrial, list[tuple[str, str, ImportedStatus]]]]


def _judged(request: HttpRequest, form: ImportForm, keep: bool) -> tuple[Judged | None, list[Kept]]:
    """The file's benchmarks with their targets, and what was kept of them."""
    data = form.cleaned_data
    content, kept = data["file"].read(), []
    try:
        found = read_import(content)
        if keep:
            kept = import_keep(
                org=request.org,
                user=request.user,
                actor=actor_of(request),
                content=content,
                trials=found,
                targets=data["targets"],
                labels=Labels(data["name"], data["preset"] or "api", data["hardware"]),
            )
    except ImportRefused as error:
        typed = error.field in ("name", "hardware", "targets")
        form.add_error(*((error.field, error.message) if typed else ("file", str(error))))
        return None, []
    judged = [
        (trial, [(*_WORDS[s.verdict], s) for s in judge_import(trial, data["targets"])])
        for trial in found
    ]
    return judged, kept
