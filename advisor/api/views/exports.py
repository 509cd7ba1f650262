"""`/api/v1/studies/{id}/export`: a configuration to serve, as a command, a container or data."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.views import APIView

from advisor.accounts.auth import org_of
from advisor.api.schema import operation
from advisor.api.views.reports import AsItComes
from advisor.exports import EXPORTS, ExportDocument
from advisor.exports.arguments import SERVING_ENGINES
from advisor.studies.exporting import study_export
from advisor.studies.selectors import study_get


class StudyExport(APIView):
    content_negotiation_class = AsItComes

    @operation(
        "studies_export",
        tag="studies",
        summary="A configuration to serve, as a file",
        description="The recommended settings; today's where nothing measured is better. vllm and"
        " sglang are shell commands, compose and kubernetes YAML, json the same as data. Every one"
        " says whether an A/B verified the settings in that engine. 409 where nothing has a valid"
        " measurement.",
        response={
            (200, "application/json"): ExportDocument,
            **{
                (200, export.media_type): OpenApiTypes.BINARY
                for name, export in EXPORTS.items()
                if name != "json"
            },
        },
        parameters=(
            OpenApiParameter("format", str, enum=list(EXPORTS), description="json by default."),
            OpenApiParameter(
                "engine",
                str,
                enum=list(SERVING_ENGINES),
                description="For compose, kubernetes and json; the study's own by default, vllm"
                " where that is no server.",
            ),
            OpenApiParameter(
                "engine_version",
                str,
                description="Of the flag catalogue; by default the measured one, else the newest.",
            ),
            OpenApiParameter("trial", int, description="Number of a trial whose settings to take."),
        ),
        errors=(400, 404, 409),
    )
    def get(self, request: Request, study_id: UUID) -> HttpResponse:
        study = study_get(org=org_of(request), study_id=study_id)
        asked = request.query_params
        file = study_export(
            study,
            asked.get("format", "json"),
            engine=asked.get("engine"),
            engine_version=asked.get("engine_version"),
            trial=asked.get("trial"),
        )
        return HttpResponse(
            file.content,
            content_type=file.media_type,
            headers={"Content-Disposition": f'attachment; filename="{file.filename}"'},
        )
