from __future__ import annotations

import json

import pytest

from gpuagent.load.stream import read_answer


def event(text: str = "", *, reason=None, usage=None, ids=None, chat=False) -> bytes:
    content = {"delta": {"content": text}} if chat else {"text": text}
    choice = {"index": 0, **content, "finish_reason": reason}
    if ids is not None:
        choice["token_ids"] = ids
    body = {"choices": [choice]} | ({"usage": usage} if usage else {})
    return b"data: " + json.dumps(body).encode() + b"\n\n"


END = event(reason="stop") + b"data: [DONE]\n\n"


def test_a_token_arrives_with_the_bytes_that_complete_its_event() -> None:
    first = event("a")
    answer = read_answer(200, [(1.0, first[:9]), (2.0, first[9:]), (3.0, event("b") + END)])
    assert answer.token_s == (2.0, 3.0)
    assert answer.counted == "chunks"
    assert answer.error is None


def test_the_role_chunk_of_a_chat_is_no_token() -> None:
    answer = read_answer(
        200, [(1.0, event("", chat=True)), (2.0, event("a", chat=True)), (3.0, END)]
    )
    assert answer.token_s == (2.0,)


def test_usage_counts_more_tokens_than_chunks_came() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 4}
    pieces = [(1.0, event("a")), (1.1, event("b")), (3.0, event("c")), (3.0, event(usage=usage))]
    answer = read_answer(200, [*pieces, (3.0, END)])
    assert answer.token_s == (1.0, 1.1, 3.0, 3.0)
    assert (answer.counted, answer.input_tokens, answer.output_tokens) == ("spread", 9, 4)


def test_token_ids_say_how_many_tokens_a_chunk_has() -> None:
    answer = read_answer(200, [(1.0, event("ab", ids=[1, 2])), (2.0, event("c", ids=[3]) + END)])
    assert answer.token_s == (1.0, 1.0, 2.0)
    assert answer.counted == "ids"


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ([(1.0, event("a"))], "without a finish reason"),
        ([(1.0, b"data: {broken\n\n")], "not JSON"),
        ([(1.0, b'data: {"error": {"message": "died"}}\n\n')], "died"),
        ([(1.0, b"data: 3\n\n")], "no object"),
    ],
)
def test_a_broken_stream_is_an_error(pieces, message: str) -> None:
    assert message in (read_answer(200, pieces).error or "")


def test_a_refusal_carries_the_servers_words() -> None:
    assert read_answer(429, [(1.0, b'{"error": {"message": "busy"}}')]).error == "HTTP 429: busy"
    assert read_answer(502, [(1.0, b"<html>")]).error == "HTTP 502: <html>"
