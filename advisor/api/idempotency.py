"""`Idempotency-Key` on POST: a request that is sent again has no second effect.

The same key with the same path and body gets the stored answer for a day; with another body it is
refused (422); while the first one is still running, a copy is told so (409). The work and the
stored answer commit together, so a crash between them leaves neither, and the key can be used
again. Answers with an error are not kept: nothing happened, and the next try may work.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from advisor.accounts.auth import auth_of
from advisor.accounts.models import IdempotencyKey
from advisor.errors import Conflict, IdempotencyMismatch, InvalidInput

KEPT_FOR = timedelta(days=1)
ABANDONED_AFTER = timedelta(minutes=1)
"""No request lives that long, so its process died: the key is free again."""

MAX_KEY = 120
HEADER = "Idempotency-Key"

Work = Callable[[], Response]


class StillRunning(Conflict):
    code = "idempotency_running"


def once(
    request: Request,
    prepare: Callable[[], Work],
    *,
    never_stored: tuple[str, ...] = (),
    body_sha256: str | None = None,
) -> Response:
    """Answer a POST at most once per key; without the header simply answer it.

    prepare: checks the request and returns the work. It runs before the transaction, so that a
    slow check (the model hub) holds no lock; the work itself runs inside.
    never_stored: keys of the answer that are null in a repeat, such as a secret.
    body_sha256: what tells two bodies apart where the body is a file and not JSON.
    """
    key = request.headers.get(HEADER)
    if key is None:
        return prepare()()
    row, stored = _take(request, _checked(key), body_sha256)
    if stored is not None:
        return stored
    try:
        work = prepare()
        with transaction.atomic():
            response = work()
            _store(row, response, never_stored)
    except BaseException:
        _mine(row.pk, row.created_at).delete()
        raise
    return response


def _take(
    request: Request, key: str, body_sha256: str | None
) -> tuple[IdempotencyKey, Response | None]:
    """Reserve the key for this request, or return the answer that is stored under it."""
    auth = auth_of(request)
    now = timezone.now()
    digest = _digest(request, body_sha256)
    rows = IdempotencyKey.objects.filter(org=auth.org, actor=f"user {auth.membership.user_id}")
    rows.filter(created_at__lt=now - KEPT_FOR).delete()
    try:
        with transaction.atomic():
            return rows.create(
                org=auth.org,
                actor=f"user {auth.membership.user_id}",
                key=key,
                body_sha256=digest,
                created_at=now,
            ), None
    except IntegrityError:
        row = rows.filter(key=key).first()
    if row is None:
        raise StillRunning("The first request with this key has just failed: send it again.")
    if row.body_sha256 != digest:
        raise IdempotencyMismatch(
            f"This {HEADER} was used for another request: use a new key for a new request."
        )
    if row.status is not None:
        return row, _replay(row)
    # Compare-and-set on the time of reservation: of several takers only one wins.
    if row.created_at < now - ABANDONED_AFTER and _mine(row.pk, row.created_at).update(
        created_at=now
    ):
        row.created_at = now
        return row, None
    raise StillRunning("The first request with this key is still running: ask again in a moment.")


def _store(row: IdempotencyKey, response: Response, never_stored: tuple[str, ...]) -> None:
    body = json.loads(JSONRenderer().render(response.data))
    for name in never_stored:
        body[name] = None
    headers = {"Location": response["Location"]} if response.has_header("Location") else {}
    kept = _mine(row.pk, row.created_at).update(
        status=response.status_code, response={"body": body, "headers": headers}
    )
    if not kept:
        raise StillRunning("This request took too long, and a copy of it was started meanwhile.")


def _mine(pk: int, created_at: datetime) -> Any:
    """The row as this request reserved it: without an answer, with its own time stamp."""
    return IdempotencyKey.objects.filter(pk=pk, created_at=created_at, status=None)


def _replay(row: IdempotencyKey) -> Response:
    stored: dict[str, Any] = row.response or {}
    headers = {**stored.get("headers", {}), "Idempotency-Replayed": "true"}
    return Response(stored.get("body"), status=row.status, headers=headers)


def _digest(request: Request, body_sha256: str | None) -> str:
    """Over the path and the parsed body, so that white space and key order do not matter."""
    body = body_sha256 or json.dumps(request.data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(f"{request.path}\n{body}".encode()).hexdigest()


def _checked(key: str) -> str:
    if not 1 <= len(key) <= MAX_KEY or not (key.isascii() and key.isprintable()):
        text = f"Send 1 to {MAX_KEY} printable ASCII characters, for example a UUID."
        raise InvalidInput(f"{HEADER}: {text}", {HEADER: [text]})
    return key
