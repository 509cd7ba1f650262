from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent.stats import quantile, samples_needed
from gpuagent.stats.quantiles import nearest_rank, order_ranks


@pytest.mark.parametrize(("p", "n"), [(0.99, 368), (0.95, 72), (0.90, 36), (0.50, 6), (0.01, 368)])
def test_least_samples_are_those_of_the_checklist(p: float, n: int) -> None:
    assert samples_needed(p) == n
    shown = quantile(np.arange(1.0, n + 1), p)
    hidden = quantile(np.arange(1.0, n), p)
    assert shown.value is not None
    assert shown.reason is None
    assert hidden.value is None
    assert hidden.needed_n == n
    assert hidden.reason == f"needs {n:,} samples ({n - 1:,} so far)"


def test_value_is_an_observed_sample_of_nearest_rank() -> None:
    assert quantile(np.arange(1.0, 101.0), 0.95).value == 95.0
    assert quantile([5.0, 1.0, 3.0, 2.0, 4.0, 6.0], 0.5).value == 3.0


@given(st.integers(6, 3000), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_the_value_lies_within_its_interval(n: int, p: float) -> None:
    low, high = order_ranks(n, p, 0.95)
    assert 0 <= low <= nearest_rank(n, p) <= high <= n - 1


def test_interval_is_close_to_the_normal_approximation_for_many_samples() -> None:
    n, p = 10_000, 0.99
    low, high = order_ranks(n, p, 0.95)
    half = 1.96 * (n * p * (1 - p)) ** 0.5
    assert low + 1 == pytest.approx(n * p - half, abs=2)
    assert high + 1 == pytest.approx(n * p + half, abs=2)


def test_gaps_that_share_a_request_widen_the_interval() -> None:
    rng = np.random.default_rng(3)
    level = np.repeat(rng.exponential(size=30), 40)
    gaps = level + rng.normal(0, 0.01, level.size)
    plain = quantile(gaps, 0.9)
    clustered = quantile(gaps, 0.9, clusters=np.repeat(np.arange(30), 40))
    assert plain.low is not None
    assert plain.high is not None
    assert clustered.low is not None
    assert clustered.high is not None
    assert clustered.value == plain.value
    assert clustered.high - clustered.low > 3 * (plain.high - plain.low)


def test_too_few_groups_show_nothing() -> None:
    found = quantile(np.arange(500.0), 0.95, clusters=np.arange(500) // 100)
    assert found.value is None
    assert found.reason == "5 independent groups; needs 6"
    assert found.needed_n == 600


def test_failed_requests_push_the_percentile_out_of_reach() -> None:
    values = [*np.linspace(1, 2, 90), *[np.inf] * 10]
    assert quantile(values, 0.95).value is None
    assert quantile(values, 0.95).reason == "10 of 100 failed, so this percentile has no value"
    partly = quantile([*np.linspace(1, 2, 98), np.inf, np.inf], 0.95)
    assert partly.value is not None
    assert partly.high is None
    assert partly.reason == "failed requests lie within the interval"


def test_the_bootstrap_repeats_itself() -> None:
    rng = np.random.default_rng(1)
    values, labels = rng.gamma(2, 1, 600), np.arange(600) // 10
    assert quantile(values, 0.95, clusters=labels) == quantile(values, 0.95, clusters=labels)


@pytest.mark.parametrize("p", [0.0, 1.0, 95.0])
def test_a_percentile_is_a_fraction(p: float) -> None:
    with pytest.raises(ValueError, match="percentile"):
        quantile([1.0, 2.0], p)


def test_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        quantile([float("nan")] * 400, 0.5)
