"""`/api/v1/compare`: trials side by side."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from advisor.accounts.auth import org_of
from advisor.api.schema import operation
from advisor.api.serializers.base import respond
from advisor.api.serializers.comparisons import ComparisonAnswer, comparison_answer
from advisor.studies.comparing import best_trials, comparison_of, trial_ids

TRIALS = OpenApiParameter("trials", str, description="Two to four ids, separated by commas.")
STUDIES = OpenApiParameter(
    "studies", str, description="Instead: ids of studies; the best trial of each is compared."
)


class TrialComparisonView(APIView):
    @operation(
        "compare",
        tag="trials",
        summary="Two to four trials side by side",
        description="The first is the reference. A change is paired where an interleaved A/B of the"
        " two settings exists, else by blocks of requests; nothing is claimed across hardware.",
        response=ComparisonAnswer,
        parameters=(TRIALS, STUDIES),
        errors=(400, 404),
    )
    def get(self, request: Request) -> Response:
        org = org_of(request)
        studies = trial_ids(request.query_params.getlist("studies"), "studies")
        ids = trial_ids(request.query_params.getlist("trials"))
        if studies and not ids:
            ids = best_trials(org=org, study_ids=studies)
        return respond(comparison_answer(comparison_of(org=org, ids=ids)))
