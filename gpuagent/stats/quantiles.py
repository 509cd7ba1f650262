"""Percentiles with a distribution-free interval, shown only where enough was measured.

The interval comes from order statistics: the ranks that a binomial count stays between with the
wanted confidence. It exists only from a least n on (p99 368, p95 72, p50 6), and below that the
percentile is not shown at all. Samples that belong together (the gaps of one request, requests that
shared batches) are resampled as whole clusters as well, and the wider interval is shown.
Source: measurement checklist rows 2-4; order-statistic intervals as in David and Nagaraja, 2003.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuagent.stats.distributions import binomial_cdf
from gpuagent.stats.summary import Floats, cluster_labels

BOOTSTRAP_RESAMPLES = 2000
MIN_CLUSTERS = 6
# Bound on resamples x samples, so that 200,000 gaps cost a second and not a minute.
_MAX_WORK = 40_000_000
_CHUNK_WORK = 4_000_000


@dataclass(frozen=True, slots=True)
class Quantile:
    """The p-quantile by nearest rank (an observed sample), or the reason why it is not shown.

    needed_n: samples from which on it would be shown, given when `value` is None.
    """

    p: float
    n: int
    value: float | None
    low: float | None
    high: float | None
    reason: str | None
    needed_n: int | None = None


def samples_needed(p: float, *, confidence: float = 0.95) -> int:
    """Least n whose largest (smallest) sample bounds the p-quantile: p^n <= (1 - c) / 2."""
    _check_p(p)
    return math.ceil(math.log((1 - confidence) / 2) / math.log(max(p, 1 - p)) - 1e-9)


def quantile(
    values: Sequence[float] | Floats,
    p: float,
    *,
    confidence: float = 0.95,
    clusters: Sequence[int] | NDArray[np.int64] | None = None,
    seed: int = 0,
) -> Quantile:
    """The p-quantile of `values` with its interval; +inf stands for a request that failed.

    clusters: a label for each sample; dependence inside a cluster widens the interval, and fewer
    than six clusters show nothing. Raises ValueError for NaN or p outside (0, 1).
    """
    needed = samples_needed(p, confidence=confidence)
    array = np.asarray(values, dtype=np.float64).ravel()
    if np.isnan(array).any():
        raise ValueError("samples must not be NaN")
    n = int(array.size)
    if n < needed:
        return _absent(p, n, f"needs {needed:,} samples ({n:,} so far)", needed)
    order = np.argsort(array, kind="stable")
    ordered = array[order]
    lower, upper = order_ranks(n, p, confidence)
    low, high = float(ordered[lower]), float(ordered[upper])
    if clusters is not None:
        labels = cluster_labels(clusters, n)
        count = int(labels.max()) + 1
        if count < MIN_CLUSTERS:
            needed_n = math.ceil(n * MIN_CLUSTERS / count)
            return _absent(p, n, f"{count} independent groups; needs {MIN_CLUSTERS}", needed_n)
        if count < n:
            b_low, b_high = _cluster_bootstrap(ordered, labels[order], p, confidence, seed)
            low, high = min(low, b_low), max(high, b_high)
    value = float(ordered[nearest_rank(n, p)])
    if not math.isfinite(value):
        failed = int(np.isinf(array).sum())
        return _absent(p, n, f"{failed:,} of {n:,} failed, so this percentile has no value", None)
    return Quantile(
        p=p,
        n=n,
        value=value,
        low=low,
        high=high if math.isfinite(high) else None,
        reason=None if math.isfinite(high) else "failed requests lie within the interval",
    )


def nearest_rank(n: int, p: float) -> int:
    """0-based rank of the p-quantile among n ordered samples."""
    return min(n - 1, max(0, math.ceil(n * p - 1e-9) - 1))


def order_ranks(n: int, p: float, confidence: float) -> tuple[int, int]:
    """0-based ranks whose samples hold the p-quantile between them with `confidence`.

    Exact, from the binomial count of samples below the quantile, each tail at most (1 - c) / 2.
    """
    tail = (1 - confidence) / 2
    spread = 4 * math.sqrt(n * p * (1 - p)) + 4
    centre = n * p
    # Largest l with P(X < l) <= tail: the l-th smallest sample is at or below the quantile.
    low = _bisect(max(0, int(centre - spread)), math.ceil(centre), n, p, tail)
    # Smallest u with P(X < u) >= 1 - tail.
    top = min(n, math.ceil(centre + spread))
    high = _bisect(math.floor(centre), top, n, p, 1 - tail) + 1
    return max(0, low - 1), min(n - 1, high - 1)


def _bisect(first: int, last: int, n: int, p: float, bound: float) -> int:
    """Largest k in [first, last] with P(X <= k - 1) <= bound; `first` where none is."""
    while first < last:
        middle = (first + last + 1) // 2
        if binomial_cdf(middle - 1, n, p) <= bound:
            first = middle
        else:
            last = middle - 1
    return first


def _cluster_bootstrap(
    ordered: Floats, labels: NDArray[np.int64], p: float, confidence: float, seed: int
) -> tuple[float, float]:
    """Percentile bootstrap over whole clusters. `ordered` ascending, `labels` aligned with it."""
    rng = np.random.default_rng(seed)
    n = ordered.size
    sizes = np.bincount(labels)
    count = sizes.size
    first, last = _window(labels, sizes, p)
    inside = labels[first:last]
    below = np.bincount(labels[:first], minlength=count)
    resamples = int(min(BOOTSTRAP_RESAMPLES, max(200, _MAX_WORK // n)))
    chunk = int(max(1, _CHUNK_WORK // max(1, inside.size)))
    found: list[Floats] = []
    for start in range(0, resamples, chunk):
        rows = min(chunk, resamples - start)
        # How often each cluster was drawn, [rows, clusters]; then, for every sample of the window,
        # how many samples of the resample are at or below it, [rows, window].
        drawn = rng.multinomial(count, np.full(count, 1.0 / count), size=rows).astype(np.int32)
        reached = np.cumsum(drawn[:, inside], axis=1, dtype=np.int32)
        wanted = np.ceil((drawn @ sizes) * p - 1e-9) - drawn @ below
        index = np.minimum((reached < wanted[:, None]).sum(axis=1), inside.size - 1)
        found.append(ordered[first + index])
    quantiles = np.concatenate(found)
    tail = (1 - confidence) / 2
    low, high = np.quantile(quantiles, (tail, 1 - tail), method="nearest")
    return float(low), float(high)


def _window(labels: NDArray[np.int64], sizes: NDArray[np.int64], p: float) -> tuple[int, int]:
    """Ranks beyond which no resample puts the quantile: six cluster-robust standard errors."""
    n, count = labels.size, sizes.size
    rank = nearest_rank(n, p)
    counts = np.bincount(labels[: rank + 1], minlength=count) - p * sizes
    error = math.sqrt(count / (count - 1) * float((counts**2).sum()))
    half = math.ceil(6 * error) + 10
    return max(0, rank - half), min(n, rank + half + 1)


def _absent(p: float, n: int, reason: str, needed: int | None) -> Quantile:
    return Quantile(p=p, n=n, value=None, low=None, high=None, reason=reason, needed_n=needed)


def _check_p(p: float) -> None:
    if not 0 < p < 1:
        raise ValueError(f"a percentile lies between 0 and 1, not {p}")
