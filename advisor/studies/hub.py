"""Asks the model hub for a config.json, so that a mistyped id is an error in the form.

Best effort: a server without a way to the hub accepts the id and says that it was not checked.
The address comes from the administrator (HF_ENDPOINT), never from the user; no redirect is
followed off that host, and the answer is size-limited.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx
from django.conf import settings

from advisor.errors import InvalidInput
from advisor.shapes import ShapeError, parse_config_text
from gpuagent.wire import HubModel

TIMEOUT_S = 4.0
MAX_REDIRECTS = 3


@dataclass(frozen=True, slots=True)
class HubAnswer:
    """config is None with a `notice` where the hub could not be asked."""

    config: dict[str, Any] | None
    notice: str | None = None


def hub_config(model: HubModel) -> HubAnswer:
    """The model's config. Raises InvalidInput where the hub says that there is none to be had."""
    if not settings.HUB_CHECK:
        return HubAnswer(None, "The model id was not checked: this server does not ask the hub.")
    revision = model.revision or "main"
    url = f"{settings.HUB_ENDPOINT}/{model.id}/resolve/{revision}/config.json"
    try:
        status, body = _get(url)
    except (httpx.HTTPError, OSError):
        return HubAnswer(None, "The model id was not checked: this server does not reach the hub.")
    if status in (401, 403):
        raise _refused(
            f"The hub does not give {model.id} to this server: it is gated, private or does not"
            " exist. Check the id, or use a folder on the agent."
        )
    if status == 404:
        raise _refused(f"The hub has no model {model.id}, or it has no config.json.")
    if status != 200:
        return HubAnswer(None, f"The model id was not checked: the hub answered {status}.")
    try:
        return HubAnswer(parse_config_text(body))
    except ShapeError as error:
        raise _refused(f"The model's config.json cannot be used: {error}") from error


def _refused(message: str) -> InvalidInput:
    return InvalidInput("The model cannot be used.", {"model.id": [message]})


def _get(url: str) -> tuple[int, bytes]:
    host = urlsplit(url).netloc
    with httpx.Client(timeout=TIMEOUT_S, follow_redirects=False) as client:
        for _ in range(MAX_REDIRECTS + 1):
            with client.stream("GET", url) as response:
                if response.is_redirect:
                    url = urljoin(url, response.headers["location"])
                    if urlsplit(url).netloc != host:
                        raise httpx.TooManyRedirects("redirect off the hub")
                    continue
                body = bytearray()
                for chunk in response.iter_bytes():
                    body += chunk
                    if len(body) > settings.MODEL_CONFIG_MAX_BYTES:
                        break
                return response.status_code, bytes(body)
    raise httpx.TooManyRedirects("too many redirects")
