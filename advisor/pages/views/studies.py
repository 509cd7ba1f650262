"""Studies: list, page, live fragment, cancel, report."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from csp.decorators import csp_update
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from advisor.errors import Conflict, InvalidInput
from advisor.exports import EXPORTS
from advisor.fleet.selectors import agents_of
from advisor.i18n import ENGLISH
from advisor.pages.access import actor_of, reading, writing
from advisor.pages.forms.what_if import WhatIfForm
from advisor.pages.present.live import live_marker, live_of
from advisor.pages.present.studies import study_rows, study_status
from advisor.pages.present.study_page import study_page
from advisor.pages.present.what_if import what_if_page
from advisor.pages.views.errors import unavailable
from advisor.reports import LABELS
from advisor.reports.as_html import style_source
from advisor.reports.browser import PdfUnavailable, find_browser
from advisor.studies.evidence import build_evidence
from advisor.studies.exporting import study_export
from advisor.studies.listing import counts, listed, with_progress
from advisor.studies.models import Study
from advisor.studies.reporting import report_file
from advisor.studies.sample import sample_id, sample_open
from advisor.studies.selectors import studies_of, study_get, trials_of
from advisor.studies.services import study_cancel
from advisor.studies.sharing import SHARE_DAYS

PAGE_ROWS = 50


@reading
def study_list(request: HttpRequest) -> HttpResponse:
    """By need for attention; status, preset, q and page are in the address."""
    silent = [agent for agent in agents_of(request.org) if not agent.is_reachable]
    groups, presets, total = counts(request.org, silent=silent)
    # The sample is no study of theirs: it does not take the first steps away.
    if total <= 1 and not studies_of(request.org).exclude(pk=sample_id(request.org)).exists():
        agents = list(agents_of(request.org))
        return render(request, "pages/studies_empty.html", {"agents": agents})
    chosen = {name: request.GET.get(name, "") for name in ("status", "preset", "q")}
    found = listed(request.org, silent=silent, chosen=chosen).select_related("agent")
    pages = Paginator(found.defer("model_config_json", "plan_notes", "notices"), PAGE_ROWS)
    if not any(chosen.values()):
        pages.count = total
    page = pages.get_page(request.GET.get("page"))
    kept = {name: value for name, value in chosen.items() if value}
    context = {
        "rows": study_rows(with_progress(list(page.object_list))),
        "all": total,
        "counts": groups,
        "presets": {p: presets[p] for p in ("chat", "api", "edge", "batch") if presets.get(p)},
        "chosen": chosen,
        "page": page,
        "address": f"?{urlencode(kept)}&" if kept else "?",
    }
    return render(request, "pages/studies.html", context)


@reading
def study_detail(request: HttpRequest, study_id: UUID) -> HttpResponse:
    study = study_get(org=request.org, study_id=study_id)
    return render(request, "pages/study.html", study_context(study))


def study_context(study: Study) -> dict[str, Any]:
    """What the template of a study's page needs."""
    trials = list(trials_of(study))
    study.total, study.done = len(trials), sum(t.is_terminal for t in trials)
    return {
        "study": study,
        "page": study_page(study),
        "status": study_status(study),
        "live": None if study.is_terminal else live_of(study, trials),
        "what_if": WhatIfForm(study.spec),
        "exports": {fmt: export.name for fmt, export in EXPORTS.items()},
        "formats": LABELS,
        "prints": find_browser() is not None,
        "shares": study.shares.select_related("created_by"),
        "share_days": SHARE_DAYS,
    }


@reading
def study_live(request: HttpRequest, study_id: UUID) -> HttpResponse:
    """The moving part alone; asks for the whole page once a trial or the study has ended."""
    study = study_get(org=request.org, study_id=study_id)
    trials = list(trials_of(study))
    if study.is_terminal or request.GET.get("seen", "") not in ("", live_marker(study, trials)):
        return HttpResponse(status=200, headers={"HX-Refresh": "true"})
    context = {"study": study, "live": live_of(study, trials)}
    return render(request, "fragments/live.html", context)


@reading
def study_what_if(request: HttpRequest, study_id: UUID) -> HttpResponse:
    """Verdict and ranking under the targets and the price in the address."""
    study = study_get(org=request.org, study_id=study_id)
    form = WhatIfForm(study.spec, request.GET)
    found = form.answer(build_evidence(study)) if form.asks else None
    before = (study.verdict_json or {}).get("sentence", "")
    context = {"study": study, "form": form, "page": what_if_page(found, before) if found else None}
    refused = form.asks and found is None
    return render(request, "pages/what_if.html", context, status=400 if refused else 200)


@writing
def study_sample(request: HttpRequest) -> HttpResponse:
    """Open the sample study; made on the first call."""
    study = sample_open(org=request.org, user=request.user, actor=actor_of(request))
    return redirect("study", study_id=study.pk)


@writing
def study_cancel_view(request: HttpRequest, study_id: UUID) -> HttpResponse:
    study = study_get(org=request.org, study_id=study_id)
    study_cancel(study=study, actor=actor_of(request))
    messages.info(request, _("Cancelling. What has finished is kept; there will be no verdict."))
    return redirect("study", study_id=study.pk)


@csp_update({"style-src": style_source()})
@reading
def study_report_view(request: HttpRequest, study_id: UUID, suffix: str) -> HttpResponse:
    """`report.html` opens in the browser, as does the PDF; `?download` saves any format."""
    if suffix not in LABELS:
        raise Http404
    study = study_get(org=request.org, study_id=study_id)
    try:
        file = report_file(study, suffix, get_language() or ENGLISH)
    except PdfUnavailable as error:
        return unavailable(request, error.message)
    response = HttpResponse(file.content, content_type=file.media_type)
    disposition = "attachment" if "download" in request.GET else "inline"
    response["Content-Disposition"] = f'{disposition}; filename="{file.filename}"'
    return response


@reading
def study_export_view(request: HttpRequest, study_id: UUID, fmt: str) -> HttpResponse:
    """A configuration to serve, saved as a file; 404 where there is none yet."""
    study = study_get(org=request.org, study_id=study_id)
    try:
        file = study_export(study, fmt)
    except (Conflict, InvalidInput) as error:
        raise Http404(error.message) from error
    response = HttpResponse(file.content, content_type=file.media_type)
    response["Content-Disposition"] = f'attachment; filename="{file.filename}"'
    return response
