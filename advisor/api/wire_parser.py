"""From the bytes of a request to a wire type: bounded, and with a field path for every complaint.

Two steps. The parser turns bytes into JSON values and refuses what no JSON reader should accept;
`parse_body` turns JSON values into a pydantic type and refuses what the database could not store
(NUL characters, lone surrogates, NaN inside free-form objects).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import IO, Any, TypeVar

from django.conf import settings
from pydantic import BaseModel, ValidationError
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser
from rest_framework.request import Request

from advisor.api.errors import invalid_fields
from advisor.errors import InvalidInput, TooLarge
from advisor.wire_errors import fields_from_validation_error

MAX_DEPTH = 64

T = TypeVar("T", bound=BaseModel)


class StrictJSONParser(BaseParser):
    """JSON in UTF-8, up to API_BODY_MAX_BYTES.

    Django's own limit does not cover a body that is read as a stream, hence the bound here. NaN
    and Infinity pass, so that the type can name the field that holds them.
    """

    media_type = "application/json"

    def max_bytes(self) -> int:
        return int(settings.API_BODY_MAX_BYTES)

    def parse(
        self,
        stream: IO[bytes],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        limit = self.max_bytes()
        body = stream.read(limit + 1)
        if len(body) > limit:
            raise TooLarge(f"The body is larger than {limit / 1_000_000:.1f} MB.")
        try:
            return json.loads(body)
        except RecursionError:
            raise ParseError("The JSON is nested too deeply.") from None
        except json.JSONDecodeError as exc:
            raise ParseError(
                f"The body is not JSON: {exc.msg} at line {exc.lineno}, column {exc.colno}."
            ) from None
        except ValueError:
            # Not UTF-8, or a number with thousands of digits.
            raise ParseError("The body is not JSON in UTF-8.") from None


class AgentJSONParser(StrictJSONParser):
    """The same for agents, whose results carry raw samples."""

    def max_bytes(self) -> int:
        return int(settings.AGENT_BODY_MAX_BYTES)


def parse_body(request: Request, kind: type[T], *, from_peer: bool = False) -> T:
    """Return the body as `kind`. Raises InvalidInput with dotted field paths.

    from_peer: ignore unknown fields, which a newer agent may have added.
    """
    if "Transfer-Encoding" in request.headers and not request.headers.get("Content-Length"):
        # WSGI servers pass no length for a chunked body, and REST framework then reads none of it.
        raise InvalidInput("Send the body in one piece, with a Content-Length header.")
    data = request.data
    if not isinstance(data, dict):
        raise InvalidInput("The body is not a JSON object.")
    fields = unstorable(data)
    try:
        value = kind.model_validate(data, extra="ignore" if from_peer else None)
    except ValidationError as exc:
        raise invalid_fields(fields_from_validation_error(exc) | fields) from None
    if fields:
        raise invalid_fields(fields)
    return value


def unstorable(data: Any) -> dict[str, list[str]]:
    """Field path -> complaint about JSON values that PostgreSQL or JSON itself cannot hold."""
    fields: dict[str, list[str]] = {}
    for path, value in _leaves(data):
        if isinstance(value, str):
            complaint = _text_complaint(value)
        elif isinstance(value, float) and not math.isfinite(value):
            complaint = "Enter a finite number."
        elif isinstance(value, (dict, list)):
            complaint = f"Nest at most {MAX_DEPTH} levels."
        else:
            continue
        if complaint:
            fields.setdefault(path, []).append(complaint)
    return fields


def _leaves(data: Any) -> Iterator[tuple[str, Any]]:
    """Scalars with their dotted path, keys as strings, containers that lie too deep.

    Iterative, so that depth costs no stack.
    """
    pending: list[tuple[str, Any, int]] = [("", data, 0)]
    while pending:
        path, value, depth = pending.pop()
        if isinstance(value, (dict, list)) and depth < MAX_DEPTH:
            items = value.items() if isinstance(value, dict) else enumerate(value)
            for key, inner in items:
                if isinstance(key, str) and _text_complaint(key):
                    yield path or "__all__", key
                    continue
                pending.append((f"{path}.{key}" if path else str(key), inner, depth + 1))
        else:
            yield path, value


def _text_complaint(text: str) -> str | None:
    if "\x00" in text:
        return "Remove the NUL character."
    if any("\ud800" <= char <= "\udfff" for char in text):
        return "Remove the broken Unicode character."
    return None
