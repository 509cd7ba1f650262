from __future__ import annotations

import pytest

from gpuagent.experiments.warmup import MAX_ITERATIONS, warm_up
from tests.gpuagent.fakes import FakeClock, FakeEngine


def test_it_goes_on_until_three_iterations_agree() -> None:
    clock = FakeClock()
    factors = iter([9.0] + [4.0] * 4 + [2.0] * 4 + [1.0] * 200)
    engine = FakeEngine(clock, jitter=lambda: next(factors))
    warm = warm_up(engine, range(10), use_cache=True, clock=clock, tick=lambda: None)
    assert warm.first_ttft_s == pytest.approx(0.09)
    assert warm.stable
    assert warm.iterations == 5
    assert warm.step_s == pytest.approx(0.01)


def test_an_engine_that_never_settles_ends_it_and_says_so() -> None:
    clock = FakeClock()
    state = {"n": 0.0}

    def growing() -> float:
        state["n"] += 1
        return state["n"]

    engine = FakeEngine(clock, jitter=growing)
    warm = warm_up(engine, range(10), use_cache=True, clock=clock, tick=lambda: None)
    assert not warm.stable
    assert warm.iterations <= MAX_ITERATIONS


def test_a_slow_engine_is_not_warmed_for_long() -> None:
    clock = FakeClock()
    factors = iter([1.0, *([1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0] * 50)])
    engine = FakeEngine(clock, prefill_s_per_token=1.0, step_s=1.0, jitter=lambda: next(factors))
    warm = warm_up(engine, range(4), use_cache=True, clock=clock, tick=lambda: None)
    assert warm.iterations == 3
    assert not warm.stable
