"""An OpenAI-compatible streaming server that computes nothing: to measure the client and to test.

Three ways to time tokens. Fixed: the first token after `ttft_s`, the next ones every `itl_s`, for
any number of requests; with both 0 an answer is one write. Steps: a scheduler as in a real engine,
at most `slots` requests at once, each step makes one token for every running request and takes
`step_s + per_request_s x running`; requests that find no slot wait, so latency has a knee at
slots / (output tokens x step time). Errors: a share of requests is refused, cut off or left
hanging.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import httptools

MODEL = "mock"
_MAX_BODY_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class MockSettings:
    """Times in seconds; shares between 0 and 1. slots above 0 selects the scheduler.

    queue_limit: requests that may wait for a slot, further ones are refused with 429; None: all.
    max_context: longest prompt plus answer in tokens, longer ones are refused with 400.
    """

    ttft_s: float = 0.0
    itl_s: float = 0.0
    slots: int = 0
    step_s: float = 0.01
    per_request_s: float = 0.0
    queue_limit: int | None = None
    max_context: int = 1_000_000
    refuse_frac: float = 0.0
    cut_frac: float = 0.0
    hang_frac: float = 0.0
    seed: int = 0

    @property
    def step_all_s(self) -> float:
        """Seconds of a step with every slot taken."""
        return self.step_s + self.per_request_s * self.slots

    def knee_per_s(self, output_tokens: int) -> float:
        """Requests a second at which the scheduler's slots are always taken."""
        return self.slots / (output_tokens * self.step_all_s)


@dataclass(slots=True)
class _Counters:
    received: int = 0
    succeeded: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0


class MockServer:
    """`await start()` gives the port; `close()` ends it."""

    def __init__(self, settings: MockSettings | None = None) -> None:
        self.settings = settings or MockSettings()
        self.counters = _Counters()
        self.rng = random.Random(self.settings.seed)  # noqa: S311  which request fails
        self.running: list[_Generation] = []
        self.waiting: deque[_Generation] = deque()
        self._server: asyncio.Server | None = None
        self._step: asyncio.TimerHandle | None = None
        self._due = 0.0

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), host, port, backlog=4096)
        port_number: int = self._server.sockets[0].getsockname()[1]
        return port_number

    def close(self) -> None:
        if self._step is not None:
            self._step.cancel()
        if self._server is not None:
            self._server.close()

    # --- scheduler -----------------------------------------------------------------------------

    def submit(self, generation: _Generation) -> bool:
        """Queue it; False where the queue is full."""
        limit = self.settings.queue_limit
        full = len(self.running) >= self.settings.slots
        if full and limit is not None and len(self.waiting) >= limit:
            return False
        self.waiting.append(generation)
        if self._step is None:
            self._admit()
            self._due = asyncio.get_running_loop().time()
            self._schedule()
        return True

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self.settings.slots:
            generation = self.waiting.popleft()
            if generation.alive:
                self.running.append(generation)

    def _schedule(self) -> None:
        # From the last step's due time: a late timer must not make the mock slower than it says.
        self._due += self.settings.step_s + self.settings.per_request_s * len(self.running)
        self._step = asyncio.get_running_loop().call_at(self._due, self._do_step)

    def _do_step(self) -> None:
        self._step = None
        self.running = [g for g in self.running if g.alive and not g.token()]
        self._admit()
        if self.running:
            self._schedule()

    def metrics(self) -> str:
        """The few names of vLLM's /metrics that a joined timeline needs."""
        counters = self.counters
        label = f'{{model_name="{MODEL}"}}'
        rows: list[tuple[str, str, float]] = [
            ("gauge", "vllm:num_requests_running", len(self.running)),
            ("gauge", "vllm:num_requests_waiting", len(self.waiting)),
            ("counter", "vllm:request_success_total", counters.succeeded),
            ("counter", "vllm:prompt_tokens_total", counters.prompt_tokens),
            ("counter", "vllm:generation_tokens_total", counters.generation_tokens),
        ]
        return "".join(f"# TYPE {n} {k}\n{n}{label} {v}\n" for k, n, v in rows)


class _Generation:
    """One answer while it is written."""

    def __init__(self, connection: _Connection, chat: bool, tokens: int, prompt: int) -> None:
        self._connection, self._left = connection, tokens
        self._tokens, self._prompt = tokens, prompt
        self._chunk = _word(chat)
        self._chat = chat
        self.cut_after: int | None = None

    @property
    def alive(self) -> bool:
        return self._connection.alive

    def token(self) -> bool:
        """Write one token; True after the last."""
        self._left -= 1
        if self.cut_after is not None and self._tokens - self._left > self.cut_after:
            self._connection.cut()
            return True
        if self._left > 0:
            self._connection.write_chunk(self._chunk)
            return False
        self._count()
        self._connection.finish(self._chunk + self._end())
        return True

    def all_at_once(self) -> None:
        self._count()
        self._connection.finish(self._chunk * self._tokens + self._end())

    def _end(self) -> bytes:
        return _ending(self._chat, self._prompt, self._tokens)

    def _count(self) -> None:
        counters = self._connection.server.counters
        counters.succeeded += 1
        counters.prompt_tokens += self._prompt
        counters.generation_tokens += self._tokens


