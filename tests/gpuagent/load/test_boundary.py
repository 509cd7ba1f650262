from __future__ import annotations

import json
from collections import deque

import pytest

from gpuagent.__main__ import main
from gpuagent.load.arrivals import arrival_times
from gpuagent.load.boundary import (
    Boundary,
    Point,
    find_boundary,
    make_point,
    pool_adjacent_violators,
)
from gpuagent.load.mock import MockSettings
from gpuagent.load.report import read_target
from gpuagent.wire.measure import RequestRecord
from tests.gpuagent.load.mocks import running

MACHINE = MockSettings(slots=16, step_s=0.04)
TOKENS = 16
KNEE = MACHINE.knee_per_s(TOKENS)  # 25 requests a second
TARGET = [read_target("ttft_s:p90<=0.5")]


def serve(times: list[float], settings: MockSettings = MACHINE) -> list[RequestRecord]:
    """The mock's scheduler in virtual time."""
    waiting, running, tokens = deque(enumerate(times)), [], [[] for _ in times]
    now = 0.0
    while waiting or running:
        if not running:
            now = max(now, waiting[0][1])
        while waiting and waiting[0][1] <= now and len(running) < settings.slots:
            running.append(waiting.popleft()[0])
        now += settings.step_s + settings.per_request_s * len(running)
        for index in running:
            tokens[index].append(now)
        running = [index for index in running if len(tokens[index]) < TOKENS]
    return [
        RequestRecord(
            intended_s=at_s, sent_s=at_s, token_s=tuple(t), input_tokens=8, output_tokens=TOKENS
        )
        for at_s, t in zip(times, tokens, strict=True)
    ]


def search(process: str, seed: int, *, window_s: float = 65.0, start: float = 1.0) -> Boundary:
    def measure(rate_per_s: float, index: int) -> Point:
        count = max(1, round(rate_per_s * window_s))
        times = arrival_times(process, rate_per_s, count, seed=seed + 7919 * index)
        return make_point(rate_per_s, serve(times), TARGET)

    return find_boundary(measure, start_per_s=start)


@pytest.mark.parametrize("start", [0.3, 7.0, 90.0])
def test_a_known_knee_is_found_within_5_percent_in_8_points(start: float) -> None:
    found = search("constant", 1, start=start)
    assert len(found.points) <= 8
    assert found.rate_per_s == pytest.approx(KNEE, rel=0.05)
    assert found.low <= found.rate_per_s <= found.high
    assert "bracketed" in found.reason


def test_random_arrivals_cross_the_limit_a_little_below_the_knee() -> None:
    truth = 22.9  # where the long-run p90 of the simulated TTFT is 0.5 s: checked here
    long = serve(arrival_times("poisson", truth, 20_000, seed=0))
    waits = sorted(r.token_s[0] - r.intended_s for r in long)
    assert waits[int(0.9 * len(waits))] == pytest.approx(0.5, rel=0.25)
    found = search("poisson", 0, start=7.0)
    assert len(found.points) <= 8
    assert found.rate_per_s == pytest.approx(truth, rel=0.08)


def test_a_growing_queue_is_saturation_and_shows_the_capacity() -> None:
    over = make_point(40.0, serve(arrival_times("constant", 40.0, 1200, seed=0)), TARGET)
    assert over.saturated
    assert over.capacity_per_s == pytest.approx(KNEE, rel=0.02)
    under = make_point(20.0, serve(arrival_times("constant", 20.0, 1200, seed=0)), TARGET)
    assert not under.saturated
    assert under.meets


def test_the_capacity_is_right_after_a_few_full_batches() -> None:
    # A cut-off point: 16 slots, all started together, finish 16 answers at a time.
    records = [r for r in serve([0.01 * i for i in range(2000)]) if r.token_s[-1] < 4.6]
    cut = make_point(100.0, records, TARGET, stopped_early=True)
    assert cut.requests < 120
    assert cut.capacity_per_s == pytest.approx(KNEE, rel=0.03)


def test_what_is_proven_is_said_apart_from_what_was_seen() -> None:
    long = search("constant", 1)
    assert long.proven_per_s == max(p.rate_per_s for p in long.points if p.proven)
    short = search("constant", 1, window_s=20.0)
    assert short.proven_per_s is None
    best = max((p for p in short.points if p.meets), key=lambda p: p.rate_per_s)
    assert short.needed_requests > best.requests


def test_the_search_ends_where_the_client_was_the_bottleneck() -> None:
    def measure(rate_per_s: float, index: int) -> Point:
        bound = "the client was the bottleneck" if rate_per_s > 10 else None
        records = serve(arrival_times("constant", rate_per_s, 50, seed=0))
        return make_point(rate_per_s, records, TARGET, client_bound=bound)

    found = find_boundary(measure)
    assert found.rate_per_s is None
    assert found.low == 4.0
    assert found.reason == "at 16 a second: the client was the bottleneck"


