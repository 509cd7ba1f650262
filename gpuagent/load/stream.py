"""What arrived, read after the run: server-sent events to token arrivals, usage and errors.

A token arrives when the bytes that complete its event arrive. TTFT counts from the first non-empty
content: chat streams open with a chunk that only names the role.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """token_s: arrival of each output token, in the clock of the pieces.

    input_tokens, output_tokens: the server's own count; None where it sends no usage.
    counted: how token_s was made: `ids` (the server sent token ids), `chunks` (one token each) or
    `spread` (usage counted more tokens than chunks came; the surplus arrived with the chunks after
    the longest gaps). text_chunks: pieces of text that arrived.
    """

    token_s: tuple[float, ...]
    input_tokens: int | None
    output_tokens: int | None
    counted: str
    text_chunks: int
    error: str | None


def read_answer(status: int, pieces: Sequence[tuple[float, bytes]]) -> Answer:
    """The answer to one request. A status other than 200 is an error with the server's words."""
    if status != 200:
        body = b"".join(data for _, data in pieces).decode("utf-8", "replace")
        return Answer((), None, None, "chunks", 0, _http_error(status, body))
    stamps: list[float] = []
    ids: list[int] = []
    usage: dict[str, Any] = {}
    error: str | None = None
    finished = False
    for at_s, event in _events(pieces):
        if event == "[DONE]":
            finished = True
            continue
        try:
            chunk = json.loads(event)
        except ValueError:
            error = error or f"the stream holds something that is not JSON: {event[:200]}"
            continue
        if not isinstance(chunk, dict):
            error = error or f"the stream holds something that is no object: {event[:200]}"
            continue
        if chunk.get("error"):
            error = error or _message_of(chunk["error"])
        usage = chunk.get("usage") or usage
        for choice in chunk.get("choices") or ():
            count = len(choice.get("token_ids") or ())
            if _text_of(choice) or count:
                stamps.append(at_s)
                ids.append(count)
            finished = finished or choice.get("finish_reason") is not None
    if error is None and not finished:
        error = "the stream ended without a finish reason"
    asked = usage.get("completion_tokens")
    output_tokens = asked if isinstance(asked, int) else None
    prompt = usage.get("prompt_tokens")
    token_s, counted = _tokens(stamps, ids, output_tokens)
    return Answer(
        token_s=token_s,
        input_tokens=prompt if isinstance(prompt, int) else None,
        output_tokens=output_tokens,
        counted=counted,
        text_chunks=len(stamps),
        error=error,
    )


def _events(pieces: Iterable[tuple[float, bytes]]) -> Iterator[tuple[float, str]]:
    """(arrival, payload) of each data line."""
    rest = b""
    at_s = 0.0
    for at_s, data in pieces:
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield at_s, line[5:].strip().decode("utf-8", "replace")
    if rest.startswith(b"data:"):
        yield at_s, rest[5:].strip().decode("utf-8", "replace")


def answer_text(pieces: Sequence[tuple[float, bytes]]) -> str:
    """What a streamed answer says; empty where it says nothing that can be read."""
    said: list[str] = []
    for _, event in _events(pieces):
        try:
            choices = json.loads(event).get("choices") or ()
            said += [_text_of(choice) for choice in choices]
        except (ValueError, AttributeError, TypeError):
            # `[DONE]`, or what `read_answer` reports as an error of the request.
            continue
    return "".join(said)


def _text_of(choice: dict[str, Any]) -> str:
    delta = choice.get("delta") or {}
    reasoning = delta.get("reasoning_content") or delta.get("reasoning")
    return choice.get("text") or delta.get("content") or reasoning or ""


def _tokens(
    stamps: list[float], ids: list[int], wanted: int | None
) -> tuple[tuple[float, ...], str]:
    if stamps and sum(ids) and (wanted is None or sum(ids) == wanted):
        repeated = [at_s for at_s, count in zip(stamps, ids, strict=True) for _ in range(count)]
        return tuple(repeated), "ids"
    surplus = (wanted or 0) - len(stamps)
    if surplus <= 0 or not stamps:
        return tuple(stamps), "chunks"
    gaps = [0.0, *(after - before for before, after in itertools.pairwise(stamps))]
    order = sorted(range(len(stamps)), key=lambda index: -gaps[index])
    extra = [0] * len(stamps)
    for turn in range(surplus):
        extra[order[turn % len(order)]] += 1
    return tuple(
        s for s, more in zip(stamps, extra, strict=True) for _ in range(1 + more)
    ), "spread"


def _http_error(status: int, body: str) -> str:
    try:
        parsed = json.loads(body)
        told = parsed.get("error") or parsed.get("message") or parsed.get("detail") or ""
        text = _message_of(told)
    except (ValueError, AttributeError):
        text = body.strip()
    return f"HTTP {status}: {text[:500]}" if text else f"HTTP {status}"


def _message_of(error: Any) -> str:
    if isinstance(error, dict):
        return str(error.get("message") or error)[:500]
    return str(error)[:500]
