"""Reads of traces. Every function starts from the organisation."""

from __future__ import annotations

from uuid import UUID

from django.db.models import QuerySet

from advisor.accounts.models import Org
from advisor.errors import NotFound
from advisor.traces.models import Trace
from gpuagent.traces.compare import Comparison, compare


def traces_of(org: Org) -> QuerySet[Trace]:
    """Newest first, without the reports, which are large."""
    rows = Trace.objects.filter(org=org).select_related("created_by", "trial")
    return rows.defer("report_json").order_by("-created_at", "-pk")


def trace_get(*, org: Org, trace_id: UUID) -> Trace:
    """Raises NotFound, also for another organisation's trace."""
    rows = Trace.objects.filter(org=org, pk=trace_id)
    trace = rows.select_related("org", "created_by", "trial", "trial__study").first()
    if trace is None:
        raise NotFound("There is no such trace.")
    return trace


def trace_compare(before: Trace, after: Trace) -> Comparison:
    """What changed from one trace to the other, and whether they can be compared."""
    return compare(before.typed_report, after.typed_report)
