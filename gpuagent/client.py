"""Talks to the server. One method per endpoint; answers are wire values, errors are few and named.

`Unreachable` may be tried again. `LeaseLost` ends the trial. `Refused` will not get better by
trying: the credential was removed, the versions do not fit, or the message was wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import httpx
from pydantic import ValidationError

from gpuagent.wire import (
    WIRE_VERSION,
    AgentHello,
    HostSample,
    TrialEvent,
    TrialOutcome,
    WireModel,
    parse_from_peer,
)
from gpuagent.wire.base import WIRE_HEADER
from gpuagent.wire.protocol import (
    ClaimReply,
    ClaimRequest,
    ControlReply,
    ErrorReply,
    EventsRequest,
    Lease,
    RegisterReply,
    RegisterRequest,
    ReleaseRequest,
    RenewRequest,
    ResultReply,
    ResultRequest,
    TelemetryRequest,
)

M = TypeVar("M", bound=WireModel)

TIMEOUT_S = 5.0
RESULT_TIMEOUT_S = 60.0
UPLOAD_CHUNK_BYTES = 1 << 20


class ClientError(Exception):
    """Base of what can go wrong between agent and server."""


class Unreachable(ClientError):
    """No answer, or one that says "later" (429, 5xx). Worth another try."""


class LeaseLost(ClientError):
    """409 stale_lease: the trial belongs to somebody else now."""


class Refused(ClientError):
    """Another 4xx: `code` and `status` say which."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code

    @property
    def is_wire_version(self) -> bool:
        return self.status == 426

    @property
    def is_credential(self) -> bool:
        return self.status in (401, 403)


class AdvisorClient:
    """One keep-alive connection pool to the server; safe to use from several threads."""

    def __init__(self, server_url: str, credential: str | None = None) -> None:
        headers = {WIRE_HEADER: str(WIRE_VERSION)}
        if credential:
            headers["Authorization"] = f"Bearer {credential}"
        self._http = httpx.Client(
            base_url=f"{server_url}/api/agent/v1/", headers=headers, timeout=TIMEOUT_S
        )

    def close(self) -> None:
        self._http.close()

    def register(self, *, token: str, slug: str, hello: AgentHello) -> RegisterReply:
        request = RegisterRequest(registration_token=token, slug=slug, hello=hello)
        return self._post("register", request, RegisterReply)

    def claim(self, *, instance: str, hello: AgentHello | None = None) -> ClaimReply:
        return self._post("claim", ClaimRequest(instance=instance, hello=hello), ClaimReply)

    def renew(self, lease: Lease) -> ControlReply:
        return self._post("renew", RenewRequest(lease=lease), ControlReply)

    def events(self, lease: Lease, events: Sequence[TrialEvent]) -> ControlReply:
        return self._post("events", EventsRequest(lease=lease, events=tuple(events)), ControlReply)

    def telemetry(self, samples: Sequence[HostSample]) -> None:
        self._send("telemetry", TelemetryRequest(samples=tuple(samples)))

    def result(self, lease: Lease, outcome: TrialOutcome) -> ResultReply:
        request = ResultRequest(lease=lease, outcome=outcome)
        return self._post("result", request, ResultReply, timeout_s=RESULT_TIMEOUT_S)

    def release(self, lease: Lease, reason: str) -> None:
        self._send("release", ReleaseRequest(lease=lease, reason=reason[:200]))

    def upload(self, lease: Lease, sha256: str, path: Path) -> None:
        """Send the bytes of an announced artefact; repeating it is harmless."""
        self._check(
            self._request(
                "PUT",
                f"artifacts/{lease.trial_id}/{lease.epoch}/{sha256}",
                content=_chunks(path),
                headers={
                    "Content-Type": "application/octet-stream",
                    # Stated, or the body would travel in chunks that WSGI does not read.
                    "Content-Length": str(path.stat().st_size),
                },
                timeout=RESULT_TIMEOUT_S,
            )
        )

    def _post(self, path: str, body: WireModel, kind: type[M], timeout_s: float = TIMEOUT_S) -> M:
        response = self._send(path, body, timeout_s)
        try:
            return parse_from_peer(kind, response.json())
        except (ValueError, ValidationError) as error:
            raise Refused(
                response.status_code, "answer", "The server's answer is not understood."
            ) from error

    def _send(self, path: str, body: WireModel, timeout_s: float = TIMEOUT_S) -> httpx.Response:
        return self._check(
            self._request(
                "POST",
                path,
                content=body.model_dump_json(),
                headers={"Content-Type": "application/json"},
                timeout=timeout_s,
            )
        )

    def _request(self, method: str, path: str, **options: object) -> httpx.Response:
        try:
            return self._http.request(method, path, **options)  # type: ignore[arg-type]
        except httpx.HTTPError as error:
            raise Unreachable(f"{type(error).__name__}: {error}") from error

    @staticmethod
    def _check(response: httpx.Response) -> httpx.Response:
        if response.is_success:
            return response
        status = response.status_code
        if status == 429 or status >= 500:
            raise Unreachable(f"the server answered {status}")
        try:
            answer = parse_from_peer(ErrorReply, response.json())
        except (ValueError, ValidationError):
            answer = ErrorReply(code="http", message=f"the server answered {status}")
        if status == 409 and answer.code == "stale_lease":
            raise LeaseLost(answer.message)
        details = "; ".join(f"{k}: {' '.join(v)}" for k, v in answer.fields.items())
        raise Refused(status, answer.code, f"{answer.message} {details}".strip())


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as source:
        while chunk := source.read(UPLOAD_CHUNK_BYTES):
            yield chunk
