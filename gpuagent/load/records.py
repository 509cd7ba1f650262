"""Finished requests to the wire's request records, for whichever client sent them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuagent.load.stream import Answer, read_answer
from gpuagent.wire.measure import RequestRecord


@dataclass(frozen=True, slots=True)
class Finished:
    """One request as it was on the wire; all times in the clock of `pieces`.

    status: 0 where no answer began. input_tokens, output_tokens: as planned.
    """

    intended: float
    sent: float
    status: int
    pieces: Sequence[tuple[float, bytes]]
    error: str | None
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class ReadRecords:
    """Records in the order given; the other fields as in `driver.LoadRun`."""

    records: tuple[RequestRecord, ...]
    counted: tuple[str, ...]
    server_output_tokens: int | None
    unexpected_lengths: int


def read_records(finished: Sequence[Finished], began: float) -> ReadRecords:
    """Read every answer; `began` is 0 in the records' time."""
    answers = [read_answer(each.status, each.pieces) if each.status else None for each in finished]
    made = [_record(each, answer, began) for each, answer in zip(finished, answers, strict=True)]
    good = [a for a in answers if a is not None and a.error is None]
    usages = [a.output_tokens for a in good]
    pairs = zip(finished, made, strict=True)
    return ReadRecords(
        records=tuple(made),
        counted=tuple(sorted({a.counted for a in good})),
        server_output_tokens=None if None in usages else sum(u for u in usages if u),
        unexpected_lengths=sum(
            r.error is None and len(r.token_s) != each.output_tokens for each, r in pairs
        ),
    )


def _record(each: Finished, answer: Answer | None, began: float) -> RequestRecord:
    token_s: tuple[float, ...] = ()
    error, input_tokens = each.error, each.input_tokens
    if answer is not None:
        token_s = tuple(max(0.0, at - began) for at in answer.token_s)
        error = error or answer.error
        input_tokens = answer.input_tokens or input_tokens
        if error is None and not token_s:
            error = "no token arrived"
    return RequestRecord(
        intended_s=max(0.0, each.intended - began),
        sent_s=max(0.0, each.sent - began),
        token_s=token_s,
        input_tokens=max(1, input_tokens),
        output_tokens=len(token_s),
        error=error,
    )
