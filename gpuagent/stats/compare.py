"""Is B better than A? Only interleaved runs can say, and only when the noise allows it.

Three conditions, all of them: the exact permutation test over runs (p <= 0.05), the bootstrap
interval of the ratio on one side of 1, and that whole interval beyond the noise threshold
1 -+ max(2 %, CoV). Else: no proven difference. 3 against 3 runs have 20 splits, least p 0.10, and
can never prove anything; 5 against 5 have 252, least p 0.008. Source: checklist row 10.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gpuagent.stats.summary import Floats, finite_array, summarise

NOISE_FLOOR_FRAC = 0.02
SIGNIFICANCE = 0.05
RATIO_RESAMPLES = 2000
_MAX_SPLITS = 20_000

ComparisonVerdict = Literal["better", "worse", "no_proven_difference"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """B against A. ratio = mean(B) / mean(A); below 1 is better where less is better.

    noise_frac: the threshold 1 -+ noise_frac that the interval had to leave.
    exact: whether every split was counted (else 20,000 random ones).
    reason: why no difference is proven; empty for better and worse.
    """

    ratio: float
    low: float
    high: float
    p_value: float
    verdict: ComparisonVerdict
    noise_frac: float
    n_a: int
    n_b: int
    exact: bool
    reason: str


def compare(
    a_runs: Sequence[float] | Floats,
    b_runs: Sequence[float] | Floats,
    *,
    lower_is_better: bool = True,
    confidence: float = 0.95,
    seed: int = 0,
) -> Comparison:
    """Compare one number a run (a median latency, a rate). Runs must be positive, two a side."""
    a, b = finite_array(a_runs), finite_array(b_runs)
    if min(a.size, b.size) < 2:
        raise ValueError("a comparison needs at least two runs on each side")
    if min(float(a.min()), float(b.min())) <= 0:
        raise ValueError("runs must be positive: a time or rate of 0 was not measured")
    p_value, exact = permutation_p(a, b, seed=seed)
    low, high = ratio_interval(a, b, confidence=confidence, seed=seed)
    noise = max(NOISE_FLOOR_FRAC, pooled_cov(a, b))
    least = (
        2 / math.comb(a.size + b.size, a.size)
        if a.size == b.size
        else 1 / math.comb(a.size + b.size, a.size)
    )
    outside = high < 1 - noise or low > 1 + noise
    verdict: ComparisonVerdict = "no_proven_difference"
    reason = ""
    if least > SIGNIFICANCE:
        reason = f"{a.size} and {b.size} runs can never prove a difference (least p {least:.2f})"
    elif p_value > SIGNIFICANCE:
        reason = f"a split this uneven comes by chance with p = {p_value:.2f}"
    elif not outside:
        reason = f"the interval does not leave the noise of ± {noise * 100:.1f} %"
    else:
        verdict = "better" if (high < 1) == lower_is_better else "worse"
    return Comparison(
        ratio=float(b.mean() / a.mean()),
        low=low,
        high=high,
        p_value=p_value,
        verdict=verdict,
        noise_frac=noise,
        n_a=int(a.size),
        n_b=int(b.size),
        exact=exact,
        reason=reason,
    )


def permutation_p(a: Floats, b: Floats, *, seed: int = 0) -> tuple[float, bool]:
    """Two-sided p of the difference of means over all ways to split the runs; and if exact."""
    pooled = np.concatenate((a, b))
    exact = math.comb(pooled.size, a.size) <= _MAX_SPLITS
    chosen = _splits(pooled.size, a.size) if exact else _random_splits(pooled.size, a.size, seed)
    sums = pooled[chosen].sum(axis=1)
    differences = np.abs(sums / a.size - (pooled.sum() - sums) / b.size)
    observed = abs(float(a.mean() - b.mean()))
    # Equal sums differ in the last bits when added in another order.
    extreme = int((differences >= observed * (1 - 1e-9) - 1e-300).sum())
    if exact:
        return extreme / len(chosen), True
    return (extreme + 1) / (len(chosen) + 1), False


def ratio_interval(
    a: Floats, b: Floats, *, confidence: float = 0.95, seed: int = 0
) -> tuple[float, float]:
    """Percentile bootstrap of mean(B) / mean(A), runs drawn with replacement on each side."""
    rng = np.random.default_rng(seed)
    means_a = a[rng.integers(0, a.size, (RATIO_RESAMPLES, a.size))].mean(axis=1)
    means_b = b[rng.integers(0, b.size, (RATIO_RESAMPLES, b.size))].mean(axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means_b / means_a, (tail, 1 - tail))
    return float(low), float(high)


def pooled_cov(a: Floats, b: Floats) -> float:
    """Root mean square of the two sides' coefficients of variation."""
    covs = [summarise(side).cov_frac or 0.0 for side in (a, b)]
    return math.sqrt(sum(cov**2 for cov in covs) / len(covs))


@lru_cache(maxsize=16)
def _splits(total: int, chosen: int) -> NDArray[np.int64]:
    return np.array(list(combinations(range(total), chosen)), dtype=np.int64)


def _random_splits(total: int, chosen: int, seed: int) -> NDArray[np.int64]:
    rng = np.random.default_rng(seed)
    return rng.random((_MAX_SPLITS, total)).argsort(axis=1)[:, :chosen].astype(np.int64)
