"""Cursor pagination: a page stays right while rows are added, and the last page costs no more.

`{next, previous, results}`; `next` and `previous` are whole URLs or null. `limit` sets the page
size up to 200.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from pydantic import BaseModel
from rest_framework.exceptions import NotFound
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request
from rest_framework.response import Response

from advisor.errors import InvalidInput


class NewestFirst(CursorPagination):
    ordering: str | tuple[str, ...] = ("-created_at", "-pk")
    page_size = 50
    page_size_query_param = "limit"
    max_page_size = 200

    def get_page_size(self, request: Request) -> int:
        """As asked for. Nonsense is an error, not silently the default."""
        wanted = request.query_params.get(self.page_size_query_param)
        if wanted is None:
            return self.page_size
        if not (
            wanted.isascii() and wanted.isdigit() and 1 <= int(wanted[:9]) <= self.max_page_size
        ):
            text = f"Enter a whole number from 1 to {self.max_page_size}."
            raise InvalidInput(f"limit: {text}", {"limit": [text]})
        return int(wanted)

    def paginate_queryset(
        self, queryset: QuerySet[Any], request: Request, view: Any = None
    ) -> list[Any] | None:
        try:
            return super().paginate_queryset(queryset, request, view=view)
        except (NotFound, ValidationError, ValueError, TypeError, OverflowError):
            # A cursor that was not made here also reaches the database as a comparison value.
            text = "Take the cursor from next or previous of an earlier answer."
            raise InvalidInput(f"cursor: {text}", {"cursor": [text]}) from None

    def respond(
        self, request: Request, rows: QuerySet[Any], to_answer: Callable[[Any], BaseModel]
    ) -> Response:
        """One page of `rows`, each as `to_answer` shows it."""
        page = self.paginate_queryset(rows, request) or []
        return self.get_paginated_response([to_answer(row).model_dump(mode="json") for row in page])


class HighestNumberFirst(NewestFirst):
    """Studies: newest first too, and a number is unique, so that no two rows share a position."""

    ordering = ("-number",)


class InOrder(NewestFirst):
    """Trials of a study, in the order in which they were planned."""

    ordering = ("ordinal",)
