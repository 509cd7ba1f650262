"""Single requests to an OpenAI-compatible server, good and bad, for the robustness test."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from dataclasses import dataclass
from time import perf_counter
from types import TracebackType
from typing import Any, Self

import httpx

from gpuagent.load.client import Endpoint
from gpuagent.load.plan import PATHS, Api, Asked, TextPrompts
from gpuagent.load.server_state import ServerState, read_state
from gpuagent.load.stream import read_answer

_PROMPT_TOKENS = 32
_GAP_TOKENS = 16
_STATE_TIMEOUT_S = 5.0
_SHOWN_BYTES = 20_000
_FIRST = asyncio.FIRST_COMPLETED
REFUSED = (429, 503)


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer. status: 0 where there was none, and `error` says why; an error with status 200
    came inside the stream. message: the server's own words about what was wrong."""

    status: int
    took_s: float
    message: str = ""
    error: str | None = None
    retry_after: bool = False

    @property
    def told(self) -> str:
        """Status and words, for a sentence."""
        if self.status == 0:
            return self.error or "no answer"
        return f"{self.status} ({self.message[:200]})" if self.message else f"{self.status}"


@dataclass(frozen=True, slots=True)
class Left:
    """Requests that were left. seen_open: how many /metrics showed meanwhile; None: not told.
    error: why there was nothing to leave; refused: the server had no room for that many."""

    seen_open: int | None
    error: str | None = None
    refused: bool = False


