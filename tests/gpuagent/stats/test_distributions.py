"""Against closed forms and tabulated values."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent.stats.distributions import binomial_cdf, t_cdf, t_quantile


@given(st.integers(1, 60), st.data(), st.floats(0.01, 0.99))
def test_binomial_equals_the_sum_of_its_terms(n: int, data: st.DataObject, p: float) -> None:
    k = data.draw(st.integers(-1, n + 1))
    terms = (math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(min(k, n) + 1))
    assert binomial_cdf(k, n, p) == pytest.approx(math.fsum(terms), abs=1e-12)


def test_binomial_of_a_large_count_keeps_its_small_tail() -> None:
    assert binomial_cdf(0, 100_000, 0.001) == pytest.approx(math.exp(100_000 * math.log1p(-0.001)))
    assert binomial_cdf(10, 1_000_000, 0.01) >= 0.0


@pytest.mark.parametrize("bad", [0.0, 1.0, -0.1, float("nan")])
def test_binomial_refuses_a_probability_outside_zero_and_one(bad: float) -> None:
    with pytest.raises(ValueError, match="probability"):
        binomial_cdf(1, 10, bad)


@pytest.mark.parametrize(
    ("p", "df", "expected"),
    [
        (0.975, 1, 12.7062),
        (0.975, 2, 4.30265),
        (0.975, 4, 2.77645),
        (0.975, 9, 2.26216),
        (0.95, 10, 1.81246),
        (0.995, 30, 2.75000),
        (0.975, 100_000, 1.95999),
    ],
)
def test_t_quantile_matches_the_table(p: float, df: float, expected: float) -> None:
    assert t_quantile(p, df) == pytest.approx(expected, rel=2e-5)
    assert t_quantile(1 - p, df) == pytest.approx(-expected, rel=2e-5)


@given(st.floats(0.001, 0.999), st.integers(1, 500))
def test_t_cdf_inverts_t_quantile(p: float, df: int) -> None:
    assert t_cdf(t_quantile(p, df), df) == pytest.approx(p, abs=1e-7)
