"""Sends planned requests to an engine in this process: first come, first served, one at a time.

Open loop: arrival times are fixed beforehand and kept by a thread of their own, so a slow server
does not slow its own load down, and time to first token counts from the intended send. Closed
loop: the next request is sent when the last one is done, and no claim at a rate follows from it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from gpuagent.engines.base import Engine, Tick
from gpuagent.experiments.base import Clock
from gpuagent.experiments.requests import PlannedRequest
from gpuagent.wire.measure import RequestRecord

_POLL_S = 0.2


class Feed(Protocol):
    """Yields (index, intended, sent) in clock time, in the order of arrival."""

    def arrivals(
        self, planned: Sequence[PlannedRequest], began: float, clock: Clock, tick: Tick
    ) -> Iterator[tuple[int, float, float]]: ...


class ClosedLoop:
    """The next request is sent as soon as the last one has been answered."""

    def arrivals(
        self, planned: Sequence[PlannedRequest], began: float, clock: Clock, tick: Tick
    ) -> Iterator[tuple[int, float, float]]:
        for index in range(len(planned)):
            tick()
            now = clock.now()
            yield index, now, now


class OpenLoop:
    """A thread sends at the planned times whether or not the server keeps up."""

    def arrivals(
        self, planned: Sequence[PlannedRequest], began: float, clock: Clock, tick: Tick
    ) -> Iterator[tuple[int, float, float]]:
        sent: queue.SimpleQueue[tuple[int, float, float]] = queue.SimpleQueue()
        stop = threading.Event()

        def send_all() -> None:
            for index, request in enumerate(planned):
                intended = began + (request.intended_s or 0.0)
                while clock.now() < intended:
                    if stop.is_set():
                        return
                    clock.sleep_until(intended)
                sent.put((index, intended, clock.now()))

        sender = threading.Thread(target=send_all, name="arrivals", daemon=True)
        sender.start()
        try:
            for _ in planned:
                yield _next(sent, tick)
        finally:
            stop.set()


class SimulatedOpenLoop:
    """Open loop on a clock that only moves when it is told to: for tests."""

    def arrivals(
        self, planned: Sequence[PlannedRequest], began: float, clock: Clock, tick: Tick
    ) -> Iterator[tuple[int, float, float]]:
        for index, request in enumerate(planned):
            intended = began + (request.intended_s or 0.0)
            clock.sleep_until(intended)
            yield index, intended, intended


def feed_for(planned: Sequence[PlannedRequest]) -> Feed:
    """Open loop when the requests have arrival times."""
    return OpenLoop() if planned and planned[0].intended_s is not None else ClosedLoop()


def serve(
    engine: Engine,
    planned: Sequence[PlannedRequest],
    *,
    use_cache: bool,
    clock: Clock,
    tick: Tick,
    feed: Feed | None = None,
    until: float | None = None,
    on_done: Callable[[int], None] = lambda done: None,
) -> tuple[tuple[RequestRecord, ...], float]:
    """(records, seconds of the window). Stops early once the clock passes `until`.

    Each output token is stamped when it is on the host. All lengths are generated in full: an
    end-of-text token does not end a request, so that every run does the same work.
    """
    began = clock.now()
    records: list[RequestRecord] = []
    source = feed or feed_for(planned)
    for index, intended, sent in source.arrivals(planned, began, clock, tick):
        if until is not None and clock.now() > until and records:
            break
        request = planned[index]
        stamps: list[float] = []
        batch = engine.prefill([request.prompt], use_cache=use_cache)
        stamps.append(clock.now() - began)
        for _ in range(request.output_tokens - 1):
            tick()
            engine.step(batch)
            stamps.append(clock.now() - began)
        engine.release(batch)
        records.append(
            RequestRecord(
                intended_s=max(0.0, intended - began),
                sent_s=max(0.0, sent - began),
                token_s=tuple(stamps),
                input_tokens=len(request.prompt),
                output_tokens=len(stamps),
            )
        )
        on_done(len(records))
    return tuple(records), clock.now() - began


def _next(
    sent: queue.SimpleQueue[tuple[int, float, float]], tick: Tick
) -> tuple[int, float, float]:
    while True:
        tick()
        try:
            return sent.get(timeout=_POLL_S)
        except queue.Empty:
            continue
