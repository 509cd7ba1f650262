"""Base of all answers, and the envelope of lists."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict
from rest_framework.response import Response


class Answer(BaseModel):
    """Numbers in SI units; null is "not known" or "not measured", never 0."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


Item = TypeVar("Item", bound=BaseModel)


class Page(Answer, Generic[Item]):
    """Every list has this shape; short lists come whole, with both links null."""

    next: str | None = None
    previous: str | None = None
    results: list[Item]


def respond(
    value: BaseModel, *, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    return Response(value.model_dump(mode="json"), status=status, headers=headers)


def respond_list(items: Iterable[BaseModel]) -> Response:
    """A short list as one page."""
    results: list[Any] = [item.model_dump(mode="json") for item in items]
    return Response({"next": None, "previous": None, "results": results})
