from __future__ import annotations

import math

import numpy as np
import pytest

from gpuagent.stats import clustered_mean, summarise


def test_five_values_get_the_t_interval_of_the_checklist() -> None:
    values = [10.0, 11.0, 9.0, 10.5, 9.5]
    summary = summarise(values)
    stdev = float(np.std(values, ddof=1))
    half = 2.776445 * stdev / math.sqrt(5)
    assert summary.n == 5
    assert summary.mean == pytest.approx(10.0)
    assert summary.cov_frac == pytest.approx(stdev / 10)
    assert (summary.mean_low, summary.mean_high) == (
        pytest.approx(10 - half, rel=1e-6),
        pytest.approx(10 + half, rel=1e-6),
    )
    assert (summary.minimum, summary.maximum, summary.median) == (9.0, 11.0, 10.0)


def test_one_value_has_no_spread_rather_than_a_spread_of_zero() -> None:
    summary = summarise([3.0])
    assert (summary.stdev, summary.cov_frac, summary.mean_low, summary.mean_high) == (None,) * 4


@pytest.mark.parametrize("bad", [[], [1.0, float("nan")], [float("inf")]])
def test_nothing_or_not_a_number_is_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="samples"):
        summarise(bad)


def test_clusters_of_one_give_the_plain_interval() -> None:
    values = [1.0, 2.0, 4.0, 3.0]
    plain, clustered = summarise(values), clustered_mean(values, [0, 1, 2, 3])
    assert clustered.mean_low == pytest.approx(plain.mean_low)
    assert clustered.mean_high == pytest.approx(plain.mean_high)


def test_copies_within_a_cluster_add_no_certainty() -> None:
    once = [1.0, 2.0, 4.0, 3.0]
    copied = np.repeat(once, 50)
    clustered = clustered_mean(copied, np.repeat(np.arange(4), 50))
    assert clustered.mean_low == pytest.approx(summarise(once).mean_low)
    assert summarise(copied).mean_low > clustered.mean_low + 0.5


def test_one_cluster_has_no_interval() -> None:
    assert clustered_mean([1.0, 2.0], [7, 7]).mean_low is None


def test_labels_must_match_the_samples() -> None:
    with pytest.raises(ValueError, match="1 cluster labels for 2 samples"):
        clustered_mean([1.0, 2.0], [0])
