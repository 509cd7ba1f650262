"""The two distributions that the tests of this package need, exact and without scipy.

Binomial tail sums in log space and Student's t by its incomplete beta integral. Checked in the
tests against tabulated values to 1e-6.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

_MAX_ITERATIONS = 300
_TINY = 1e-300


def binomial_cdf(k: int, n: int, probability: float) -> float:
    """P(X <= k) for X ~ Binomial(n, probability); relative error below 1e-9 for n <= 1e6."""
    if not 0 < probability < 1:
        raise ValueError(f"probability must lie between 0 and 1, not {probability}")
    if n < 0:
        raise ValueError(f"n must not be negative, not {n}")
    if k < 0:
        return 0.0
    if k >= n:
        return 1.0
    # The shorter tail is summed, so neither side loses digits to cancellation.
    if k + 1 > n * probability + 1 and k > n // 2:
        return 1.0 - binomial_cdf(n - k - 1, n, 1.0 - probability)
    i = np.arange(1, k + 1, dtype=np.float64)
    steps = np.log((n - i + 1) / i) + math.log(probability) - math.log1p(-probability)
    log_pmf = n * math.log1p(-probability) + np.concatenate(([0.0], np.cumsum(steps)))
    peak = float(log_pmf.max())
    total = (
        math.exp(peak) * float(np.exp(log_pmf - peak).sum())
        if peak > -700
        else _underflow(log_pmf, peak)
    )
    return min(1.0, total)


def _underflow(log_pmf: np.ndarray, peak: float) -> float:
    """exp of the log-sum where exp(peak) alone would be denormal."""
    return math.exp(max(-745.0, peak + math.log(float(np.exp(log_pmf - peak).sum()))))


@lru_cache(maxsize=4096)
def t_quantile(probability: float, df: float) -> float:
    """The `probability` quantile of Student's t with `df` degrees of freedom (> 0)."""
    if not 0 < probability < 1:
        raise ValueError(f"probability must lie between 0 and 1, not {probability}")
    if df <= 0:
        raise ValueError(f"df must be above 0, not {df}")
    if probability < 0.5:
        return -t_quantile(1.0 - probability, df)
    if probability == 0.5:
        return 0.0
    low, high = 0.0, 1.0
    while t_cdf(high, df) < probability:
        low, high = high, high * 2.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        if t_cdf(middle, df) < probability:
            low = middle
        else:
            high = middle
        if high - low <= 1e-12 * high:
            break
    return 0.5 * (low + high)


def t_cdf(value: float, df: float) -> float:
    """P(T <= value) for Student's t with `df` degrees of freedom."""
    tail = 0.5 * _incomplete_beta(0.5 * df, 0.5, df / (df + value * value))
    return 1.0 - tail if value >= 0 else tail


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularised incomplete beta I_x(a, b), by its continued fraction (Lentz)."""
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    log_front = (
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - _incomplete_beta(b, a, 1.0 - x)
    c, d = 1.0, 1.0 / _away_from_zero(1.0 - (a + b) * x / (a + 1.0))
    fraction = d
    for m in range(1, _MAX_ITERATIONS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1.0 / _away_from_zero(1.0 + even * d)
        c = _away_from_zero(1.0 + even / c)
        fraction *= d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1.0 / _away_from_zero(1.0 + odd * d)
        c = _away_from_zero(1.0 + odd / c)
        fraction *= d * c
        if abs(d * c - 1.0) < 1e-15:
            break
    return math.exp(log_front) * fraction / a


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
