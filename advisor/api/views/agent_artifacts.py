"""`PUT artifacts/<trial>/<epoch>/<sha256>`: the bytes of an announced file.

Stored under the hash after it was checked, never under a name that came from outside.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import tempfile
from pathlib import Path
from uuid import UUID

from django.conf import settings
from django.utils import timezone
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response

from advisor.api.views.agent_base import AgentView
from advisor.errors import InvalidInput, NotFound, StorageFull, TooLarge
from advisor.studies.models import StoredArtifact
from advisor.traces.services import trace_from_artifact

CHUNK_BYTES = 1 << 20


class RawParser(BaseParser):
    media_type = "application/octet-stream"

    def parse(self, stream: object, media_type: object = None, parser_context: object = None):
        return stream


class ArtifactView(AgentView):
    parser_classes = [RawParser]

    def put(self, request: Request, trial_id: UUID, epoch: int, sha256: str) -> Response:
        rows = StoredArtifact.objects.filter(
            attempt__trial_id=trial_id,
            attempt__number=epoch,
            attempt__agent=self.agent,
            sha256=sha256,
        )
        row = rows.select_related("attempt__trial__study__org", "attempt__trial__agent").first()
        if row is None:
            raise NotFound("No file with this hash was announced for this attempt.")
        if row.stored_at is None:
            _store(request, row)
            rows.update(stored_at=timezone.now())
            trial = row.attempt.trial
            trace_from_artifact(trial=trial, name=row.name, path=artifact_path(sha256))
        return Response(status=204)


def artifact_path(sha256: str) -> Path:
    return Path(settings.ARTIFACT_DIR) / sha256[:2] / sha256


def _store(request: Request, row: StoredArtifact) -> None:
    target = artifact_path(row.sha256)
    target.parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    # DRF gives an empty dict where there is no Content-Length, or where it is 0.
    body = request.data if hasattr(request.data, "read") else io.BytesIO()
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".part-")
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as out:
            while chunk := body.read(CHUNK_BYTES):
                size += len(chunk)
                if size > row.size_bytes:
                    raise TooLarge("The file is larger than it was announced.")
                digest.update(chunk)
                out.write(chunk)
        if digest.hexdigest() != row.sha256 or size != row.size_bytes:
            raise InvalidInput("The bytes do not match the announced hash. Send the file again.")
        part.replace(target)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise StorageFull("The server's disk is full. The agent will try again.") from error
        raise
    finally:
        part.unlink(missing_ok=True)
