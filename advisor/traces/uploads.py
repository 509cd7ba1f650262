"""Files of a request: bounded before a byte of them is written, and handed on as a path."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.core.files.uploadedfile import UploadedFile
from django.core.files.uploadhandler import FileUploadHandler

_ROOM_FOR_FIELDS = 1 << 20


class SizeLimitHandler(FileUploadHandler):
    """Refuses a form whose announced length is beyond the largest trace.

    Django bounds the fields of a form but not its files, and the CSRF check reads the whole form
    before any view is asked.
    """

    def handle_raw_input(
        self,
        input_data: Any,
        META: dict[str, Any],  # noqa: N803 - Django's name
        content_length: int,
        boundary: bytes,
        encoding: str | None = None,
    ) -> None:
        if content_length > settings.TRACE_MAX_BYTES + _ROOM_FOR_FIELDS:
            raise RequestDataTooBig("The file is larger than this server accepts.")

    def receive_data_chunk(self, raw_data: bytes, start: int) -> bytes:
        return raw_data

    def file_complete(self, file_size: int) -> None:
        return None


@contextmanager
def as_path(upload: UploadedFile) -> Iterator[Path]:
    """A path with the upload's bytes; gone afterwards. Large uploads lie on the disk already."""
    if hasattr(upload, "temporary_file_path"):
        yield Path(upload.temporary_file_path())
        return
    with tempfile.NamedTemporaryFile(prefix="trace-") as file:
        for chunk in upload.chunks():
            file.write(chunk)
        file.flush()
        yield Path(file.name)
