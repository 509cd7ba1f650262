"""The REST API as the command line uses it. Address and token come from the environment."""

from __future__ import annotations

import os
import uuid
from typing import Any

import httpx

from advisor.cli.errors import CliError

TIMEOUT_S = 30.0
URL_VARIABLE, TOKEN_VARIABLE = "TUNING_ADVISOR_URL", "TUNING_ADVISOR_TOKEN"


class ApiClient:
    """Calls `/api/v1/`; every problem becomes a CliError with a sentence."""

    def __init__(self, url: str, token: str, transport: httpx.BaseTransport | None = None) -> None:
        self._http = httpx.Client(
            base_url=f"{url.rstrip('/')}/api/v1/",
            headers={"Authorization": f"Bearer {token}"},
            timeout=TIMEOUT_S,
            transport=transport,
        )

    @classmethod
    def from_environment(cls) -> ApiClient:
        """Raises CliError with the variable to set."""
        url, token = os.environ.get(URL_VARIABLE), os.environ.get(TOKEN_VARIABLE)
        if not url:
            raise CliError(f"set {URL_VARIABLE} to the address of the dashboard")
        if not token:
            raise CliError(f"set {TOKEN_VARIABLE} to an API token from the Organisation page")
        return cls(url, token)

    def get(self, path: str, **params: str) -> Any:
        return self._send("GET", path, params=params).json()

    def get_bytes(self, path: str, **params: str) -> bytes:
        return self._send("GET", path, params=params).content

    def post(self, path: str, body: Any = None) -> Any:
        """POST once: the key makes a repeat after a lost answer harmless."""
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        return self._send("POST", path, json=body, headers=headers).json()

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            response = self._http.request(method, path, **options)
        except httpx.InvalidURL as error:
            raise CliError(f"{URL_VARIABLE} is no address: {error}") from error
        except httpx.HTTPError as error:
            raise CliError(f"the server was not reached: {error}") from error
        if response.is_success:
            return response
        raise CliError(_explain(response))


def _explain(response: httpx.Response) -> str:
    try:
        answer = response.json()
        message, fields = str(answer["message"]), dict(answer.get("fields") or {})
    except (ValueError, KeyError, TypeError):
        return f"the server answered {response.status_code}"
    lines = [f"\n  {name}: {' '.join(texts)}" for name, texts in fields.items()]
    return message + "".join(lines)
