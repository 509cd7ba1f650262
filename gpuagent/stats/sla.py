"""Whether "p of all samples stay within the limit" is proven, refuted, or open.

Exact binomial test on the number of samples over the limit, the early-stopping rule of MLPerf
Inference: met when that few would be improbable (<= 1 - c) if the share over the limit really were
1 - p or more; missed when that many would be improbable if it were less.

Dependent samples. Gaps of one request, or requests that shared batches, repeat each other's fate,
so n of them prove less than n independent ones. With `clusters` the count is divided by the design
effect 1 + (m - 1) x ICC, m the size-weighted mean cluster, where ICC is the larger one of three
estimates: samples over the limit, samples in the tail beyond the p-quantile, and ranks. The second
and third keep the correction alive when nothing is over the limit yet. The count over the limit is
rounded against the claim being proven, and with fewer than six clusters nothing is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gpuagent.stats.distributions import binomial_cdf
from gpuagent.stats.quantiles import MIN_CLUSTERS, nearest_rank
from gpuagent.stats.summary import Floats, cluster_labels, cluster_sums

_MAX_OVER = 20_000


@dataclass(frozen=True, slots=True)
class Proof:
    """Outcome of the test.

    n, over: samples and those over the limit, as counted. effective_n: independent samples they
    are worth. needed_n: samples needed in all to decide at the share seen so far, when not proven;
    None where that share is too close to 1 - p for any number to decide.
    """

    verdict: Literal["met", "missed", "not_proven"]
    n: int
    over: int
    needed_n: int | None
    confidence: float
    effective_n: int


def prove_quantile(
    values: Sequence[float] | Floats,
    p: float,
    limit: float,
    *,
    confidence: float = 0.95,
    clusters: Sequence[int] | NDArray[np.int64] | None = None,
) -> Proof:
    """Test whether the p-quantile of `values` is at most `limit`; +inf counts as over the limit."""
    array = np.asarray(values, dtype=np.float64).ravel()
    if np.isnan(array).any() or math.isnan(limit):
        raise ValueError("samples and limit must not be NaN")
    n = int(array.size)
    over = int((array > limit).sum())
    effect, groups = 1.0, n
    if clusters is not None and n:
        labels = cluster_labels(clusters, n)
        groups = int(labels.max()) + 1
        effect = design_effect(array, labels, p, limit)
    effective = math.floor(n / effect + 1e-9)
    enough = clusters is None or groups >= MIN_CLUSTERS
    verdict: Literal["met", "missed", "not_proven"] = "not_proven"
    if enough and _proves_met(math.ceil(over / effect - 1e-9), effective, p, confidence):
        verdict = "met"
    elif enough and _proves_missed(math.floor(over / effect + 1e-9), effective, p, confidence):
        verdict = "missed"
    needed = None
    if verdict == "not_proven":
        in_all = _needed(over / effect, effective, p, confidence)
        if in_all is not None:
            by_groups = math.ceil(n * MIN_CLUSTERS / groups) if groups and not enough else 0
            needed = max(math.ceil(in_all * effect), by_groups, n + 1)
    return Proof(
        verdict=verdict,
        n=n,
        over=over,
        needed_n=needed,
        confidence=confidence,
        effective_n=effective,
    )


@lru_cache(maxsize=4096)
def samples_to_prove(p: float, confidence: float, over: int) -> int:
    """Least n that proves the p-quantile within the limit with `over` samples beyond it."""
    if not 0 < p < 1:
        raise ValueError(f"a percentile lies between 0 and 1, not {p}")
    low, high = over, over + 1
    while not _proves_met(over, high, p, confidence):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if _proves_met(over, middle, p, confidence):
            high = middle
        else:
            low = middle
    return high


def design_effect(values: Floats, labels: NDArray[np.int64], p: float, limit: float) -> float:
    """How many dependent samples are worth one independent sample; at least 1."""
    sizes = np.bincount(labels).astype(np.float64)
    if sizes.max() <= 1:
        return 1.0
    weighted_size = float((sizes**2).sum() / sizes.sum())
    # Equal samples share a rank, so that constants show no dependence.
    ranks = np.unique(values, return_inverse=True)[1].astype(np.float64)
    edge = np.partition(values, rank := nearest_rank(values.size, p))[rank]
    views = ((values > limit).astype(float), (values >= edge).astype(float), ranks)
    icc = max(_intraclass_correlation(view, labels) for view in views)
    return max(1.0, 1.0 + (weighted_size - 1.0) * icc)


def _intraclass_correlation(values: Floats, labels: NDArray[np.int64]) -> float:
    """Share of the variance that lies between clusters: one-way ANOVA estimate, 0..1."""
    sums, counts = cluster_sums(values, labels)
    k, n = counts.size, values.size
    total = float(((values - values.mean()) ** 2).sum())
    if total == 0 or n == k:
        return 0.0
    if k == 1:
        return 1.0
    between = float((counts * (sums / counts - values.mean()) ** 2).sum())
    mean_between = between / (k - 1)
    mean_within = (total - between) / (n - k)
    size = (n - float((counts**2).sum()) / n) / (k - 1)
    denominator = mean_between + (size - 1) * mean_within
    if denominator <= 0:
        return 0.0
    return min(1.0, max(0.0, (mean_between - mean_within) / denominator))


def _proves_met(over: int, n: int, p: float, confidence: float) -> bool:
    return n > over and binomial_cdf(over, n, 1 - p) <= 1 - confidence


def _proves_missed(over: int, n: int, p: float, confidence: float) -> bool:
    if over == 0 or n == 0:
        return False
    # P(X >= over), written on the other side so that a small tail keeps its digits.
    return binomial_cdf(n - over, n, p) <= 1 - confidence


def _needed(over: float, n: int, p: float, confidence: float) -> int | None:
    """Independent samples that decide at the share over / n, met or missed."""
    share = over / n if n else 0.0
    if share < 1 - p:
        return _needed_met(math.ceil(over - 1e-9), share, p, confidence)
    return _needed_missed(n, share, p, confidence)


def _needed_met(over: int, share: float, p: float, confidence: float) -> int | None:
    """The tolerated share over / n(over) grows with `over`: find where it reaches `share`."""
    low, high = over, over
    while high < samples_to_prove(p, confidence, high) * share:
        low, high = high + 1, high * 2 + 1
        if high > _MAX_OVER:
            return None
    while low < high:
        middle = (low + high) // 2
        if middle < samples_to_prove(p, confidence, middle) * share:
            low = middle + 1
        else:
            high = middle
    return samples_to_prove(p, confidence, low)


def _needed_missed(n: int, share: float, p: float, confidence: float) -> int | None:
    """Doubling, then bisection; a share within a whisker of 1 - p is never decided."""

    def decided(count: int) -> bool:
        return _proves_missed(math.floor(count * share + 1e-9), count, p, confidence)

    low, high = n, max(2, n)
    while not decided(high):
        low, high = high, high * 2
        if high * share > _MAX_OVER:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        if decided(middle):
            high = middle
        else:
            low = middle
    return high
