"""Mean and spread of repeated measurements, with the t interval of the mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpuagent.stats.distributions import t_quantile

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Summary:
    """n values of one quantity. Spread and interval are None for a single value."""

    n: int
    mean: float
    median: float
    stdev: float | None
    cov_frac: float | None
    mean_low: float | None
    mean_high: float | None
    minimum: float
    maximum: float


def finite_array(values: ArrayLike) -> Floats:
    """`values` as a flat float64 array. Raises ValueError where it is empty or not finite."""
    array = np.asarray(values, dtype=np.float64).ravel()
    if array.size == 0:
        raise ValueError("no samples: nothing was measured")
    if not np.isfinite(array).all():
        raise ValueError("samples must be finite numbers")
    return array


def summarise(values: Sequence[float] | Floats, *, confidence: float = 0.95) -> Summary:
    """Mean -+ t x s / sqrt(n), for samples that are independent of each other."""
    array = finite_array(values)
    n = int(array.size)
    mean = float(array.mean())
    stdev = half = None
    if n > 1:
        stdev = float(array.std(ddof=1))
        half = t_quantile(0.5 + confidence / 2, n - 1) * stdev / math.sqrt(n)
    return Summary(
        n=n,
        mean=mean,
        median=float(np.median(array)),
        stdev=stdev,
        cov_frac=stdev / abs(mean) if stdev is not None and mean != 0 else None,
        mean_low=mean - half if half is not None else None,
        mean_high=mean + half if half is not None else None,
        minimum=float(array.min()),
        maximum=float(array.max()),
    )


def clustered_mean(
    values: Sequence[float] | Floats,
    clusters: Sequence[int] | NDArray[np.int64],
    *,
    confidence: float = 0.95,
) -> Summary:
    """As `summarise`, for samples that belong together in `clusters` (gaps of one request).

    The interval treats each cluster as one observation of a ratio, sum / count, and uses
    t with clusters - 1 degrees of freedom; None with fewer than two clusters.
    """
    array = finite_array(values)
    plain = summarise(array, confidence=confidence)
    sums, counts = cluster_sums(array, clusters)
    k = sums.size
    low = high = None
    if k > 1:
        residual = sums - plain.mean * counts
        error = math.sqrt(k / (k - 1) * float((residual**2).sum())) / float(counts.sum())
        half = t_quantile(0.5 + confidence / 2, k - 1) * error
        low, high = plain.mean - half, plain.mean + half
    return Summary(
        n=plain.n,
        mean=plain.mean,
        median=plain.median,
        stdev=plain.stdev,
        cov_frac=plain.cov_frac,
        mean_low=low,
        mean_high=high,
        minimum=plain.minimum,
        maximum=plain.maximum,
    )


def cluster_sums(
    values: Floats, clusters: Sequence[int] | NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """Sum and number of the values of each cluster, in order of the cluster's label."""
    labels = cluster_labels(clusters, values.size)
    counts = np.bincount(labels).astype(np.float64)
    return np.bincount(labels, weights=values).astype(np.float64), counts


def cluster_labels(clusters: Sequence[int] | NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Labels renumbered 0, 1, 2 ... Raises ValueError where their number is not `size`."""
    labels = np.asarray(clusters, dtype=np.int64).ravel()
    if labels.size != size:
        raise ValueError(f"{labels.size} cluster labels for {size} samples")
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)
