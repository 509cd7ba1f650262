"""The catalogue of rules."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from advisor.api.schema import operation
from advisor.api.serializers.base import respond_list
from advisor.api.serializers.rules import RulePage, rule_answer
from advisor.rules import RULES


class RuleList(APIView):
    @operation(
        "rules_list",
        tag="rules",
        summary="Every rule with its threshold and source",
        response=RulePage,
    )
    def get(self, request: Request) -> Response:
        return respond_list(rule_answer(rule) for rule in RULES)
