"""`/api/v1/gpus`: the catalogue, and the organisation's own prices."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from advisor.accounts.auth import actor_of, org_of
from advisor.accounts.services import price_remove, price_set
from advisor.api.schema import operation
from advisor.api.serializers.base import respond, respond_list
from advisor.api.serializers.gpus import GpuAnswer, GpuPage, PriceRequest, gpu_answer
from advisor.api.wire_parser import parse_body
from advisor.catalog import UnknownNameError, find_gpu, list_gpus
from advisor.errors import NotFound
from advisor.studies.pricing import own_prices


class GpuList(APIView):
    @operation(
        "gpus_list",
        tag="gpus",
        summary="GPUs and CPU hosts with rates, source and price",
        response=GpuPage,
    )
    def get(self, request: Request) -> Response:
        own = own_prices(org_of(request))
        return respond_list(gpu_answer(gpu, own) for gpu in list_gpus())


class GpuPriceDetail(APIView):
    owner_only = True

    @operation(
        "gpus_price_set",
        tag="gpus",
        summary="Set the organisation's own price of a GPU",
        description="It wins over the list price in every estimate made afterwards.",
        request=PriceRequest,
        response=GpuAnswer,
        errors=(400, 404),
    )
    def put(self, request: Request, name: str) -> Response:
        wanted = parse_body(request, PriceRequest)
        price_set(
            org=org_of(request),
            gpu=_known(name),
            usd_per_gpu_hour=wanted.usd_per_gpu_hour,
            reason=wanted.reason,
            actor=actor_of(request),
        )
        return self._answer(request, name)

    @operation(
        "gpus_price_remove",
        tag="gpus",
        summary="Go back to the list price",
        response=GpuAnswer,
        errors=(404,),
    )
    def delete(self, request: Request, name: str) -> Response:
        price_remove(org=org_of(request), gpu=_known(name), actor=actor_of(request))
        return self._answer(request, name)

    def _answer(self, request: Request, name: str) -> Response:
        return respond(gpu_answer(find_gpu(name), own_prices(org_of(request))))


def _known(name: str) -> str:
    try:
        return find_gpu(name).name
    except UnknownNameError as error:
        raise NotFound(f"{error}.") from None
