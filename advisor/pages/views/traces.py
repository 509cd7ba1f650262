"""Traces: list with upload, page of one, before and after, delete."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _

from advisor.charts.trace_timeline import lanes_of, timeline_figure, timeline_svg
from advisor.errors import AdvisorError
from advisor.pages.access import actor_of, reading, writing
from advisor.pages.forms.trace import TraceForm
from advisor.pages.present.compare_traces import comparison_page
from advisor.pages.present.traces import (
    class_keys,
    split_sentence,
    trace_kind,
    trace_page,
    verdict_label,
)
from advisor.traces.models import Trace
from advisor.traces.selectors import trace_compare, trace_get, traces_of
from advisor.traces.services import FIELD, trace_delete, trace_read, trace_store
from advisor.traces.uploads import as_path
from gpuagent.traces.kernel_names import CLASS_LABELS

PAGE_ROWS = 50
MOST_CHOICES = 50


@reading
def trace_list(request: HttpRequest) -> HttpResponse:
    return _list(request)


@writing
def trace_upload(request: HttpRequest) -> HttpResponse:
    """Read the file while the browser waits; seconds for what profilers usually write."""
    form = TraceForm(request.POST, request.FILES)
    if not form.is_valid():
        return _list(request, errors=[str(e) for e in form.errors[FIELD]], status=400)
    upload = form.cleaned_data[FIELD]
    try:
        with (
            as_path(upload) as path,
            trace_read(org=request.org, path=path, name=upload.name) as read,
        ):
            trace = trace_store(
                org=request.org, user=request.user, actor=actor_of(request), read=read
            )
    except AdvisorError as error:
        return _list(request, errors=[error.message], status=error.status)
    return redirect("trace", trace_id=trace.pk)


@reading
def trace_detail(request: HttpRequest, trace_id: UUID) -> HttpResponse:
    trace = trace_get(org=request.org, trace_id=trace_id)
    context = {
        "trace": trace,
        "page": trace_page(trace),
        "timeline": _timeline(trace),
        "others": traces_of(request.org).exclude(pk=trace.pk)[:MOST_CHOICES],
        "share_url": settings.PUBLIC_URL + reverse("trace", args=[trace.pk]),
        **_limits(),
    }
    return render(request, "pages/trace.html", context)


@reading
def trace_compare_view(request: HttpRequest, trace_id: UUID) -> HttpResponse:
    after = trace_get(org=request.org, trace_id=trace_id)
    try:
        before_id = UUID(request.GET.get("before", ""))
    except ValueError:
        raise Http404 from None
    before = trace_get(org=request.org, trace_id=before_id)
    found = trace_compare(before, after)
    context = {"before": before, "after": after, "page": comparison_page(found)}
    return render(request, "pages/trace_compare.html", context)


@writing
def trace_delete_view(request: HttpRequest, trace_id: UUID) -> HttpResponse:
    trace = trace_get(org=request.org, trace_id=trace_id)
    trace_delete(trace=trace, actor=actor_of(request))
    messages.info(request, _("Trace {name} is deleted.").format(name=trace.name))
    return redirect("traces")


def _list(
    request: HttpRequest, *, errors: list[str] | None = None, status: int = 200
) -> HttpResponse:
    page = Paginator(traces_of(request.org), PAGE_ROWS).get_page(request.GET.get("page"))
    rows = [
        (t, trace_kind(t.bottleneck), verdict_label(t.bottleneck), split_sentence(t.sentence)[0])
        for t in page.object_list
    ]
    context = {
        "rows": rows,
        "page": page,
        "address": "?",
        "errors": errors or [],
        **_limits(),
    }
    return render(request, "pages/traces.html", context, status=status)


def _limits() -> dict[str, Any]:
    return {
        "most_bytes": settings.TRACE_MAX_BYTES,
        "keep_days": settings.TRACE_KEEP_DAYS,
    }


def _timeline(trace: Trace) -> dict[str, Any] | None:
    """Figure, static picture and words of the busiest 50 ms; None without GPU work."""
    timeline = trace.report["timeline"]
    if not timeline or not timeline["bars"] or timeline["length_s"] <= 0:
        return None
    keys = class_keys(trace.report)
    label = _("Busiest {ms:.0f} ms of the trace, host threads above GPU streams").format(
        ms=timeline["length_s"] * 1e3
    )
    return {
        "figure": timeline_figure(timeline, keys, CLASS_LABELS),
        "svg": timeline_svg(timeline, keys, label),
        "label": label,
        "lanes": min(7, len(lanes_of(timeline))),
        "start_s": timeline["start_s"],
        "length_s": timeline["length_s"],
        "left_out": timeline["left_out"],
    }