class _Connection(asyncio.Protocol):
    def __init__(self, server: MockServer) -> None:
        self.server, self.alive = server, False
        self._transport: Any = None
        self._parser = httptools.HttpRequestParser(self)
        self._url, self._body = b"", bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self.alive = transport, True

    def connection_lost(self, exc: Exception | None) -> None:
        self.alive = False

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.abort()

    def on_message_begin(self) -> None:
        self._url, self._body = b"", bytearray()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_body(self, body: bytes) -> None:
        self._body += body
        if len(self._body) > _MAX_BODY_BYTES:
            self._transport.abort()

    def on_message_complete(self) -> None:
        path = self._url.decode("latin-1").partition("?")[0]
        if self._parser.get_method() == b"GET":
            self._get(path)
        elif path in ("/v1/completions", "/v1/chat/completions"):
            self._complete(chat=path.endswith("chat/completions"))
        else:
            self._refuse(404, f"there is no {path}")

    def _get(self, path: str) -> None:
        if path == "/v1/models":
            models = {"object": "list", "data": [{"id": MODEL, "object": "model"}]}
            self._reply(200, json.dumps(models).encode())
        elif path == "/metrics":
            self._reply(200, self.server.metrics().encode(), "text/plain; version=0.0.4")
        elif path == "/health":
            self._reply(200, b"")
        else:
            self._refuse(404, f"there is no {path}")

    def _complete(self, *, chat: bool) -> None:
        server, settings = self.server, self.server.settings
        server.counters.received += 1
        try:
            asked = json.loads(self._body)
            tokens = int(asked.get("max_tokens") or asked.get("max_completion_tokens") or 16)
            prompt = _prompt_tokens(asked["messages"] if chat else asked["prompt"])
        except (ValueError, KeyError, TypeError, AttributeError):
            self._refuse(400, "the body needs a prompt or messages, and a number as max_tokens")
            return
        if prompt + tokens > settings.max_context or tokens < 1:
            limit = settings.max_context
            self._refuse(400, f"This model's maximum context length is {limit} tokens.")
            return
        draw = server.rng.random() if settings.refuse_frac + settings.cut_frac else 1.0
        if draw < settings.refuse_frac:
            self._refuse(503, "the server is overloaded (injected)")
            return
        generation = _Generation(self, chat, tokens, prompt)
        if not asked.get("stream"):
            self._whole(tokens, prompt, chat)
            return
        if draw < settings.refuse_frac + settings.cut_frac:
            generation.cut_after = tokens // 2
        self._begin(generation)

    def _begin(self, generation: _Generation) -> None:
        settings = self.server.settings
        if settings.slots:
            if self.server.submit(generation):
                self._start_stream()
            else:
                self._refuse(429, "too many requests are waiting")
            return
        self._start_stream()
        if settings.hang_frac and self.server.rng.random() < settings.hang_frac:
            return
        if settings.ttft_s <= 0 and settings.itl_s <= 0 and generation.cut_after is None:
            generation.all_at_once()
            return
        loop = asyncio.get_running_loop()
        _token_by_token(generation, loop.time() + settings.ttft_s, settings.itl_s)

    def _whole(self, tokens: int, prompt: int, chat: bool) -> None:
        usage = {"prompt_tokens": prompt, "completion_tokens": tokens}
        choice = _choice(chat, " word" * tokens, "length", whole=True)
        self.server.counters.succeeded += 1
        self._reply(200, json.dumps(choice | {"usage": usage}).encode())

    # --- writing -------------------------------------------------------------------------------

    def _start_stream(self) -> None:
        self._pending = (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )

    def write_chunk(self, data: bytes) -> None:
        self._transport.write(self._pending + b"%x\r\n%b\r\n" % (len(data), data))
        self._pending = b""

    def finish(self, data: bytes) -> None:
        self._transport.write(self._pending + b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data))
        self._pending = b""

    def cut(self) -> None:
        self._transport.abort()

    def _reply(self, status: int, body: bytes, kind: str = "application/json") -> None:
        head = f"HTTP/1.1 {status} -\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._transport.write(head.encode() + body)

    def _refuse(self, status: int, message: str) -> None:
        error = {"error": {"message": message, "type": "mock", "code": status}}
        self._reply(status, json.dumps(error).encode())


def _token_by_token(generation: _Generation, at: float, itl_s: float) -> None:
    loop = asyncio.get_running_loop()

    def fire(due: float) -> None:
        if generation.alive and not generation.token():
            loop.call_at(due + itl_s, fire, due + itl_s)

    loop.call_at(at, fire, at)


def _choice(
    chat: bool, text: str, reason: str | None = None, *, whole: bool = False
) -> dict[str, Any]:
    content: dict[str, Any] = {"text": text}
    if chat:
        message = {"role": "assistant", "content": text}
        content = {"message": message} if whole else {"delta": {"content": text}}
    return {"model": MODEL, "choices": [{"index": 0, **content, "finish_reason": reason}]}


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


@lru_cache(maxsize=2)
def _word(chat: bool) -> bytes:
    return _event(_choice(chat, " word"))


@lru_cache(maxsize=1024)
def _ending(chat: bool, prompt: int, tokens: int) -> bytes:
    usage = {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}
    last = _event(_choice(chat, "", "length"))
    return last + _event({"choices": [], "usage": usage}) + b"data: [DONE]\n\n"


def _prompt_tokens(prompt: Any) -> int:
    """Token ids are counted, words stand for a token each."""
    if isinstance(prompt, str):
        return max(1, len(prompt.split()))
    if prompt and isinstance(prompt[0], dict):
        return max(1, sum(len(str(message.get("content", "")).split()) for message in prompt))
    return max(1, len(prompt))


async def serve_forever(
    settings: MockSettings, host: str, port: int, ready: Callable[[int], None]
) -> None:
    """Serve until cancelled; `ready` is told the port. Raises OSError where it is taken."""
    server = MockServer(settings)
    try:
        ready(await server.start(host, port))
        await asyncio.Event().wait()
    finally:
        server.close()
