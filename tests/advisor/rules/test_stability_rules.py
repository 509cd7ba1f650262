"""Rules on stability: fails with evidence, passes, not applicable, at the threshold."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.evidence import StudyEvidence
from advisor.rules.checks import (
    f001_cold_start_long,
    f002_first_request_slow,
    f003_attempts_lost,
    f004_requests_failed,
    f005_workload_cut_short,
)
from advisor.rules.rule import Verdict
from gpuagent.wire import FailureReason, SimulatedModel
from tests.builders import (
    make_baseline_result,
    make_cold,
    make_current,
    make_evidence,
    make_failure,
    make_requests,
    make_study_spec,
    make_trial,
    make_variant,
    make_workload,
)
from tests.rule_checks import (
    assert_says_what_is_missing,
    invalid,
    one,
    text_of,
    through_engine,
)


@pytest.mark.parametrize(
    "module",
    [
        f001_cold_start_long,
        f002_first_request_slow,
        f003_attempts_lost,
        f004_requests_failed,
        f005_workload_cut_short,
    ],
    ids=lambda module: module.ID,
)
def test_without_its_evidence_a_rule_says_what_is_missing(module: Any) -> None:
    assert_says_what_is_missing(one(module, shape=None, device=None))


@pytest.mark.parametrize(
    "module",
    [f001_cold_start_long, f002_first_request_slow, f004_requests_failed, f005_workload_cut_short],
    ids=lambda module: module.ID,
)
def test_an_invalid_measurement_is_not_judged(module: Any) -> None:
    disturbed = invalid(cold=make_cold(load_s=90.0), n_requests=3)
    assert_says_what_is_missing(one(module, disturbed))


def simulated() -> StudyEvidence:
    spec = make_study_spec(engine="simulated", model=SimulatedModel(name="qwen3-32b-2xh100"))
    return make_evidence(make_current(cold=None), spec=spec, shape=None)


@pytest.mark.parametrize("rule_id", ["cold-start-long", "first-request-slow"])
def test_a_simulated_engine_has_no_start(rule_id: str) -> None:
    assert_says_what_is_missing(through_engine(rule_id, simulated()))


# --- start -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("load_s", "verdict"), [(24.0, Verdict.PASS), (24.1, Verdict.FAIL)])
def test_a_start_may_take_the_thirty_seconds_of_a_probe(load_s: float, verdict: Verdict) -> None:
    # Imports take 4 s and the warm-up 2 s.
    finding = one(f001_cold_start_long, make_current(cold=make_cold(load_s=load_s)))
    assert finding.verdict is verdict
    assert finding.evidence[0].value == pytest.approx(load_s + 6)
    if verdict is Verdict.FAIL:
        # Twice 30.1 s in periods of 10 s.
        assert "failureThreshold of 7" in text_of(finding)


@pytest.mark.parametrize(("first_s", "verdict"), [(0.44, Verdict.PASS), (0.46, Verdict.FAIL)])
def test_a_first_request_of_three_times_the_median_is_not_a_users(
    first_s: float, verdict: Verdict
) -> None:
    requests = make_requests(20, ttft_s=0.15, cov=0.0)
    trial = make_current(requests=requests, cold=make_cold(first_request_ttft_s=first_s))
    finding = one(f002_first_request_slow, trial)
    assert finding.verdict is verdict
    assert finding.evidence[0].value == pytest.approx(first_s / 0.15)


def test_in_a_queue_no_warm_time_is_seen() -> None:
    queued = make_current(arrivals="poisson", cold=make_cold(first_request_ttft_s=9))
    assert_says_what_is_missing(one(f002_first_request_slow, queued))
    few = make_current(n_requests=4, cold=make_cold(first_request_ttft_s=9))
    assert_says_what_is_missing(one(f002_first_request_slow, few))


# --- attempts ----------------------------------------------------------------------------------


def trial_of(attempts: int, ordinal: int = 1, **fields: Any) -> Any:
    return make_trial(
        make_baseline_result(n_requests=5), ordinal=ordinal, attempts=attempts, **fields
    )


@pytest.mark.parametrize(
    ("attempts", "verdict"),
    [
        ((1, 1), Verdict.PASS),
        ((1, 2), Verdict.INFORMATIVE),
        ((2, 2), Verdict.FAIL),
        ((1, 3), Verdict.FAIL),
    ],
)
def test_two_lost_attempts_are_a_pattern(attempts: tuple[int, ...], verdict: Verdict) -> None:
    trials = [trial_of(count, ordinal) for ordinal, count in enumerate(attempts, start=1)]
    finding = one(f003_attempts_lost, *trials)
    assert finding.verdict is verdict
    assert finding.evidence[0].value == sum(attempts) - 2
    if verdict is Verdict.FAIL:
        assert f"{sum(attempts) - 2} attempts were lost" in finding.title


def test_the_text_counts_lost_attempts_of_all_that_were_made() -> None:
    text = text_of(one(f003_attempts_lost, trial_of(1), trial_of(3, ordinal=2)))
    assert "2 of 4 attempts of 2 trials were lost" in text
    assert "Trial 2 lost 2 of 3 attempts" in text
    fine = one(f003_attempts_lost, trial_of(1))
    assert fine.evidence[0].text == "0 of 1 attempt of 1 trial were lost"


def test_a_trial_whose_last_attempt_was_lost_too_counts_it() -> None:
    lost = make_trial(failure=make_failure(FailureReason.AGENT_LOST), attempts=3)
    assert one(f003_attempts_lost, lost).evidence[0].value == 3
    once = make_trial(failure=make_failure(FailureReason.CHILD_KILLED), attempts=1)
    assert one(f003_attempts_lost, once).verdict is Verdict.INFORMATIVE


def test_trials_that_were_cancelled_in_the_queue_hide_no_lost_attempt() -> None:
    cancelled = [make_trial(ordinal=n, state="cancelled", attempts=0) for n in (2, 3)]
    finding = one(f003_attempts_lost, trial_of(3), *cancelled)
    assert finding.verdict is Verdict.FAIL
    assert "2 attempts were lost" in finding.title


def test_attempts_count_for_failed_trials_and_wait_for_the_first_end() -> None:
    failed = make_trial(failure=make_failure(), attempts=3)
    assert one(f003_attempts_lost, failed).verdict is Verdict.FAIL
    assert_says_what_is_missing(one(f003_attempts_lost, make_trial(state="running")))


# --- requests ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("failed", "verdict"), [(0, Verdict.PASS), (1, Verdict.FAIL)])
def test_one_failed_request_is_enough(failed: int, verdict: Verdict) -> None:
    trial = make_current(requests=make_requests(100, failed=failed))
    finding = one(f004_requests_failed, trial)
    assert finding.verdict is verdict
    assert finding.evidence[0].value == failed / 100
    if failed:
        assert "connection reset" in text_of(finding)
    else:
        # The exact bound of none in a hundred: 1 - 0.05^(1/100).
        assert finding.evidence[0].high == pytest.approx(0.0295, abs=1e-4)


def test_failures_of_other_settings_are_not_those_of_the_current_ones() -> None:
    other = make_variant(requests=make_requests(100, failed=3))
    assert one(f004_requests_failed, make_current(), other).verdict is Verdict.PASS


@pytest.mark.parametrize(("sent", "verdict"), [(100, Verdict.PASS), (99, Verdict.FAIL)])
def test_a_workload_that_was_cut_short_says_what_is_missing(sent: int, verdict: Verdict) -> None:
    finding = one(f005_workload_cut_short, make_current(n_requests=sent))
    assert finding.verdict is verdict
    if verdict is Verdict.FAIL:
        assert "99 of 100" in finding.title
        # One request takes 0.15 + 15 × 0.06 s.
        assert "1.05 s more" in text_of(finding)


def test_the_workload_of_the_trial_counts_not_that_of_the_study() -> None:
    result = make_baseline_result(n_requests=20)
    trial = make_trial(result, workload=make_workload(requests=20))
    assert one(f005_workload_cut_short, trial).verdict is Verdict.PASS


def test_a_trial_without_requests_has_nothing_to_count() -> None:
    for module in (f002_first_request_slow, f004_requests_failed, f005_workload_cut_short):
        assert_says_what_is_missing(one(module, make_current(requests=())))
