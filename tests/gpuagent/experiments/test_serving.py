from __future__ import annotations

import threading

import pytest

from gpuagent.errors import CancelledByServer
from gpuagent.experiments.base import SystemClock
from gpuagent.experiments.requests import PlannedRequest
from gpuagent.experiments.serving import OpenLoop, SimulatedOpenLoop, serve
from tests.gpuagent.fakes import FakeClock, FakeEngine


def request(at_s: float | None, *, inputs: int = 10, outputs: int = 3) -> PlannedRequest:
    return PlannedRequest(at_s, tuple(range(inputs)), outputs)


def test_an_open_loop_counts_the_wait_for_a_busy_server_from_the_intended_send() -> None:
    # One request takes 0.01 x 10 + 2 x 0.05 = 0.2 s; the second arrives while it runs.
    clock = FakeClock()
    engine = FakeEngine(clock, prefill_s_per_token=0.01, step_s=0.05)
    records, window_s = serve(
        engine,
        [request(1.0), request(1.1)],
        use_cache=True,
        clock=clock,
        tick=lambda: None,
        feed=SimulatedOpenLoop(),
    )
    first, second = records
    assert first.token_s == pytest.approx((1.1, 1.15, 1.2))
    assert second.intended_s == pytest.approx(1.1)
    assert second.token_s == pytest.approx((1.3, 1.35, 1.4))
    assert window_s == pytest.approx(1.4)


def test_an_open_loop_leaves_an_idle_server_idle_until_the_next_arrival() -> None:
    clock = FakeClock()
    engine = FakeEngine(clock, prefill_s_per_token=0.001, step_s=0.001)
    records, _ = serve(
        engine,
        [request(0.5), request(9.0)],
        use_cache=True,
        clock=clock,
        tick=lambda: None,
        feed=SimulatedOpenLoop(),
    )
    assert records[1].token_s[0] == pytest.approx(9.01)


def test_a_closed_loop_sends_when_the_last_answer_is_there() -> None:
    clock = FakeClock()
    engine = FakeEngine(clock, prefill_s_per_token=0.01, step_s=0.05)
    records, _ = serve(
        engine, [request(None), request(None)], use_cache=True, clock=clock, tick=lambda: None
    )
    assert records[1].intended_s == pytest.approx(records[0].token_s[-1])
    assert records[1].sent_s == records[1].intended_s


def test_without_a_cache_every_step_pays_for_the_whole_context() -> None:
    clock = FakeClock()
    engine = FakeEngine(clock, prefill_s_per_token=0.01, step_s=0.001)
    (record,), _ = serve(engine, [request(None)], use_cache=False, clock=clock, tick=lambda: None)
    gaps = [b - a for a, b in zip(record.token_s, record.token_s[1:], strict=False)]
    assert gaps == pytest.approx([0.11, 0.12])


def test_all_planned_output_tokens_are_generated() -> None:
    clock = FakeClock()
    records, _ = serve(
        FakeEngine(clock),
        [request(None, outputs=1), request(None, outputs=7)],
        use_cache=True,
        clock=clock,
        tick=lambda: None,
    )
    assert [r.output_tokens for r in records] == [1, 7]
    assert [len(r.token_s) for r in records] == [1, 7]


def test_it_stops_at_the_time_limit_with_what_it_has() -> None:
    clock = FakeClock()
    engine = FakeEngine(clock, prefill_s_per_token=0.1, step_s=0.0)
    records, _ = serve(
        engine,
        [request(None) for _ in range(10)],
        use_cache=True,
        clock=clock,
        tick=lambda: None,
        until=clock.now() + 2.5,
    )
    assert len(records) == 3


def test_a_cancel_is_seen_between_two_steps() -> None:
    clock = FakeClock()
    engine = FakeEngine(clock)
    calls = 0

    def tick() -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise CancelledByServer

    with pytest.raises(CancelledByServer):
        serve(engine, [request(None, outputs=50)], use_cache=True, clock=clock, tick=tick)


def test_the_sending_thread_keeps_the_planned_times_on_the_real_clock() -> None:
    planned = [request(0.02 * (index + 1)) for index in range(5)]
    clock = SystemClock()
    began = clock.now()
    arrivals = list(OpenLoop().arrivals(planned, began, clock, lambda: None))
    assert [index for index, _, _ in arrivals] == [0, 1, 2, 3, 4]
    for planned_request, (_, intended, sent) in zip(planned, arrivals, strict=True):
        assert intended - began == pytest.approx(planned_request.intended_s)
        assert sent >= intended
        # Generous: the machine may be busy. The validity checks judge the lag of a real run.
        assert sent - intended < 0.5


def test_the_sending_thread_ends_when_the_server_gives_up() -> None:
    feed = OpenLoop().arrivals([request(0.0), request(60.0)], 0.0, SystemClock(), lambda: None)
    next(feed)
    feed.close()
    for thread in threading.enumerate():
        if thread.name == "arrivals":
            thread.join(timeout=2)
            assert not thread.is_alive()
