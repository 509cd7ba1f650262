"""`/api/v1/studies/{id}/diagnoses`: the two classic complaints, walked to their cause."""

from __future__ import annotations

from uuid import UUID

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from advisor.accounts.auth import org_of
from advisor.api.schema import operation
from advisor.api.serializers.base import Page, respond_list
from advisor.diagnoses import Diagnosis
from advisor.studies.diagnosing import study_diagnoses
from advisor.studies.selectors import study_get


class DiagnosisPage(Page[Diagnosis]):
    pass


class StudyDiagnoses(APIView):
    @operation(
        "studies_diagnoses",
        tag="studies",
        summary="Guided diagnoses: throughput that did not improve, memory that is high",
        description="Each is a walk of questions over the study's evidence. The first that fails"
        " names the cause; what cannot be told says what to run.",
        response=DiagnosisPage,
        parameters=(
            OpenApiParameter(
                "trial",
                int,
                description="The changed trial that throughput is compared with; by default the"
                " fastest other one.",
            ),
        ),
        errors=(400, 404),
    )
    def get(self, request: Request, study_id: UUID) -> Response:
        study = study_get(org=org_of(request), study_id=study_id)
        return respond_list(study_diagnoses(study, trial=request.query_params.get("trial")))
