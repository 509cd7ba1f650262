"""The new-study form and its plan preview."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from advisor.errors import InvalidInput, NotFound
from advisor.fleet.selectors import agents_of
from advisor.pages.access import actor_of, writing, writing_form
from advisor.pages.forms.again import cut_elsewhere, typed
from advisor.pages.forms.study import MAX_TARGETS, StudyForm
from advisor.studies.selectors import study_get, study_view
from advisor.studies.services import StudyPreview, study_create, study_preview


@writing_form
def study_new(request: HttpRequest) -> HttpResponse:
    agents = agents_of(request.org)
    if request.method != "POST":
        earlier = request.GET.get("from")
        if earlier is None:
            return _page(request, StudyForm(agents=agents))
        return _again(request, earlier)
    form = StudyForm(request.POST, request.FILES, agents=agents)
    action = request.POST.get("action", "start")
    if action.startswith(("add_target", "remove_target")):
        return _page(request, form)
    if action == "preview":
        return _page(request, form, _preview(request, form))
    spec = form.spec()
    if spec is not None:
        try:
            study = study_create(
                org=request.org, user=request.user, spec=spec, actor=actor_of(request)
            )
        except InvalidInput as error:
            form.refuse(error)
        else:
            return redirect("study", study_id=study.pk)
    return _page(request, form, checked=True)


@writing
def study_preview_view(request: HttpRequest) -> HttpResponse:
    """The plan beside the form, as the form stands now."""
    form = StudyForm(request.POST, request.FILES, agents=agents_of(request.org))
    context = {"form": form, "preview": _preview(request, form)}
    return render(request, "fragments/plan.html", context)


def _again(request: HttpRequest, study_id: str) -> HttpResponse:
    """The form as an earlier study would fill it; nothing is sent before somebody does."""
    study = study_get(org=request.org, study_id=study_id)
    spec = study.spec
    if spec.engine == "imported":
        raise NotFound("Results of another tool cannot be measured again here.")
    if request.GET.get("settings") == "recommended":
        found = study_view(study).verdict.recommended
        spec = spec if found is None else spec.model_copy(update={"current": found})
    form = StudyForm(typed(spec), agents=agents_of(request.org))
    cut = any(cut_elsewhere(n) for n in (spec.workload.input_tokens, spec.workload.output_tokens))
    return _page(
        request, form, earlier={"study": study, "cut": cut, "recommended": spec != study.spec}
    )


def _preview(request: HttpRequest, form: StudyForm) -> StudyPreview | None:
    spec = form.spec()
    if spec is None:
        return None
    try:
        return study_preview(org=request.org, spec=spec)
    except InvalidInput as error:
        form.refuse(error)
        return None


def _page(
    request: HttpRequest,
    form: StudyForm,
    preview: StudyPreview | None = None,
    *,
    checked: bool = False,
    earlier: dict[str, Any] | None = None,
) -> HttpResponse:
    context = {
        "form": form,
        "earlier": earlier,
        "preview": preview,
        "checked": checked or preview is not None,
        "max_targets": MAX_TARGETS,
    }
    status = 400 if checked and form.messages() else 200
    return render(request, "pages/study_new.html", context, status=status)
