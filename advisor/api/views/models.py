"""Model folders that the organisation's agents offer, by the name a study refers to them."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from advisor.accounts.auth import org_of
from advisor.api.schema import operation
from advisor.api.serializers.base import respond_list
from advisor.api.serializers.fleet import ModelPage, model_answer
from advisor.fleet.selectors import agents_of


class ModelList(APIView):
    @operation(
        "models_list",
        tag="models",
        summary="Model folders of all agents",
        response=ModelPage,
    )
    def get(self, request: Request) -> Response:
        return respond_list(
            model_answer(agent, model)
            for agent in agents_of(org_of(request))
            for model in agent.hello.models
        )
