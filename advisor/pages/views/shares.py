"""Links to a study's report: making and revoking them, and the report behind one."""

from __future__ import annotations

from uuid import UUID

from csp.decorators import csp_update
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import get_language
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from advisor.errors import AdvisorError
from advisor.i18n import ENGLISH
from advisor.pages.access import actor_of, writing
from advisor.pages.views.studies import study_context
from advisor.reports import EXPORTERS
from advisor.reports.as_html import style_source
from advisor.studies.reporting import rendered, study_report
from advisor.studies.selectors import study_get
from advisor.studies.sharing import share_create, share_find, share_revoke

PRIVATE = {
    "Cache-Control": "private, no-store",
    "Referrer-Policy": "no-referrer",
    "X-Robots-Tag": "noindex, nofollow",
}


@writing
def share_add(request: HttpRequest, study_id: UUID) -> HttpResponse:
    """Make a link; this answer is the only place that ever shows it."""
    study = study_get(org=request.org, study_id=study_id)
    days = request.POST.get("days", "")
    try:
        _share, url = share_create(
            study=study,
            user=request.user,
            days=int(days) if days.isdecimal() and len(days) < 4 else 0,
            actor=actor_of(request),
        )
    except AdvisorError as error:
        told = " ".join(
            [error.message, *(text for texts in error.fields.values() for text in texts)]
        )
        messages.error(request, told)
        return redirect("study", study_id=study.pk)
    context = {**study_context(study), "share_url": url}
    response = render(request, "pages/study.html", context)
    response["Cache-Control"] = "no-store"
    return response


@writing
def share_revoke_view(request: HttpRequest, study_id: UUID, share_id: UUID) -> HttpResponse:
    study = study_get(org=request.org, study_id=study_id)
    share = share_revoke(study=study, share_id=share_id, actor=actor_of(request))
    messages.info(request, _("Link {prefix} shows nothing any more.").format(prefix=share.prefix))
    return redirect("study", study_id=study.pk)


@csp_update({"style-src": style_source()})
@require_safe
def shared_report(request: HttpRequest, token: str) -> HttpResponse:
    """The report for whoever holds the link, and nothing else of the organisation."""
    share = share_find(token)
    if share is None:
        return _ended(request, 404, _("There is no such link"))
    if not share.is_live:
        ended = _("was revoked") if share.revoked_at else _("has expired")
        return _ended(request, 410, _("This link {ended}").format(ended=ended))
    document = study_report(share.study, shared=True)
    html = EXPORTERS["html"]
    content = rendered(document, "html", get_language() or ENGLISH)
    return HttpResponse(content, content_type=html.media_type, headers=PRIVATE)


def _ended(request: HttpRequest, status: int, title: str) -> HttpResponse:
    context = {"title": title, "code": status}
    response = render(request, "pages/share_ended.html", context, status=status)
    for name, value in PRIVATE.items():
        response[name] = value
    return response
