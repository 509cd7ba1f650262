"""`/api/v1/imports`: results of another load tool, in our definitions, against targets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from advisor.accounts.auth import actor_of, auth_of, require_write
from advisor.api.errors import invalid_fields
from advisor.api.schema import operation
from advisor.api.serializers.base import respond
from advisor.api.serializers.imports import ImportAnswer, ImportQuery, import_answer
from advisor.api.wire_parser import StrictJSONParser, parse_body
from advisor.errors import TooLarge
from advisor.imports import (
    KEPT_BYTES,
    ImportedTrial,
    ImportRefused,
    judge_import,
    read_import,
    too_large,
)
from advisor.studies.importing import Kept, Labels, import_keep

# JSON inside of JSON: every quotation mark of the file has a backslash in the body.
_BODY_BYTES: Final = KEPT_BYTES * 3 // 2


class ImportParser(StrictJSONParser):
    """Single requests with every gap between tokens are megabytes."""

    def max_bytes(self) -> int:
        return _BODY_BYTES


def _field(name: str) -> str:
    """Of the body: what a person typed has fields of its own, the rest is in the file."""
    if name in ("name", "hardware", "targets"):
        return name
    return "content" if name == "file" else f"content.{name}"


class ImportCreate(APIView):
    # Judging changes nothing; keeping asks for the right to write itself.
    changes_nothing = True
    parser_classes = (ImportParser,)

    @operation(
        "imports_create",
        tag="imports",
        summary="Judge results of another load tool",
        description="`content` is the text of a result of vllm bench serve, guidellm, aiperf (JSON)"
        " or Locust (CSV). Metrics come back in SI units with what the tool defines otherwise."
        " Nothing is stored, and nothing of it counts as measured by an agent. With `keep` each"
        " benchmark becomes a finished study of the engine `imported`; keeping the same file again"
        " with the same targets, preset and hardware answers with the same studies (`existed`).",
        request=ImportQuery,
        response=ImportAnswer,
        errors=(400, 413),
    )
    def post(self, request: Request) -> Response:
        query = parse_body(request, ImportQuery)
        content = query.content.encode()
        if len(content) > KEPT_BYTES:
            raise TooLarge(too_large(len(content)))
        try:
            trials = read_import(content)
            studies = self._kept(request, query, trials) if query.keep else []
        except ImportRefused as error:
            raise invalid_fields({_field(error.field): [error.message]}) from None
        judged = [(one, judge_import(one, query.targets)) for one in trials]
        return respond(import_answer(judged, studies))

    def _kept(
        self, request: Request, query: ImportQuery, trials: Sequence[ImportedTrial]
    ) -> list[Kept]:
        auth = auth_of(request)
        require_write(auth)
        return import_keep(
            org=auth.org,
            user=auth.membership.user,
            actor=actor_of(request),
            content=query.content.encode(),
            trials=trials,
            targets=query.targets,
            labels=Labels(name=query.name, preset=query.preset, hardware=query.hardware),
        )