class Probe:
    """`async with` it. Each request takes another piece of `prompts`."""

    def __init__(
        self,
        url: str,
        model: str,
        *,
        api: Api,
        prompts: TextPrompts,
        key: str | None = None,
        patience_s: float = 60.0,
        ignore_eos: bool = True,
    ) -> None:
        self.url, self.model = Endpoint.parse(url, "").url, model
        self._path = PATHS[api]
        self._asked = Asked(model, api, ignore_eos=ignore_eos)
        self._prompts = prompts
        self._rng = random.Random(0)  # noqa: S311  which words are sent
        self._patience_s = patience_s
        self._headers = {"Content-Type": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._client: httpx.AsyncClient

    async def __aenter__(self) -> Self:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        self._client = httpx.AsyncClient(
            headers=self._headers, timeout=self._patience_s, limits=limits, trust_env=False
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._client.aclose()

    async def get(self, path: str, *, timeout_s: float | None = None) -> Reply:
        """timeout_s: instead of the probe's patience."""
        return await self._within(self._client.get(self.url + path), timeout_s)

    async def state(self) -> ServerState:
        """What /metrics says; all None where it is absent."""
        try:
            reply = await self._client.get(f"{self.url}/metrics", timeout=_STATE_TIMEOUT_S)
        except httpx.HTTPError:
            return ServerState()
        return read_state(reply.text) if reply.status_code == 200 else ServerState()

    async def context_tokens(self) -> int | None:
        """Longest prompt plus answer, as vLLM and SGLang tell it in their model list."""
        try:
            reply = await self._client.get(f"{self.url}/v1/models", timeout=_STATE_TIMEOUT_S)
            rows = reply.json()["data"]
            mine = [row for row in rows if row.get("id") == self.model] or rows
            longest = mine[0].get("max_model_len")
        except (httpx.HTTPError, ValueError, KeyError, IndexError, TypeError, AttributeError):
            return None
        return longest if isinstance(longest, int) and longest > 0 else None

    async def ask(self, tokens: int, *, prompt: str | None = None) -> Reply:
        """One whole answer of `tokens` tokens."""
        return await self._post(self._body(tokens, prompt=prompt, stream=False))

    async def token_gap_s(self) -> float:
        """Mean time between the tokens of one answer; 0 where they come at once."""
        arrivals: list[float] = []
        try:
            async with self._stream(_GAP_TOKENS) as reply:
                async for line in reply.aiter_lines():
                    if line.startswith("data:") and "[DONE]" not in line:
                        arrivals.append(perf_counter())
        except httpx.HTTPError:
            return 0.0
        gaps = [after - before for before, after in itertools.pairwise(arrivals)]
        return sum(gaps) / len(gaps) if gaps else 0.0

    async def first_bytes(self, tokens: int) -> Reply:
        """The beginning of a streamed answer, which is then left."""
        began = perf_counter()
        try:
            async with asyncio.timeout(self._patience_s), self._stream(tokens) as reply:
                if reply.status_code != 200:
                    return _reply(reply.status_code, await reply.aread(), began, reply.headers)
                async for line in reply.aiter_lines():
                    if line.startswith("data:"):
                        return Reply(200, perf_counter() - began, error=_stream_error(line))
        except (httpx.HTTPError, TimeoutError) as error:
            return self._none(error, began)
        return Reply(200, perf_counter() - began, error="the stream ended without a token")

    async def malformed(self) -> dict[str, Reply]:
        """Bodies that no server may accept, and what each got."""
        no_number = json.loads(self._body(8, prompt=None, stream=False)) | {"max_tokens": "many"}
        bodies = {
            "broken JSON": b'{"model": ',
            "max_tokens of words": json.dumps(no_number).encode(),
            "no prompt": json.dumps({"model": self.model, "max_tokens": 8}).encode(),
        }
        return {what: await self._post(body) for what, body in bodies.items()}

    async def leave(self, tokens: int, *, count: int, stream: bool, after_s: float) -> Left:
        """Begin `count` answers of `tokens` tokens and close their connections `after_s` after
        the first tokens; after the request, where they are no streams."""
        begun: list[asyncio.Future[None]] = [
            asyncio.get_running_loop().create_future() for _ in range(count)
        ]
        tasks = [asyncio.create_task(self._begin(tokens, one, stream=stream)) for one in begun]
        try:
            settled = [
                asyncio.ensure_future(_either(*pair)) for pair in zip(begun, tasks, strict=True)
            ]
            first: list[asyncio.Future[Any]] = [
                *begun,
                asyncio.gather(*tasks, return_exceptions=True),
            ]
            await asyncio.wait(first, timeout=self._patience_s, return_when=_FIRST)
            # Those that the server lets wait longer are left while they wait.
            await asyncio.wait(settled, timeout=after_s)
            await asyncio.sleep(after_s)
            seen = (await self.state()).open_requests
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        failed = [one for one in ended if isinstance(one, httpx.HTTPError | _RefusedError)]
        refused = [one for one in failed if getattr(one, "for_want_of_room", False)]
        broken = [
            one
            for one in failed
            if one not in refused and not isinstance(one, httpx.TimeoutException)
        ]
        if broken:
            return Left(seen, str(broken[0]) or type(broken[0]).__name__)
        if any(one.done() for one in begun):
            return Left(seen)
        if len(refused) < count:
            return Left(None, f"no first token within {self._patience_s:g} s")
        return Left(seen, str(refused[0]), refused=True)

    async def _begin(self, tokens: int, begun: asyncio.Future[None], *, stream: bool) -> None:
        if not stream:
            begun.set_result(None)
            body = self._body(tokens, prompt=None, stream=False)
            await self._client.post(self.url + self._path, content=body)
            return
        async with self._stream(tokens) as reply:
            if reply.status_code != 200:
                raise _RefusedError(reply.status_code)
            async for line in reply.aiter_lines():
                if line.startswith("data:") and not begun.done():
                    begun.set_result(None)

    def _stream(self, tokens: int) -> Any:
        body = self._body(tokens, prompt=None, stream=True)
        return self._client.stream("POST", self.url + self._path, content=body)

    def _body(self, tokens: int, *, prompt: str | None, stream: bool) -> bytes:
        text = prompt or self._prompts.take(_PROMPT_TOKENS, self._rng)
        body = self._asked.body(text, tokens)
        if stream:
            return body
        asked = json.loads(body)
        asked["stream"] = False
        asked.pop("stream_options", None)
        return json.dumps(asked).encode()

    async def _post(self, body: bytes) -> Reply:
        return await self._within(self._client.post(self.url + self._path, content=body))

    async def _within(self, call: Any, timeout_s: float | None = None) -> Reply:
        began, patience_s = perf_counter(), timeout_s or self._patience_s
        try:
            async with asyncio.timeout(patience_s):
                reply = await call
        except (httpx.HTTPError, TimeoutError) as error:
            return self._none(error, began, patience_s)
        return _reply(reply.status_code, reply.content, began, reply.headers)

    def _none(self, error: Exception, began: float, patience_s: float | None = None) -> Reply:
        took_s = perf_counter() - began
        if isinstance(error, TimeoutError | httpx.TimeoutException):
            waited_s = patience_s or self._patience_s
            return Reply(0, took_s, error=f"nothing came within {waited_s:g} s")
        return Reply(0, took_s, error=f"{error or type(error).__name__}"[:300])


class _RefusedError(Exception):
    """A request that was to be left did not begin."""

    def __init__(self, status: int) -> None:
        super().__init__(f"a long request was answered {status}")
        self.for_want_of_room = status in REFUSED


async def _either(begun: asyncio.Future[None], task: asyncio.Task[None]) -> None:
    """Until a request has begun, or is over without having."""
    await asyncio.wait([begun, task], return_when=_FIRST)


def _reply(status: int, content: bytes, began: float, headers: httpx.Headers) -> Reply:
    message = ""
    if status != 200:
        told = read_answer(status, [(0.0, content[:_SHOWN_BYTES])]).error or ""
        message = told.removeprefix(f"HTTP {status}").removeprefix(": ")
    return Reply(status, perf_counter() - began, message, retry_after="retry-after" in headers)


def _stream_error(line: str) -> str | None:
    """What an event says went wrong, or None."""
    try:
        event = json.loads(line[5:])
    except ValueError:
        return None
    error = event.get("error") if isinstance(event, dict) else None
    return str(error)[:300] if error else None
