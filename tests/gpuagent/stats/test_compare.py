from __future__ import annotations

import numpy as np
import pytest

from gpuagent.stats import compare, compare_pairs
from gpuagent.stats.compare import permutation_p

FIVE = [1.00, 1.01, 0.99, 1.02, 0.98]


def test_five_runs_each_that_do_not_overlap_have_the_least_p_of_the_checklist() -> None:
    found = compare(FIVE, [value * 0.8 for value in FIVE])
    assert found.p_value == pytest.approx(2 / 252)
    assert found.exact
    assert found.verdict == "better"
    assert found.ratio == pytest.approx(0.8)
    assert found.low < 0.8 < found.high


def test_the_direction_follows_the_metric() -> None:
    faster = [value * 0.8 for value in FIVE]
    assert compare(FIVE, faster, lower_is_better=False).verdict == "worse"
    assert compare(faster, FIVE).verdict == "worse"
    assert compare(faster, FIVE, lower_is_better=False).verdict == "better"


def test_three_against_three_never_prove_a_difference() -> None:
    found = compare([1.0, 1.01, 1.02], [0.1, 0.11, 0.12])
    assert found.verdict == "no_proven_difference"
    assert found.p_value == pytest.approx(0.1)
    assert "3 and 3 runs can never prove" in found.reason


def test_a_difference_below_two_percent_is_noise_even_when_significant() -> None:
    found = compare([1.0, 1.0001, 1.0002, 0.9999, 0.9998], [0.99, 0.9901, 0.9902, 0.9899, 0.9898])
    assert found.p_value <= 0.05
    assert found.verdict == "no_proven_difference"
    assert "noise" in found.reason


def test_at_the_noise_threshold_a_hair_decides() -> None:
    base = [1.0] * 5
    assert compare(base, [0.98] * 5).verdict == "no_proven_difference"
    assert compare(base, [0.979] * 5).verdict == "better"


def test_equal_runs_have_p_one() -> None:
    assert permutation_p(np.ones(4), np.ones(4)) == (1.0, True)


def test_many_runs_are_sampled_and_repeat_themselves() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.normal(1, 0.02, 20), rng.normal(0.9, 0.02, 20)
    first = compare(a, b)
    assert not first.exact
    assert first.verdict == "better"
    assert first == compare(a, b)


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [([1.0], [1.0, 2.0], "two runs"), ([1.0, 0.0], [1.0, 2.0], "positive"), ([], [], "no samples")],
)
def test_bad_runs_are_refused(a: list[float], b: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare(a, b)


def test_a_against_a_is_rarely_called_different_and_ten_percent_is_found() -> None:
    """M3: five against five. A/A at most 5 %; a true 10 % gain at CoV 3 % at least 90 %."""
    rng = np.random.default_rng(4)
    runs_a = rng.normal(1.0, 0.03, (200, 5))
    runs_same = rng.normal(1.0, 0.03, (200, 5))
    runs_faster = rng.normal(0.9, 0.027, (200, 5))
    wrong = sum(
        compare(a, b).verdict != "no_proven_difference"
        for a, b in zip(runs_a, runs_same, strict=True)
    )
    found = sum(compare(a, b).verdict == "better" for a, b in zip(runs_a, runs_faster, strict=True))
    assert wrong <= 10
    assert found >= 180


def test_pairs_take_out_what_the_workload_does_to_both_sides() -> None:
    workload = np.array([1.0, 3.0, 0.5, 2.0, 5.0, 1.5])
    faster = workload * 0.9 * np.array([1.0, 1.01, 0.99, 1.0, 1.005, 0.995])
    paired = compare_pairs(workload, faster)
    assert paired.verdict == "better"
    assert paired.p_value == pytest.approx(2 / 64)
    assert paired.ratio == pytest.approx(0.9, rel=0.01)
    assert compare(workload, faster).verdict == "no_proven_difference"


def test_five_pairs_never_prove_a_difference() -> None:
    found = compare_pairs([1.0] * 5, [0.5] * 5)
    assert found.verdict == "no_proven_difference"
    assert "can never prove a difference (least p 0.06)" in found.reason


def test_pairs_follow_the_direction_and_sample_many_exchanges() -> None:
    rng = np.random.default_rng(8)
    a = rng.uniform(1, 4, 20)
    found = compare_pairs(a, a * rng.normal(1.2, 0.02, 20))
    assert (found.verdict, found.exact) == ("worse", False)
    assert compare_pairs(a, a * 1.2, lower_is_better=False).verdict == "better"


def test_unequal_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="two pairs"):
        compare_pairs([1.0, 2.0], [1.0])


def test_paired_a_against_a_is_rarely_called_different() -> None:
    rng = np.random.default_rng(9)
    wrong = 0
    for _ in range(200):
        workload = rng.uniform(1, 3, 6)
        a, b = workload * rng.normal(1, 0.03, 6), workload * rng.normal(1, 0.03, 6)
        wrong += compare_pairs(a, b).verdict != "no_proven_difference"
    assert wrong <= 10
