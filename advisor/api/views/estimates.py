"""`/api/v1/estimates`: memory, times and cost of a model on a device, without running anything."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from advisor.accounts.auth import org_of
from advisor.api.schema import operation
from advisor.api.serializers.base import respond
from advisor.api.serializers.estimates import EstimateReply, estimate_reply
from advisor.api.wire_parser import parse_body
from advisor.estimates.query import EstimateQuery
from advisor.studies.estimating import answer


class EstimateCreate(APIView):
    changes_nothing = True

    @operation(
        "estimates_create",
        tag="estimates",
        summary="Estimate a model on a GPU",
        description="Computed from the model's config in milliseconds; nothing is stored, fetched"
        " or run. The organisation's own prices and measurements are used where it has any.",
        request=EstimateQuery,
        response=EstimateReply,
        errors=(400, 413),
    )
    def post(self, request: Request) -> Response:
        query = parse_body(request, EstimateQuery)
        return respond(estimate_reply(answer(org=org_of(request), query=query)))
