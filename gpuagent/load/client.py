"""HTTP/1.1 connections that do as little as possible while a request runs.

A connection writes prepared bytes, stamps every piece of the answer's body when it arrives, and
keeps it; nothing is decoded before the run is over. httptools (the C parser of Node.js, as used by
uvicorn) finds where a response ends; TLS, sockets and timers are asyncio's.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

import httptools

from gpuagent.errors import ConfigError

_MAX_BODY_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to send. key goes into the Authorization header only and is never shown or stored."""

    host: str
    port: int
    path: str
    tls: bool
    key: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, url: str, path: str, *, key: str | None = None) -> Endpoint:
        """The endpoint at `url` (`http://host:8000` or with `/v1`). Raises ConfigError."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise ConfigError(f"url: {url!r} is no address ({error})") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"url: {url!r} must start with http:// or https:// and name a host")
        if parts.username or parts.password:
            raise ConfigError("url: must not hold a user or password; pass a key instead")
        if key is not None and not (key.isascii() and key.isprintable()):
            raise ConfigError("key: holds characters that no HTTP header can carry")
        base = parts.path.rstrip("/").removesuffix("/v1")
        tls = parts.scheme == "https"
        return cls(parts.hostname, port or (443 if tls else 80), base + path, tls, key)

    @property
    def url(self) -> str:
        """The address as text, without the key."""
        scheme = "https" if self.tls else "http"
        return f"{scheme}://{self._host}:{self.port}{self.path}"

    @property
    def _host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    def head(self) -> bytes:
        """Everything of a request before its length and body."""
        lines = [
            f"POST {self.path} HTTP/1.1",
            f"Host: {self._host}:{self.port}",
            "Content-Type: application/json",
            "Accept: text/event-stream",
            "User-Agent: gpuagent-load",
        ]
        if self.key:
            lines.append(f"Authorization: Bearer {self.key}")
        return ("\r\n".join(lines) + "\r\nContent-Length: ").encode("latin-1", "replace")


@dataclass(slots=True)
class Exchange:
    """One request on the wire, in perf_counter seconds. pieces: (arrival, bytes of the body)."""

    sent: float = 0.0
    done: float = 0.0
    status: int = 0
    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    error: str | None = None


class Connection(asyncio.Protocol):
    """One keep-alive connection; one request at a time."""

    def __init__(self) -> None:
        self.open = False
        self._transport: Any = None
        self._parser: Any = None
        self._exchange: Exchange | None = None
        self._finished: Callable[[Connection], None] | None = None
        self._now = 0.0
        self._size = 0
        self._keep_alive = True

    def send(
        self, payload: bytes, exchange: Exchange, finished: Callable[[Connection], None]
    ) -> None:
        """Write a request; `finished` is called once, when the answer is complete or failed."""
        self._exchange, self._finished = exchange, finished
        self._parser = httptools.HttpResponseParser(self)
        self._size = 0
        exchange.sent = perf_counter()
        self._transport.write(payload)

    def fail(self, message: str) -> None:
        """End the request with an error, and the connection with it."""
        if self._exchange is not None and self._exchange.error is None:
            self._exchange.error = message
        self._close()

    # --- asyncio.Protocol ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self.open = transport, True

    def data_received(self, data: bytes) -> None:
        self._now = perf_counter()
        if self._exchange is None:
            # An answer that nobody asked for: the connection cannot be trusted any more.
            self._close()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.fail(f"the answer is no valid HTTP: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        if self._exchange is None:
            return
        if self._exchange.error is None:
            self._exchange.error = "the server closed the connection before the answer was complete"
        self._end()

    # --- httptools -----------------------------------------------------------------------------

    def on_headers_complete(self) -> None:
        if self._exchange is not None:
            self._exchange.status = self._parser.get_status_code()
        self._keep_alive = self._parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        if self._exchange is None:
            return
        self._size += len(body)
        if self._size > _MAX_BODY_BYTES:
            self.fail("the answer is larger than 64 MiB")
            return
        self._exchange.pieces.append((self._now, body))

    def on_message_complete(self) -> None:
        if self._exchange is None or self._exchange.status < 200:
            return
        if not self._keep_alive:
            self.open = False
        self._end()
        if not self._keep_alive:
            self._close()

    # -------------------------------------------------------------------------------------------

    def _end(self) -> None:
        exchange, finished = self._exchange, self._finished
        self._exchange = self._finished = None
        if exchange is not None:
            exchange.done = perf_counter()
        if finished is not None:
            finished(self)

    def _close(self) -> None:
        self.open = False
        if self._transport is not None:
            self._transport.abort()


async def connect(endpoint: Endpoint, *, timeout_s: float) -> Connection:
    """A new connection. Raises OSError or TimeoutError."""
    loop = asyncio.get_running_loop()
    context = ssl.create_default_context() if endpoint.tls else None
    made = loop.create_connection(Connection, endpoint.host, endpoint.port, ssl=context)
    _, protocol = await asyncio.wait_for(made, timeout_s)
    return protocol
