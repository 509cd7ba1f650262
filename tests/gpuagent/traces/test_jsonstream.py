"""The streaming reader gives what json.loads gives, however the text is cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuagent.traces.errors import TraceError
from gpuagent.traces.jsonstream import JsonStream
from gpuagent.traces.limits import Limits

LIMITS = Limits()
KEEP = frozenset({"meta", "other"})


def cut(text: str, size: int) -> Iterator[str]:
    return (text[i : i + size] for i in range(0, len(text), size))


def read(text: str, size: int, limits: Limits = LIMITS) -> tuple[list[Any], dict[str, Any]]:
    stream = JsonStream(cut(text, size), limits, KEEP)
    events = [event for batch in stream.batches() for event in batch]
    return events, stream.metadata


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(st.lists(VALUES, max_size=6), VALUES, st.integers(1, 40), st.sampled_from([None, 0, 2]))
def test_any_document_reads_the_same_at_any_chunk_size(
    events: list[Any], meta: Any, size: int, indent: int | None
) -> None:
    document = {"meta": meta, "traceEvents": events, "dropped": events, "other": meta}
    text = json.dumps(document, indent=indent)
    found, metadata = read(text, size)
    assert found == events
    assert metadata == {"meta": meta, "other": meta}
    assert read(json.dumps(events, indent=indent), size)[0] == events


def outcome(text: str, size: int) -> str:
    """`read`, or the code of the refusal; any other exception is a bug and escapes."""
    try:
        read(text, size)
    except TraceError as error:
        return error.code
    return "read"


OUTCOMES = {"read", "malformed", "truncated", "too_large"}


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet='{}[]",:\\0123456789.eE-ntrufalsN \n', max_size=60), st.integers(1, 9))
def test_any_text_is_read_or_refused(text: str, size: int) -> None:
    assert outcome(text, size) in OUTCOMES


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_damaged_document_is_read_or_refused(data: st.DataObject) -> None:
    text = json.dumps({"meta": {"a": "x\\y"}, "traceEvents": [{"name": 'k"', "ts": 1.5}] * 4})
    at = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:at] + data.draw(st.text(max_size=3)) + text[at + data.draw(st.integers(0, 3)) :]
    assert outcome(damaged, data.draw(st.integers(1, 50))) in OUTCOMES


@pytest.mark.parametrize("text", ['{"traceEvents": [{"a": 1}, {"b"', '{"traceEvents": [', "{"])
def test_a_cut_file_is_called_truncated(text: str) -> None:
    with pytest.raises(TraceError) as caught:
        read(text, 7)
    assert caught.value.code == "truncated"


def test_a_bare_list_may_lack_its_end() -> None:
    stream = JsonStream(cut('[{"a": 1}, {"b": 2},\n', 5), LIMITS)
    assert [e for batch in stream.batches() for e in batch] == [{"a": 1}, {"b": 2}]
    assert stream.open_ended


def test_nan_infinity_and_duplicate_keys_are_accepted() -> None:
    events, _ = read('{"traceEvents": [{"ts": NaN, "ts": Infinity, "ts": 3}]}', 1000)
    assert events == [{"ts": 3}]


@pytest.mark.parametrize("depth", [2_000, 1_000_000])
def test_deep_nesting_is_refused(depth: int) -> None:
    for text in ('{"traceEvents": [' + "[" * depth, '{"meta": ' + '{"a":' * depth):
        with pytest.raises(TraceError) as caught:
            read(text, 65_536)
        assert caught.value.code in ("malformed", "truncated")


def test_a_skipped_value_may_nest_without_end() -> None:
    text = '{"dropped": ' + "[" * 100_000 + "]" * 100_000 + ', "traceEvents": [1]}'
    assert read(text, 4096)[0] == [1]


def test_a_huge_string_is_refused_at_the_limit() -> None:
    small = Limits(event_bytes=1 << 16)
    for text in (
        '{"traceEvents": ["' + "a" * 1_000_000,
        '{"dropped": "' + "a" * 1_000_000 + '", "traceEvents": []}',
        '{"' + "k" * 1_000_000,
    ):
        with pytest.raises(TraceError) as caught:
            read(text, 8192, small)
        assert caught.value.code == "too_large"


def test_large_metadata_is_stepped_over() -> None:
    text = json.dumps({"meta": ["x" * 100] * 30_000, "traceEvents": [1, 2]})
    events, metadata = read(text, 65_536)
    assert events == [1, 2]
    assert metadata == {}


def test_a_batch_can_be_decoded_again_with_exact_numbers() -> None:
    text = '{"traceEvents": [{"ts": 1709171155487891.123}, {"ts": 1709171155487891.456}]}'
    stream = JsonStream(cut(text, 1000), LIMITS)
    batches = []
    for batch in stream.batches():
        batches.append(stream.again(Decimal) if stream.float_parser is None else batch)
    stamps = [event["ts"] for batch in batches for event in batch]
    assert stamps == [Decimal("1709171155487891.123"), Decimal("1709171155487891.456")]
