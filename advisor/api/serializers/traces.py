"""Traces as the API shows them: the verdict in lists, the whole report on one."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.urls import reverse

from advisor.api.serializers.base import Answer, Page
from advisor.traces.models import Trace
from gpuagent.traces.compare import Comparison


class TraceUrls(Answer):
    """Where the trace is shown, and the scrubbed copy of its file."""

    self: str
    page: str
    file: str


class TraceSummary(Answer):
    """A trace in a list. verdict_class: the bottleneck; sentence: the verdict in words.

    upload_bytes: as sent. stored_bytes: the scrubbed copy that is kept. trial_id: the trial whose
    agent recorded it, or null for an upload.
    """

    id: UUID
    name: str
    format: str
    gpu: str
    verdict_class: str
    sentence: str
    created_at: datetime
    created_by: str | None
    upload_bytes: int
    stored_bytes: int
    analysis_s: float
    trial_id: UUID | None
    urls: TraceUrls


class TraceAnswer(TraceSummary):
    """A trace with its report. `report` has the keys of `tuning-advisor trace --json`.

    The bars of the timeline are left out unless `timeline=true` is asked for.
    """

    report: dict[str, Any]


class TraceComparison(Answer):
    """What changed from `before` to `after`. comparable: yes, with_care or no; reasons say why."""

    before: UUID
    after: UUID
    comparable: str
    reasons: list[str]
    sentence: str
    comparison: dict[str, Any]


class TracePage(Page[TraceSummary]):
    pass


def trace_summary(trace: Trace) -> TraceSummary:
    return TraceSummary(**_fields(trace))


def trace_answer(trace: Trace, *, timeline: bool = False) -> TraceAnswer:
    report = trace.report
    if not timeline:
        report["timeline"] = None
    return TraceAnswer(**_fields(trace), report=report)


def comparison_answer(before: Trace, after: Trace, found: Comparison) -> TraceComparison:
    return TraceComparison(
        before=before.pk,
        after=after.pk,
        comparable=found.comparable,
        reasons=list(found.reasons),
        sentence=found.sentence,
        comparison=found.as_dict(),
    )


def _fields(trace: Trace) -> dict[str, Any]:
    def url(name: str) -> str:
        return settings.PUBLIC_URL + reverse(name, args=[trace.pk])

    return {
        "id": trace.pk,
        "name": trace.name,
        "format": trace.format,
        "gpu": trace.gpu,
        "verdict_class": trace.bottleneck,
        "sentence": trace.sentence,
        "created_at": trace.created_at,
        "created_by": trace.created_by.email if trace.created_by else None,
        "upload_bytes": trace.upload_bytes,
        "stored_bytes": trace.stored_bytes,
        "analysis_s": trace.analysis_s,
        "trial_id": trace.trial_id,
        "urls": TraceUrls(self=url("api-trace"), page=url("trace"), file=url("api-trace-file")),
    }
