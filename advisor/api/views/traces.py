"""`/api/v1/traces`: upload, list, read, compare, delete."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from uuid import UUID

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from django.http import FileResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from advisor import units
from advisor.accounts.auth import actor_of, auth_of, org_of
from advisor.api.errors import invalid_fields
from advisor.api.idempotency import once
from advisor.api.pagination import NewestFirst
from advisor.api.schema import IDEMPOTENCY, PAGING, operation
from advisor.api.serializers.base import respond
from advisor.api.serializers.traces import (
    TraceAnswer,
    TraceComparison,
    TracePage,
    comparison_answer,
    trace_answer,
    trace_summary,
)
from advisor.errors import NotFound, TooLarge
from advisor.traces.selectors import trace_compare, trace_get, traces_of
from advisor.traces.services import (
    FIELD,
    ReadTrace,
    stored_path,
    trace_delete,
    trace_read,
    trace_store,
)
from advisor.traces.uploads import as_path

TIMELINE = OpenApiParameter("timeline", bool, description="With the bars of the busiest 50 ms.")
BEFORE = OpenApiParameter("before", OpenApiTypes.UUID, required=True, description="A trace's id.")
_ROOM_FOR_FIELDS = 1 << 20
_UPLOAD = {
    "multipart/form-data": {
        "type": "object",
        "required": [FIELD],
        "properties": {FIELD: {"type": "string", "format": "binary"}},
    }
}


class TraceList(APIView):
    parser_classes = [MultiPartParser]

    @operation(
        "traces_list",
        tag="traces",
        summary="Traces of the organisation, newest first",
        response=TracePage,
        parameters=PAGING,
        errors=(400,),
    )
    def get(self, request: Request) -> Response:
        return NewestFirst().respond(request, traces_of(org_of(request)), trace_summary)

    @operation(
        "traces_create",
        tag="traces",
        summary="Upload a profiler trace and get its verdict",
        description="PyTorch Profiler .json or .json.gz, Nsight Systems .sqlite, or nsys stats"
        " .csv or .txt, as the form field `file`. The answer comes when the file has been read;"
        " a scrubbed copy is kept.",
        request=_UPLOAD,
        response=TraceAnswer,
        status=201,
        parameters=(IDEMPOTENCY,),
        errors=(400, 409, 413, 422),
    )
    def post(self, request: Request) -> Response:
        upload, org = _upload(request), org_of(request)
        with ExitStack() as files:

            def prepare() -> Callable[[], Response]:
                path = files.enter_context(as_path(upload))
                read = files.enter_context(trace_read(org=org, path=path, name=upload.name or ""))
                return lambda: store(read)

            def store(read: ReadTrace) -> Response:
                user = auth_of(request).membership.user
                trace = trace_store(org=org, user=user, actor=actor_of(request), read=read)
                answer = trace_answer(trace)
                return respond(answer, status=201, headers={"Location": answer.urls.self})

            return once(request, prepare, body_sha256=_digest(upload))


class TraceDetail(APIView):
    @operation(
        "traces_read",
        tag="traces",
        summary="One trace with its report",
        response=TraceAnswer,
        parameters=(TIMELINE,),
        errors=(404,),
    )
    def get(self, request: Request, trace_id: UUID) -> Response:
        trace = trace_get(org=org_of(request), trace_id=trace_id)
        wanted = request.query_params.get("timeline", "").lower() in ("true", "1")
        return respond(trace_answer(trace, timeline=wanted))

    @operation(
        "traces_delete",
        tag="traces",
        summary="Delete a trace and its file",
        response=None,
        status=204,
        errors=(404,),
    )
    def delete(self, request: Request, trace_id: UUID) -> Response:
        trace = trace_get(org=org_of(request), trace_id=trace_id)
        trace_delete(trace=trace, actor=actor_of(request))
        return Response(status=204)


class TraceCompare(APIView):
    @operation(
        "traces_compare",
        tag="traces",
        summary="What changed from an earlier trace to this one",
        response=TraceComparison,
        parameters=(BEFORE,),
        errors=(400, 404),
    )
    def get(self, request: Request, trace_id: UUID) -> Response:
        org = org_of(request)
        after = trace_get(org=org, trace_id=trace_id)
        try:
            before_id = UUID(request.query_params.get("before", ""))
        except ValueError:
            raise invalid_fields({"before": ["Give the id of the earlier trace."]}) from None
        before = trace_get(org=org, trace_id=before_id)
        return respond(comparison_answer(before, after, trace_compare(before, after)))


class TraceFile(APIView):
    @operation(
        "traces_file",
        tag="traces",
        summary="The scrubbed copy of a trace's file",
        response={(200, "application/octet-stream"): OpenApiTypes.BINARY},
        errors=(404,),
    )
    def get(self, request: Request, trace_id: UUID) -> FileResponse:
        trace = trace_get(org=org_of(request), trace_id=trace_id)
        path = stored_path(trace)
        if not path.is_file():
            raise NotFound("The file of this trace is no longer kept.")
        name = trace.name
        if trace.format == "kineto" and not name.endswith(".gz"):
            name += ".gz"  # a copy is always compressed
        return FileResponse(
            path.open("rb"),
            as_attachment=True,
            filename=name,
            content_type="application/octet-stream",
        )


def _upload(request: Request) -> UploadedFile:
    length = request.META.get("CONTENT_LENGTH") or "0"
    if length.isdigit() and int(length) > settings.TRACE_MAX_BYTES + _ROOM_FOR_FIELDS:
        raise TooLarge(
            f"The body is larger than {units.memory(settings.TRACE_MAX_BYTES)}. Compress the trace"
            " or record a shorter window."
        )
    upload = request.data.get(FIELD)
    if not isinstance(upload, UploadedFile):
        raise invalid_fields({FIELD: ["Send the trace as the form field `file`."]})
    return upload


def _digest(upload: UploadedFile) -> str:
    digest = hashlib.sha256((upload.name or "").encode())
    for chunk in upload.chunks():
        digest.update(chunk)
    return digest.hexdigest()
