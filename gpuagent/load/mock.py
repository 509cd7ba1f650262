"""An OpenAI-compatible streaming server that computes nothing: to measure the client and to test.

Three ways to time tokens. Fixed: the first token after `ttft_s`, the next ones every `itl_s`, for
any number of requests; with both 0 an answer is one write. Steps: a scheduler as in a real engine,
at most `slots` requests at once, each step makes one token for every running request and takes
`step_s + per_request_s x running`; requests that find no slot wait, so latency has a knee at
slots / (output tokens x step time). Errors: a share of requests is refused, cut off or left
hanging; and it can behave as bad servers do: go on for clients that left, keep their KV memory,
fail or hang at long prompts.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import httptools

MODEL = "mock"
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
_MAX_BODY_BYTES = 64 * 1024 * 1024

LongPrompt = Literal["refuse", "fail", "hang", "cut"]


@dataclass(frozen=True, slots=True)
class MockSettings:
    """Times in seconds; shares between 0 and 1. slots above 0 selects the scheduler.

    queue_limit: requests that may wait for a slot, further ones are answered `overload_status`;
    None: all. max_context: longest prompt plus answer in tokens. long_prompt: what longer ones
    get: 400 (refuse), 500 (fail), no answer (hang), or an answer as if nothing were wrong (cut).
    kv_tokens: size of the KV memory behind the usage in /metrics. ignore_disconnects: answers go
    on when nobody reads them. leak_kv: what such an answer held stays taken.
    """

    ttft_s: float = 0.0
    itl_s: float = 0.0
    slots: int = 0
    step_s: float = 0.01
    per_request_s: float = 0.0
    queue_limit: int | None = None
    max_context: int = 1_000_000
    long_prompt: LongPrompt = "refuse"
    overload_status: int = 429
    kv_tokens: int = 1_000_000
    ignore_disconnects: bool = False
    leak_kv: bool = False
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
        self.live: set[_Generation] = set()
        self.leaked_tokens = 0
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
        waiting = {generation for generation in self.waiting if generation in self.live}
        held = self.leaked_tokens + sum(g.held_tokens for g in self.live - waiting)
        rows: list[tuple[str, str, float]] = [
            ("gauge", "vllm:num_requests_running", len(self.live - waiting)),
            ("gauge", "vllm:num_requests_waiting", len(waiting)),
            ("gauge", "vllm:kv_cache_usage_perc", min(1.0, held / self.settings.kv_tokens)),
            ("counter", "vllm:request_success_total", counters.succeeded),
            ("counter", "vllm:prompt_tokens_total", counters.prompt_tokens),
            ("counter", "vllm:generation_tokens_total", counters.generation_tokens),
        ]
        return "".join(f"# TYPE {n} {k}\n{n}{label} {v}\n" for k, n, v in rows)


class _Generation:
    """One answer while it is written."""

    def __init__(
        self, connection: _Connection, chat: bool, tokens: int, prompt: int, *, stream: bool = True
    ) -> None:
        self._connection, self._left = connection, tokens
        self._stream = stream
        self._tokens, self._prompt = tokens, prompt
        self._chunk = _word(chat)
        self._chat = chat
        self.cut_after: int | None = None

    @property
    def alive(self) -> bool:
        return self._connection.alive or self._connection.server.settings.ignore_disconnects

    @property
    def held_tokens(self) -> int:
        """Tokens in the KV memory."""
        return self._prompt + self._tokens - self._left

    def token(self) -> bool:
        """Make one token; True after the last."""
        self._left -= 1
        if self.cut_after is not None and self._tokens - self._left > self.cut_after:
            self._connection.server.live.discard(self)
            self._connection.cut()
            return True
        if self._left > 0:
            if self._stream and self._connection.alive:
                self._connection.write_chunk(self._chunk)
            return False
        self._connection.server.live.discard(self)
        self._count()
        if not self._connection.alive:
            return True
        if self._stream:
            self._connection.finish(self._chunk + self._end())
        else:
            self._connection.whole(self._chat, self._tokens, self._prompt)
        return True

    def abandoned(self) -> None:
        """The client is gone."""
        server = self._connection.server
        if server.settings.leak_kv and self in server.live:
            server.leaked_tokens += self.held_tokens
        if not server.settings.ignore_disconnects:
            server.live.discard(self)

    def all_at_once(self, *, stream: bool) -> None:
        self._count()
        if stream:
            self._connection.finish(self._chunk * self._tokens + self._end())
        else:
            self._connection.whole(self._chat, self._tokens, self._prompt)

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
        self._generation: _Generation | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self.alive = transport, True

    def connection_lost(self, exc: Exception | None) -> None:
        self.alive = False
        if self._generation is not None:
            self._generation.abandoned()

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
            longest = self.server.settings.max_context
            model = {"id": MODEL, "object": "model", "max_model_len": longest}
            self._reply(200, json.dumps({"object": "list", "data": [model]}).encode())
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
            if tokens < 1:
                raise ValueError("max_tokens")
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            self._refuse(400, "the body needs a prompt or messages, and max_tokens of 1 or more")
            return
        if prompt + tokens > settings.max_context and not self._long_accepted():
            return
        draw = server.rng.random() if settings.refuse_frac + settings.cut_frac else 1.0
        if draw < settings.refuse_frac:
            self._refuse(503, "the server is overloaded (injected)")
            return
        stream = bool(asked.get("stream"))
        generation = _Generation(self, chat, tokens, prompt, stream=stream)
        if draw < settings.refuse_frac + settings.cut_frac:
            generation.cut_after = tokens // 2
        self._begin(generation, stream=stream)

    def _long_accepted(self) -> bool:
        """Whether a request beyond the context is answered all the same; else it was refused."""
        settings = self.server.settings
        if settings.long_prompt == "refuse":
            limit = settings.max_context
            self._refuse(400, f"This model's maximum context length is {limit} tokens.")
        elif settings.long_prompt == "fail":
            self._refuse(500, "")
        return settings.long_prompt == "cut"

    def _begin(self, generation: _Generation, *, stream: bool) -> None:
        server, settings = self.server, self.server.settings
        if settings.slots and not server.submit(generation):
            self._refuse(settings.overload_status, "too many requests are waiting")
            return
        self._pending = _STREAM_HEAD
        at_once = settings.ttft_s <= 0 and settings.itl_s <= 0 and generation.cut_after is None
        hangs = bool(settings.hang_frac) and server.rng.random() < settings.hang_frac
        if not settings.slots and at_once and not hangs:
            generation.all_at_once(stream=stream)
            return
        self._generation = generation
        server.live.add(generation)
        if settings.slots or hangs:
            return
        loop = asyncio.get_running_loop()
        _token_by_token(generation, loop.time() + settings.ttft_s, settings.itl_s)

    # --- writing -------------------------------------------------------------------------------

    def whole(self, chat: bool, tokens: int, prompt: int) -> None:
        """The answer to a request that asked for no stream."""
        usage = {"prompt_tokens": prompt, "completion_tokens": tokens}
        choice = _choice(chat, " word" * tokens, "length", whole=True)
        self._reply(200, json.dumps(choice | {"usage": usage}).encode())

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
