"""`/api/v1/imports`: results of another load tool, in our definitions, against targets."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from advisor.api.errors import invalid_fields
from advisor.api.schema import operation
from advisor.api.serializers.base import respond
from advisor.api.serializers.imports import ImportAnswer, ImportQuery, import_answer
from advisor.api.wire_parser import parse_body
from advisor.imports import ImportRefused, judge_import, read_import


class ImportCreate(APIView):
    changes_nothing = True

    @operation(
        "imports_create",
        tag="imports",
        summary="Judge results of another load tool",
        description="`content` is the text of a result of vllm bench serve, guidellm, aiperf (JSON)"
        " or Locust (CSV). Metrics come back in SI units with what the tool defines otherwise."
        " Nothing is stored, and nothing of it counts as measured by an agent.",
        request=ImportQuery,
        response=ImportAnswer,
        errors=(400, 413),
    )
    def post(self, request: Request) -> Response:
        query = parse_body(request, ImportQuery)
        try:
            trials = read_import(query.content.encode())
        except ImportRefused as error:
            where = "content" if error.field == "file" else f"content.{error.field}"
            raise invalid_fields({where: [error.message]}) from None
        return respond(import_answer([(one, judge_import(one, query.targets)) for one in trials]))
