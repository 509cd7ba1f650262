"""Whole runs through a fake engine whose true latencies are known: what comes out, how often."""

from __future__ import annotations

import random

import numpy as np
import pytest
from numpy.typing import NDArray

from gpuagent.experiments.requests import PlannedRequest
from gpuagent.experiments.serving import ClosedLoop, Feed, SimulatedOpenLoop, feed_for, serve
from gpuagent.stats import noise_floor, prove_quantile, quantile
from gpuagent.stats.compare import permutation_p
from gpuagent.stats.distributions import binomial_cdf
from gpuagent.stats.quantiles import order_ranks
from gpuagent.wire.measure import RequestRecord
from tests.gpuagent.fakes import FakeClock, FakeEngine

Floats = NDArray[np.float64]

SERVICE_S, STALL_S, EVERY_S, RATE_PER_S = 0.05, 5.0, 60.0, 5.0


class StallingEngine(FakeEngine):
    """Answers in SERVICE_S, and stands still for STALL_S each EVERY_S."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock, prefill_s_per_token=SERVICE_S)
        self._next_stall = clock.now() + EVERY_S

    def prefill(self, prompts, *, use_cache):  # type: ignore[no-untyped-def]
        while self.clock.now() >= self._next_stall:
            # A stall in idle time is over, or partly over, when the next request comes.
            self.clock.sleep_until(self._next_stall + STALL_S)
            self._next_stall += EVERY_S
        return super().prefill(prompts, use_cache=use_cache)


def first_tokens(planned: list[PlannedRequest], feed: Feed) -> tuple[RequestRecord, ...]:
    clock = FakeClock(0.0)
    engine = StallingEngine(clock)
    return serve(engine, planned, use_cache=True, clock=clock, tick=lambda: None, feed=feed)[0]


def ttfts(records: tuple[RequestRecord, ...]) -> list[float]:
    return [record.token_s[0] - record.intended_s for record in records]


def true_waits(seed: int, count: int) -> Floats:
    """The same server by Lindley's recursion, a year of it, so that its p99 is the truth."""
    arrivals = np.cumsum(np.random.default_rng(seed).exponential(1 / RATE_PER_S, count))
    free, next_stall, waits = 0.0, EVERY_S, np.empty(count)
    for index, at in enumerate(arrivals):
        start = max(at, free)
        while start >= next_stall:
            start = max(start, next_stall + STALL_S)
            next_stall += EVERY_S
        free = start + SERVICE_S
        waits[index] = free - at
    return waits


def test_an_open_loop_sees_a_stall_that_a_closed_loop_hides() -> None:
    """M2: 5 s of stall each minute at 5 requests/s: p99 within 5 % of the truth."""
    truth = float(np.quantile(true_waits(1, 200_000), 0.99))
    rng = random.Random(2)
    at_s, planned = 0.0, []
    for _ in range(20_000):
        at_s += rng.expovariate(RATE_PER_S)
        planned.append(PlannedRequest(at_s, (1,), 1))
    reported = quantile(ttfts(first_tokens(planned, SimulatedOpenLoop())), 0.99)
    assert reported.value == pytest.approx(truth, rel=0.05)

    unpaced = [PlannedRequest(None, (1,), 1)] * 20_000
    naive = quantile(ttfts(first_tokens(unpaced, ClosedLoop())), 0.99)
    assert naive.value is not None
    assert truth > 5 * naive.value
    # It is told apart by its kind, and no claim at a rate is made from it.
    assert isinstance(feed_for(unpaced), ClosedLoop)
    assert not isinstance(feed_for(planned), ClosedLoop)


@pytest.mark.parametrize(("p", "n"), [(0.99, 1000), (0.99, 4000), (0.95, 200), (0.5, 51)])
def test_an_interval_holds_the_truth_as_often_as_it_says(p: float, n: int) -> None:
    """M1: exact, since the coverage of two order statistics is P(low < X <= high), X binomial.

    Each tail is at most 2.5 %, so with few samples above the quantile it covers a little more.
    """
    low, high = order_ranks(n, p, 0.95)
    coverage = binomial_cdf(high, n, p) - binomial_cdf(low, n, p)
    assert 0.95 <= coverage <= (0.97 if n * (1 - p) >= 20 else 0.98)


def test_met_is_rarely_wrong_for_an_engine_with_a_known_law() -> None:
    """M1: 1,000 runs at the limit itself, where "met" is wrong; at most 1 % with c = 0.99."""
    clock = FakeClock()
    rng = np.random.default_rng(3)
    draws = iter(rng.exponential(size=1000 * 44))
    engine = FakeEngine(clock, prefill_s_per_token=1.0, jitter=lambda: next(draws))
    planned = [PlannedRequest(None, (1,), 1)] * 44
    limit_s = float(-np.log(0.10)) * 0.999  # a little below the true p90
    met = 0
    for _ in range(1000):
        records, _ = serve(engine, planned, use_cache=True, clock=clock, tick=lambda: None)
        values = [r.token_s[0] - r.sent_s for r in records]
        met += prove_quantile(values, 0.90, limit_s, confidence=0.99).verdict == "met"
    assert met <= 10 + 6  # 1 % of 1,000 and two standard errors


@pytest.mark.parametrize("law", ["normal", "lognormal", "outliers"])
def test_the_permutation_test_holds_its_rate_for_every_law(law: str) -> None:
    """M3: 200 pairs of equal sides, five runs each; p <= 0.05 comes in 5 % of them at most."""
    rng = np.random.default_rng(5)
    runs = 1 + 0.03 * rng.standard_normal((200, 2, 5))
    if law == "lognormal":
        runs = np.exp(0.5 * rng.standard_normal((200, 2, 5)))
    if law == "outliers":
        runs *= np.where(rng.random((200, 2, 5)) < 0.1, 3.0, 1.0)
    wrong = sum(permutation_p(a, b)[0] <= 0.05 for a, b in runs)
    assert wrong <= 10 + 6  # 5 % of 200 and two standard errors


# --- noise floor -------------------------------------------------------------------------------


def test_the_noise_floor_is_the_difference_that_equal_halves_show() -> None:
    # Halves of 1, 1, 2, 2: (1,1)(2,2) twice, (1,2)(1,2) four times.
    assert noise_floor([1.0, 1.0, 2.0, 2.0]) == pytest.approx(1.0)
    assert noise_floor([1.0, 1.0, 1.0, 1.0]) == 0.0
    assert noise_floor([1.0, 2.0, 3.0]) is None


def test_the_noise_floor_grows_with_the_noise_and_shrinks_with_the_runs() -> None:
    rng = np.random.default_rng(6)
    few = np.median([noise_floor(rng.normal(1, 0.03, 6)) for _ in range(100)])
    many = np.median([noise_floor(rng.normal(1, 0.03, 14)) for _ in range(100)])
    loud = np.median([noise_floor(rng.normal(1, 0.09, 6)) for _ in range(100)])
    assert many < 0.8 * few
    assert loud == pytest.approx(3 * few, rel=0.3)


@pytest.mark.parametrize("bad", [[1.0, 0.0, 1.0, 1.0], [1.0, -1.0, 1.0, 1.0]])
def test_a_noise_floor_needs_positive_runs(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="positive"):
        noise_floor(bad)
