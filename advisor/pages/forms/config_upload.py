"""A config.json from a file or from a text field: size, encoding, JSON, in this order."""

from __future__ import annotations

import json
from typing import Any

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile

from advisor import units
from advisor.errors import InvalidInput
from advisor.shapes import ShapeError, parse_config_text


def parse(upload: UploadedFile | None, pasted: str) -> dict[str, Any]:
    """The config as a dict. Raises InvalidInput that names "config_file" or "config_text"."""
    if upload is not None:
        _check_size(upload.size or 0, "config_file")
        upload.seek(0)
        return _from_bytes(upload.read(), "config_file")
    if not pasted.strip():
        raise _refused("config_text", "Upload a config.json or paste its text.")
    raw = pasted.encode()
    _check_size(len(raw), "config_text")
    return _from_bytes(raw, "config_text")


def text_of(upload: UploadedFile) -> str | None:
    """The file's text for showing it again; None where it is too large or no text."""
    if (upload.size or 0) > settings.MODEL_CONFIG_MAX_BYTES:
        return None
    upload.seek(0)
    try:
        return upload.read().decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def name_of(config: dict[str, Any]) -> str:
    """What to call a config without a name: its own path, architecture or type."""
    architectures = config.get("architectures")
    first = architectures[0] if isinstance(architectures, list) and architectures else None
    for candidate in (config.get("_name_or_path"), first, config.get("model_type")):
        if isinstance(candidate, str) and candidate.strip():
            return candidate.strip()[:200]
    return "config.json"


def _from_bytes(raw: bytes, field: str) -> dict[str, Any]:
    try:
        config = parse_config_text(raw)
        # Published configs may hold Infinity; databases and JSON readers refuse it.
        json.dumps(config, allow_nan=False)
    except ShapeError as error:
        raise _refused(field, f"{_sentence(str(error))}.") from None
    except ValueError:
        raise _refused(field, "Replace NaN and Infinity by numbers or null.") from None
    return config


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}".rstrip(".")


def _check_size(size: int, field: str) -> None:
    most = settings.MODEL_CONFIG_MAX_BYTES
    if size > most:
        raise _refused(
            field,
            f"This has {units.memory(size)}; a config has at most {units.memory(most)}."
            " Upload config.json alone, without weights.",
        )


def _refused(field: str, message: str) -> InvalidInput:
    return InvalidInput("The config cannot be used.", {field: [message]})
