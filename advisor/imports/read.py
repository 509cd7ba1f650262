"""Finds the format of a file and reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from advisor.imports import aiperf, guidellm, locust, vllm_bench
from advisor.imports.errors import ImportRefused
from advisor.imports.fields import parse_json
from advisor.imports.model import ImportedTrial

MAX_BYTES = 64 * 1024 * 1024
KEPT_BYTES = 20_000_000
"""Of a file that a server reads or keeps; the command line alone reads MAX_BYTES."""
FORMATS = (
    "vllm bench serve (--save-result, better with --save-detailed)",
    "guidellm benchmarks.json",
    "aiperf profile_export_aiperf.json",
    "Locust _stats.csv or _stats_history.csv",
)
_JSON: tuple[tuple[Callable[[Any], bool], Callable[[Any], tuple[ImportedTrial, ...]]], ...] = (
    (vllm_bench.matches, vllm_bench.read),
    (guidellm.matches, guidellm.read),
    (aiperf.matches, aiperf.read),
)


def too_large(size: int) -> str:
    """What to do with a file that a server does not take."""
    return (
        f"The file has {size / 1e6:.1f} MB; up to {KEPT_BYTES / 1e6:.0f} MB are taken. Leave out "
        "the generated texts, or split the run."
    )


def read_import(content: bytes) -> tuple[ImportedTrial, ...]:
    """The trials of a file. Raises ImportRefused with the field that is wrong and the fix."""
    if len(content) > MAX_BYTES:
        raise ImportRefused("file", f"is larger than {MAX_BYTES // 2**20} MiB")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ImportRefused("file", "is no UTF-8 text") from None
    try:
        if not text.lstrip().startswith(("{", "[")):
            if locust.matches(text):
                return locust.read(text)
            raise _unknown()
        document = parse_json(text)
        for matches, read in _JSON:
            if matches(document):
                return read(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "file"
        raise ImportRefused(where, str(first["msg"])[:300]) from None
    raise _unknown()


def _unknown() -> ImportRefused:
    return ImportRefused("file", f"is none of: {'; '.join(FORMATS)}")
