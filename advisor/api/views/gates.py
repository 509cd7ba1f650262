"""`/api/v1/studies/{id}/gate`: whether a pipeline may go on."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.views import APIView

from advisor.accounts.auth import org_of
from advisor.api.schema import operation
from advisor.api.serializers.base import Answer
from advisor.api.views.reports import AsItComes
from advisor.api.wire_parser import parse_body
from advisor.errors import InvalidInput
from advisor.gate import GateReport
from advisor.gate_formats import junit, markdown
from advisor.studies.gating import study_gate
from advisor.studies.selectors import study_get

FORMATS = {
    "json": (lambda report: report.model_dump_json(), "application/json"),
    "junit": (junit, "application/xml"),
    "markdown": (markdown, "text/markdown; charset=utf-8"),
}


class GateQuery(Answer):
    """baseline: a study on the same hardware with the same workload, or null."""

    baseline: UUID | None = None


class StudyGate(APIView):
    changes_nothing = True
    content_negotiation_class = AsItComes

    @operation(
        "studies_gate",
        tag="studies",
        summary="Whether the current settings may ship",
        description="Judges the study's current settings by its targets and, where a baseline is"
        " named, by a two-sample comparison with that study. exit_code: 0 passed, 1 a target is"
        " missed or something regressed, 2 error, 3 not proven.",
        request=GateQuery,
        response={
            (200, "application/json"): GateReport,
            (200, "application/xml"): OpenApiTypes.BINARY,
            (200, "text/markdown"): OpenApiTypes.BINARY,
        },
        parameters=(
            OpenApiParameter("format", str, enum=list(FORMATS), description="json by default."),
        ),
        errors=(400, 404, 409, 413),
    )
    def post(self, request: Request, study_id: UUID) -> HttpResponse:
        study = study_get(org=org_of(request), study_id=study_id)
        chosen = request.query_params.get("format", "json")
        if chosen not in FORMATS:
            text = f"Choose one of {', '.join(FORMATS)}."
            raise InvalidInput(f"format: {text}", {"format": [text]})
        query = parse_body(request, GateQuery)
        render, media_type = FORMATS[chosen]
        report = study_gate(study=study, baseline_id=query.baseline)
        return HttpResponse(render(report), content_type=media_type)
