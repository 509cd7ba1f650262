"""Is B better than A? Only interleaved runs can say, and only when the noise allows it.

Three conditions, all of them: the exact permutation test over runs (p <= 0.05), the bootstrap
interval of the ratio on one side of 1, and that whole interval beyond the noise threshold
1 -+ max(2 %, CoV). Else: no proven difference. 3 against 3 runs have 20 splits, least p 0.10, and
can never prove anything; 5 against 5 have 252, least p 0.008. Source: checklist row 10.

Runs that were made in pairs of one workload each (same prompts, other prompts in the next pair)
differ by workload, too. `compare_pairs` takes that out: the exact sign test by exchange within
pairs, on logs. It needs six pairs (64 exchanges, least p 0.031), so which test to use is a matter
of design, decided before looking at the numbers.
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
_MAX_EXACT_PAIRS = 14

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
    splits = math.comb(a.size + b.size, a.size)
    return _judged(
        ratio=float(b.mean() / a.mean()),
        interval=ratio_interval(a, b, confidence=confidence, seed=seed),
        p_value=p_value,
        exact=exact,
        least_p=(2 if a.size == b.size else 1) / splits,
        noise=pooled_cov(a, b),
        sizes=(int(a.size), int(b.size)),
        lower_is_better=lower_is_better,
    )


def compare_pairs(
    a_runs: Sequence[float] | Floats,
    b_runs: Sequence[float] | Floats,
    *,
    lower_is_better: bool = True,
    confidence: float = 0.95,
    seed: int = 0,
) -> Comparison:
    """As `compare`, where a_runs[i] and b_runs[i] had the same workload. ratio: geometric mean."""
    a, b = finite_array(a_runs), finite_array(b_runs)
    if a.size != b.size or a.size < 2:
        raise ValueError("a paired comparison needs two pairs of runs at least")
    if min(float(a.min()), float(b.min())) <= 0:
        raise ValueError("runs must be positive: a time or rate of 0 was not measured")
    logs = np.asarray(np.log(b / a), dtype=np.float64)
    p_value, exact = exchange_p(logs, seed=seed)
    rng = np.random.default_rng(seed)
    means = logs[rng.integers(0, logs.size, (RATIO_RESAMPLES, logs.size))].mean(axis=1)
    tail = (1 - confidence) / 2
    low, high = np.exp(np.quantile(means, (tail, 1 - tail)))
    return _judged(
        ratio=math.exp(float(logs.mean())),
        interval=(float(low), float(high)),
        p_value=p_value,
        exact=exact,
        least_p=2.0 ** (1 - logs.size),
        # The spread of a difference is √2 that of one run.
        noise=float(logs.std(ddof=1)) / math.sqrt(2),
        sizes=(int(a.size), int(b.size)),
        lower_is_better=lower_is_better,
    )


def exchange_p(log_ratios: Floats, *, seed: int = 0) -> tuple[float, bool]:
    """Two-sided p of the mean over all exchanges of A and B within pairs; and if exact."""
    n = log_ratios.size
    exact = n <= _MAX_EXACT_PAIRS
    if exact:
        signs = 1 - 2 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
    else:
        signs = np.random.default_rng(seed).choice((-1, 1), (_MAX_SPLITS, n))
    sums = np.abs(signs @ log_ratios)
    observed = abs(float(log_ratios.sum()))
    extreme = int((sums >= observed * (1 - 1e-9) - 1e-300).sum())
    return (extreme / len(signs), True) if exact else ((extreme + 1) / (len(signs) + 1), False)


def _judged(
    *,
    ratio: float,
    interval: tuple[float, float],
    p_value: float,
    exact: bool,
    least_p: float,
    noise: float,
    sizes: tuple[int, int],
    lower_is_better: bool,
) -> Comparison:
    low, high = interval
    threshold = max(NOISE_FLOOR_FRAC, noise)
    verdict: ComparisonVerdict = "no_proven_difference"
    reason = ""
    if least_p > SIGNIFICANCE:
        reason = (
            f"{sizes[0]} and {sizes[1]} runs can never prove a difference (least p {least_p:.2f})"
        )
    elif p_value > SIGNIFICANCE:
        reason = f"a difference this large comes by chance with p = {p_value:.2f}"
    elif not (high < 1 - threshold or low > 1 + threshold):
        reason = f"the interval does not leave the noise of ± {threshold * 100:.1f} %"
    else:
        verdict = "better" if (high < 1) == lower_is_better else "worse"
    return Comparison(
        ratio=ratio,
        low=low,
        high=high,
        p_value=p_value,
        verdict=verdict,
        noise_frac=threshold,
        n_a=sizes[0],
        n_b=sizes[1],
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


def noise_floor(runs: Sequence[float] | Floats, *, seed: int = 0) -> float | None:
    """What equal sides differ by: the 95th percentile of |ratio - 1| over halves of A's own runs.

    An A/A comparison without more measuring. Both sides hold half of the runs, so a difference
    between two sides of this many runs each is smaller by about the root of two. None with fewer
    than four runs..
    """
    array = finite_array(runs)
    if float(array.min()) <= 0:
        raise ValueError("runs must be positive: a time or rate of 0 was not measured")
    half = int(array.size) // 2
    if half < 2:
        return None
    exact = math.comb(array.size, half) <= _MAX_SPLITS
    chosen = _splits(array.size, half) if exact else _random_splits(array.size, half, seed)
    sums = array[chosen].sum(axis=1)
    means, others = sums / half, (array.sum() - sums) / (array.size - half)
    ratios = np.maximum(means, others) / np.minimum(means, others)
    return float(np.quantile(ratios, 0.95)) - 1


@lru_cache(maxsize=16)
def _splits(total: int, chosen: int) -> NDArray[np.int64]:
    return np.array(list(combinations(range(total), chosen)), dtype=np.int64)


def _random_splits(total: int, chosen: int, seed: int) -> NDArray[np.int64]:
    rng = np.random.default_rng(seed)
    return rng.random((_MAX_SPLITS, total)).argsort(axis=1)[:, :chosen].astype(np.int64)
