"""`/api/v1/studies/{id}/report`: a study's report as a file, in any registered format."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

from advisor.accounts.auth import org_of
from advisor.api.schema import operation
from advisor.reports import MEDIA_TYPES, ReportDocument
from advisor.studies.reporting import report_file
from advisor.studies.selectors import study_get


class AsItComes(BaseContentNegotiation):
    """`format` names an export format here, not one of REST framework's renderers."""

    def select_parser(self, request: Request, parsers: list[BaseParser]) -> BaseParser:
        return parsers[0]

    def select_renderer(
        self, request: Request, renderers: list[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        return renderers[0], str(renderers[0].media_type)


class StudyReport(APIView):
    content_negotiation_class = AsItComes

    @operation(
        "studies_report",
        tag="studies",
        summary="The report as a file",
        description="json is the whole report as data, and html, pdf and md print the same. csv"
        " has a line for each trial, requests one for each request that was sent. pdf needs a"
        " Chromium on the server and is answered with 503 (`pdf_unavailable`) where there is none.",
        response={
            (200, "application/json"): ReportDocument,
            **{
                (200, media_type.partition(";")[0]): OpenApiTypes.BINARY
                for name, media_type in MEDIA_TYPES.items()
                if name != "json"
            },
        },
        parameters=(
            OpenApiParameter(
                "format", str, enum=sorted(MEDIA_TYPES), description="json by default."
            ),
        ),
        errors=(400, 404, 503),
    )
    def get(self, request: Request, study_id: UUID) -> HttpResponse:
        study = study_get(org=org_of(request), study_id=study_id)
        file = report_file(study, request.query_params.get("format", "json"))
        # An attachment, so that no browser ever runs it on this origin.
        return HttpResponse(
            file.content,
            content_type=file.media_type,
            headers={"Content-Disposition": f'attachment; filename="{file.filename}"'},
        )