def test_a_disturbed_point_is_measured_again() -> None:
    disturbed = [1]

    def measure(rate_per_s: float, index: int) -> Point:
        bound = "the client was the bottleneck" if index in disturbed else None
        records = serve(arrival_times("constant", rate_per_s, round(65 * rate_per_s), seed=0))
        return make_point(rate_per_s, records, TARGET, client_bound=bound)

    found = find_boundary(measure, start_per_s=7.0)
    assert [p.rate_per_s for p in found.points[:3]] == [7.0, 28.0, 28.0]
    assert found.rate_per_s == pytest.approx(KNEE, rel=0.05)


def test_rates_without_a_bracket() -> None:
    times = arrival_times("constant", 1.0, 40, seed=0)
    fast = find_boundary(lambda rate, index: make_point(rate, serve(times), TARGET), most_points=3)
    assert (fast.rate_per_s, fast.low, fast.high) == (None, 16.0, None)
    assert "met at every measured rate" in fast.reason
    hard = [read_target("ttft_s:p90<=0.001")]
    slow = find_boundary(lambda rate, index: make_point(rate, serve(times), hard), most_points=3)
    assert (slow.rate_per_s, slow.low) == (None, None)
    assert "missed already at" in slow.reason


def test_a_monotone_curve_pools_what_goes_down() -> None:
    assert pool_adjacent_violators([1, 3, 2, 4]) == [1, 2.5, 2.5, 4]
    assert pool_adjacent_violators([3, 2, 1]) == [2, 2, 2]
    assert pool_adjacent_violators([]) == []


def test_a_real_small_search_stops_overloaded_points_early(capsys) -> None:
    with running(MockSettings(slots=4, step_s=0.005)) as (url, _):
        code = main([
            "load", "--url", url, "--boundary", "--target", "ttft_s:p90<=0.15", "--rate", "30",
            "--arrivals", "constant", "--output-tokens", "20", "--input-tokens", "8",
            "--duration", "0.8", "--json", "--points", "3",
        ])  # fmt: skip
    found = json.loads(capsys.readouterr().out)
    rates = [point["rate_per_s"] for point in found["points"]]
    assert rates == sorted(rates)
    assert 30 in rates
    assert found["boundary"]["proven_per_s"] is None
    assert found["boundary"]["confidence"] == 0.95
    assert code in (1, 3)
    judged = {point["rate_per_s"]: point for point in found["points"]}
    if 120 in judged:  # three times the knee of 40 a second
        assert judged[120]["saturated"]
        assert judged[120]["requests"] < 96


def test_the_search_needs_a_target_and_no_other_traffic(capsys) -> None:
    common = ["load", "--url", "http://h", "--model", "m", "--boundary"]
    assert main(common) == 2
    assert "needs a --target" in capsys.readouterr().err
    assert main([*common, "--target", "ttft_s:p90<=1", "--users", "3"]) == 2
    assert main(["load", "--url", "http://h", "--rate", "3", "--points", "3"]) == 2
    assert main(["load", "--url", "http://h"]) == 2
    assert "give --rate" in capsys.readouterr().err


@pytest.mark.parametrize(("limit", "start"), [(1, 1), (7, 1), (40, 4), (300, 32)])
def test_the_highest_concurrency_is_a_whole_number(limit: int, start: int) -> None:
    asked: list[float] = []

    def measure(level: float, index: int) -> Point:
        asked.append(level)
        ttft_s = 0.5 * level / (limit + 0.5)
        records = [
            RequestRecord(
                intended_s=i, sent_s=i, token_s=(i + ttft_s,), input_tokens=1, output_tokens=1
            )
            for i in range(40)
        ]
        return make_point(level, records, TARGET, over="concurrency")

    found = find_boundary(measure, start_per_s=start, over="concurrency")
    assert all(level == int(level) >= 1 for level in asked)
    assert len(set(asked)) == len(asked) <= 8
    assert found.low <= limit < found.high <= max(found.low + 1, 1.05 * found.low)
    assert found.over == "concurrency"
    assert (found.reason == "nothing lies between") == (found.high - found.low == 1)


def test_one_request_in_flight_may_be_too_many() -> None:
    slow = [
        RequestRecord(intended_s=i, sent_s=i, token_s=(i + 9.0,), input_tokens=1, output_tokens=1)
        for i in range(40)
    ]
    found = find_boundary(
        lambda level, index: make_point(level, slow, TARGET, over="concurrency"),
        start_per_s=4,
        over="concurrency",
    )
    assert (found.low, found.high) == (None, 1.0)
    assert found.reason == "missed already at 1 in flight"


@pytest.mark.services
def test_a_real_search_over_concurrency(capsys) -> None:
    with running(MockSettings(slots=4, step_s=0.004)) as (url, _):
        main([
            "load", "--url", url, "--boundary", "concurrency", "--concurrency", "2",
            "--target", "ttft_s:p50<=0.03", "--output-tokens", "20", "--input-tokens", "8",
            "--duration", "0.4", "--json", "--points", "4",
        ])  # fmt: skip
    found = json.loads(capsys.readouterr().out)
    assert found["boundary"]["over"] == "concurrency"
    levels = {point["concurrency"]: point["meets"] for point in found["points"]}
    assert levels[2] is True
    assert levels[8] is False  # every other one waits for a slot: 80 ms
