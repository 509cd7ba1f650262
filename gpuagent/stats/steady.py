"""Did the measurement settle? Slope over ten bins, and first half against second.

Steady: the drift over the window is at most 5 % of the mean or its interval holds zero, and the
medians of the halves agree within 5 % or the interval of their ratio holds 1. Source: checklist
row 8; both tests let noise pass that cannot be told from a drift.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gpuagent.stats.distributions import t_quantile
from gpuagent.stats.summary import Floats, finite_array

BINS = 10
DRIFT_LIMIT_FRAC = 0.05
HALVES_LIMIT_FRAC = 0.05
_RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class Steady:
    """drift_frac: slope x window / mean, with its 95 % interval. halves_ratio: second / first.

    too_short: fewer than two samples a bin, so nothing can be said.
    """

    verdict: Literal["steady", "drifting", "too_short"]
    n: int
    drift_frac: float | None
    drift_low: float | None
    drift_high: float | None
    halves_ratio: float | None
    reason: str


def steady(
    values: Sequence[float] | Floats,
    *,
    times_s: Sequence[float] | Floats | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> Steady:
    """Judge `values` in the order they were measured; `times_s` where they are unevenly spaced."""
    array = finite_array(values)
    n = int(array.size)
    if n < 2 * BINS:
        return Steady("too_short", n, None, None, None, None, f"{n} samples; needs {2 * BINS}")
    times = np.arange(n, dtype=np.float64) if times_s is None else finite_array(times_s)
    if times.size != n:
        raise ValueError(f"{times.size} times for {n} samples")
    order = np.argsort(times, kind="stable")
    array, times = array[order], times[order]
    drift, half = _drift(array, times, confidence)
    low, high = drift - half, drift + half
    ratio, ratio_low, ratio_high = _halves(array, confidence, seed)
    slope_ok = abs(drift) <= DRIFT_LIMIT_FRAC or low <= 0 <= high
    halves_ok = abs(ratio - 1) <= HALVES_LIMIT_FRAC or ratio_low <= 1 <= ratio_high
    reasons = []
    if not slope_ok:
        reasons.append(f"drifts by {drift * 100:+.0f} % over the window")
    if not halves_ok:
        reasons.append(f"the second half is {ratio:.2f} × the first")
    verdict: Literal["steady", "drifting"] = "drifting" if reasons else "steady"
    return Steady(verdict, n, drift, low, high, ratio, " and ".join(reasons))


def _drift(array: Floats, times: Floats, confidence: float) -> tuple[float, float]:
    """Least-squares slope through the bin means, times the window, over the mean; half-width."""
    bins = np.array_split(np.arange(array.size), BINS)
    y = np.array([array[index].mean() for index in bins])
    x = np.array([times[index].mean() for index in bins])
    window = float(times[-1] - times[0])
    centred = x - x.mean()
    spread = float((centred**2).sum())
    mean = float(array.mean())
    if window <= 0 or spread == 0 or mean == 0:
        return 0.0, math.inf
    slope = float((centred * y).sum()) / spread
    residual = y - y.mean() - slope * centred
    error = math.sqrt(float((residual**2).sum()) / (BINS - 2) / spread)
    scale = window / abs(mean)
    return slope * scale, t_quantile(0.5 + confidence / 2, BINS - 2) * error * scale


def _halves(array: Floats, confidence: float, seed: int) -> tuple[float, float, float]:
    """Median of the second half over the first, with its bootstrap interval."""
    first, second = np.array_split(array, 2)
    base = float(np.median(first))
    if base == 0:
        return 1.0, 0.0, math.inf
    rng = np.random.default_rng(seed)
    # Medians of 1,000 draws settle the interval; more samples than this only cost time.
    size_a, size_b = min(first.size, 2000), min(second.size, 2000)
    a = np.median(first[rng.integers(0, first.size, (_RESAMPLES, size_a))], axis=1)
    b = np.median(second[rng.integers(0, second.size, (_RESAMPLES, size_b))], axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(b / np.where(a == 0, np.nan, a), (tail, 1 - tail))
    return float(np.median(second)) / base, float(low), float(high)
