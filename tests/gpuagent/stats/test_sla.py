from __future__ import annotations

import numpy as np
import pytest

from gpuagent.stats import prove_quantile, samples_to_prove
from gpuagent.stats.sla import design_effect

TABLE = [
    (0.99, 0.99, {0: 459, 1: 662, 2: 838, 5: 1307, 10: 2010, 20: 3304}),
    (0.99, 0.95, {0: 299, 1: 473, 2: 628, 5: 1049, 10: 1693, 20: 2902}),
    (0.95, 0.95, {0: 59, 1: 93, 2: 124, 5: 208, 10: 336, 20: 577}),
    (0.90, 0.99, {0: 44, 1: 64, 2: 81, 5: 127, 10: 197, 20: 325}),
]


@pytest.mark.parametrize(
    ("p", "confidence", "over", "n"),
    [(p, c, over, n) for p, c, row in TABLE for over, n in row.items()],
)
def test_sample_sizes_are_those_of_the_checklist(
    p: float, confidence: float, over: int, n: int
) -> None:
    assert samples_to_prove(p, confidence, over) == n
    enough = [1.0] * (n - over) + [9.0] * over
    assert prove_quantile(enough, p, 2.0, confidence=confidence).verdict == "met"
    assert prove_quantile(enough[1:], p, 2.0, confidence=confidence).verdict == "not_proven"


def test_an_open_question_names_the_samples_that_decide_it() -> None:
    none_over = prove_quantile([1.0] * 40, 0.95, 2.0)
    assert (none_over.verdict, none_over.needed_n) == ("not_proven", 59)
    one_over = prove_quantile([1.0] * 40 + [9.0], 0.95, 2.0)
    assert one_over.needed_n is not None
    again = [1.0] * round(one_over.needed_n * 40 / 41) + [9.0] * (one_over.needed_n // 41)
    assert prove_quantile(again, 0.95, 2.0).verdict == "met"


def test_missed_is_proven_by_the_exact_test_the_other_way() -> None:
    # P(X >= 6 | 40, 0.05) = 0.0139, P(X >= 5) = 0.048, P(X >= 4) = 0.138.
    verdicts = [
        prove_quantile([1.0] * (40 - over) + [9.0] * over, 0.95, 2.0).verdict for over in (4, 5, 6)
    ]
    assert verdicts == ["not_proven", "missed", "missed"]


def test_a_share_just_above_the_allowed_one_needs_more_to_be_called_missed() -> None:
    proof = prove_quantile([1.0] * 37 + [9.0] * 3, 0.95, 2.0)
    assert proof.verdict == "not_proven"
    assert proof.needed_n is not None
    assert proof.needed_n > 40
    scaled = proof.needed_n
    over = int(scaled * 3 / 40)
    assert prove_quantile([1.0] * (scaled - over) + [9.0] * over, 0.95, 2.0).verdict == "missed"


def test_a_share_exactly_at_the_allowed_one_is_never_decided() -> None:
    proof = prove_quantile([1.0] * 95 + [9.0] * 5, 0.95, 2.0)
    assert (proof.verdict, proof.needed_n) == ("not_proven", None)


def test_a_sample_at_the_limit_is_within_it() -> None:
    assert prove_quantile([2.0] * 59, 0.95, 2.0).over == 0


def test_failed_requests_count_as_over_the_limit() -> None:
    values = [1.0] * 59
    assert prove_quantile([*values, np.inf], 0.95, 2.0).verdict == "not_proven"


def test_nothing_measured_proves_nothing() -> None:
    proof = prove_quantile([], 0.95, 2.0)
    assert (proof.verdict, proof.n, proof.needed_n) == ("not_proven", 0, 59)


def test_copies_of_one_fate_count_once() -> None:
    rng = np.random.default_rng(5)
    gaps = np.repeat(rng.uniform(0, 1, 40), 50)
    labels = np.repeat(np.arange(40), 50)
    assert prove_quantile(gaps, 0.95, 2.0).verdict == "met"
    clustered = prove_quantile(gaps, 0.95, 2.0, clusters=labels)
    assert clustered.verdict == "not_proven"
    assert clustered.effective_n == 40
    assert clustered.needed_n == pytest.approx(59 * 50, rel=0.02)


def test_independent_gaps_in_clusters_lose_little() -> None:
    rng = np.random.default_rng(6)
    gaps, labels = rng.uniform(0, 1, 4000), np.arange(4000) // 40
    assert design_effect(gaps, labels, 0.95, 2.0) < 2.0
    assert prove_quantile(gaps, 0.95, 2.0, clusters=labels).verdict == "met"


def test_few_clusters_prove_nothing_however_many_samples() -> None:
    proof = prove_quantile([1.0] * 1000, 0.95, 2.0, clusters=[i // 200 for i in range(1000)])
    assert proof.verdict == "not_proven"
    assert proof.needed_n == 1200


def test_met_is_claimed_wrongly_at_most_as_often_as_the_confidence_allows() -> None:
    """M1: the true share over the limit is just above 1 - p; "met" at most 1 % with c = 0.99."""
    rng = np.random.default_rng(11)
    over = rng.random((1000, 700)) < 0.0105
    met = [
        prove_quantile(np.where(run, 9.0, 1.0), 0.99, 2.0, confidence=0.99).verdict == "met"
        for run in over
    ]
    assert sum(met) <= 10 + 6  # 1 % of 1,000 and two standard errors


def test_clustered_met_is_not_claimed_wrongly_either() -> None:
    """Half of the gaps' variance between requests; true 90th percentile at the limit."""
    rng = np.random.default_rng(12)
    labels = np.repeat(np.arange(60), 20)
    wrong = naive = 0
    for _ in range(300):
        gaps = (rng.normal(size=(60, 1)) + rng.normal(size=(60, 20))).ravel() / 2**0.5
        wrong += prove_quantile(gaps, 0.90, 1.2816, clusters=labels).verdict == "met"
        naive += prove_quantile(gaps, 0.90, 1.2816).verdict == "met"
    assert wrong <= 0.05 * 300 + 8
    assert naive > 3 * wrong
