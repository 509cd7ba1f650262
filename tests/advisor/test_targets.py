from __future__ import annotations

import numpy as np
import pytest

from advisor.evidence import TrialEvidence
from advisor.targets import (
    TargetStatus,
    measured_at_rate,
    target_label,
    target_name,
    target_status,
    target_statuses,
)
from gpuagent.request_metrics import dependence_labels, request_metrics, throughput
from gpuagent.wire import EngineSettings, FailureReason, SlaTarget, Workload
from gpuagent.wire.trial import VerifyConfig
from tests.builders import (
    ITL_P95,
    TTFT_P95,
    make_baseline_result,
    make_current,
    make_failure,
    make_kv_trial,
    make_request,
    make_requests,
    make_study_spec,
    make_trial,
    make_validity,
    make_verification,
    make_verify_result,
    make_workload,
)

CHAT = make_workload()
AT_RATE = make_workload(request_rate_per_s=12)


def target(metric: str, statistic: str, limit: float) -> SlaTarget:
    return SlaTarget.model_validate({"metric": metric, "statistic": statistic, "limit": limit})


def status(goal: SlaTarget, workload=CHAT, **result) -> TargetStatus:  # type: ignore[no-untyped-def]
    return target_status(make_current(**result), goal, workload)


# --- request metrics ---------------------------------------------------------------------------


def test_metrics_follow_their_definitions() -> None:
    metrics = request_metrics(
        [make_request(10.0, ttft_s=0.5, gaps_s=(0.1, 0.2), queue_s=0.05), make_request(20.0)]
    )
    assert metrics.ttft_s[0] == pytest.approx(0.5)
    assert metrics.itl_s[:2] == pytest.approx([0.1, 0.2])
    assert metrics.e2e_s[0] == pytest.approx(0.8)
    assert metrics.queue_s[0] == pytest.approx(0.05)
    assert metrics.itl_request.tolist() == [0, 0, 1, 1, 1]
    assert (metrics.sent, metrics.failed, metrics.succeeded) == (2, 0, 2)


def test_one_token_gives_no_gap() -> None:
    metrics = request_metrics([make_request(gaps_s=())])
    assert metrics.itl_s.size == 0
    assert metrics.e2e_s == pytest.approx(metrics.ttft_s)


def test_failed_requests_are_kept_apart_with_their_errors() -> None:
    metrics = request_metrics([make_request(), make_request(1.0, error="timed out")])
    assert (metrics.succeeded, metrics.failed, metrics.errors) == (1, 1, ("timed out",))


def test_no_requests_give_empty_arrays() -> None:
    metrics = request_metrics([])
    assert (metrics.sent, metrics.ttft_s.size, metrics.itl_s.size) == (0, 0, 0)
    assert throughput(metrics).reason == "no request succeeded"


def test_requests_one_after_the_other_are_independent_and_overlapping_ones_are_not() -> None:
    assert dependence_labels(request_metrics(make_requests(20))) is None
    crowded = request_metrics(make_requests(400, rate_per_s=5))
    labels = dependence_labels(crowded)
    assert labels is not None
    # Blocks of at least 10 s at 5 requests a second.
    assert np.bincount(labels)[:-1].min() >= 25


def test_throughput_is_tokens_over_time_with_an_interval_over_blocks() -> None:
    rate = throughput(request_metrics(make_requests(60, ttft_s=0.1, itl_s=0.06, cov=0.0)))
    assert rate.value_tok_s == pytest.approx(16, rel=0.01)  # 16 tokens take 0.1 + 15 × 0.06 = 1 s
    assert rate.low is not None
    assert rate.high is not None
    assert rate.low <= 16 <= rate.high
    few = throughput(request_metrics(make_requests(6)))
    assert few.low is None
    assert few.reason == "3 independent blocks; the interval needs 5"


# --- latency -----------------------------------------------------------------------------------


def test_a_percentile_well_below_its_limit_is_met_with_value_and_interval() -> None:
    found = status(TTFT_P95, ttft_s=0.15)
    assert found.verdict == "met"
    assert found.value == pytest.approx(0.157, rel=0.02)
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.value < found.high < 0.2
    assert (found.n, found.over, found.needed_n) == (100, 0, None)
    assert found.headroom_frac == pytest.approx(1 - found.value / 0.2)
    assert found.basis == "measured"
    assert "0 of 100 requests over the limit" in found.reason


def test_a_percentile_beyond_its_limit_is_missed_with_negative_headroom() -> None:
    found = status(ITL_P95, itl_s=0.06)
    assert found.verdict == "missed"
    assert found.headroom_frac is not None
    assert found.headroom_frac < 0


def test_too_few_requests_are_not_proven_and_say_how_many_are_needed() -> None:
    found = status(TTFT_P95, ttft_s=0.15, n_requests=30)
    assert found.verdict == "not_proven"
    assert found.value is None
    assert found.needed_n == 59
    assert "needs 59 requests (30 so far)" in found.reason
    assert "p95 not shown" in found.reason


def test_needed_requests_for_itl_are_requests_and_not_gaps() -> None:
    found = status(ITL_P95, itl_s=0.03, n_requests=2)
    assert found.verdict == "not_proven"
    assert found.needed_n is not None
    assert 3 <= found.needed_n < 30


def test_failed_requests_count_as_over_the_limit() -> None:
    good = status(TTFT_P95, requests=make_requests(100, ttft_s=0.1))
    bad = status(TTFT_P95, requests=make_requests(100, ttft_s=0.1, failed=12))
    assert good.verdict == "met"
    assert (bad.verdict, bad.over, bad.value) == ("missed", 12, None)
    itl = status(ITL_P95, requests=make_requests(100, itl_s=0.01, failed=12))
    assert itl.verdict != "met"


def test_all_requests_failed_is_not_measured() -> None:
    found = status(TTFT_P95, requests=make_requests(5, failed=5))
    assert (found.verdict, found.reason) == ("not_measured", "all 5 requests failed")


def test_answers_of_one_token_have_no_itl() -> None:
    found = status(ITL_P95, requests=make_requests(80, output_tokens=1))
    assert found.verdict == "not_measured"
    assert "one token" in found.reason


@pytest.mark.parametrize(
    ("limit", "verdict"), [(0.16, "met"), (0.15, "not_proven"), (0.14, "missed")]
)
def test_a_mean_is_judged_by_its_interval(limit: float, verdict: str) -> None:
    found = status(target("ttft_s", "mean", limit), ttft_s=0.15)
    assert found.verdict == verdict
    assert found.value == pytest.approx(0.15, rel=0.01)


def test_a_mean_with_failed_requests_is_never_met() -> None:
    found = status(target("ttft_s", "mean", 1.0), requests=make_requests(100, failed=1))
    assert found.verdict == "not_proven"
    assert "1 of 100 requests failed" in found.reason


# --- arrivals and validity ---------------------------------------------------------------------


def test_latency_at_a_rate_is_not_proven_by_one_request_at_a_time() -> None:
    found = status(TTFT_P95, AT_RATE, ttft_s=0.1)
    assert found.verdict == "not_proven"
    assert "one request at a time; the target is for 12\u00a0req/s" in found.reason


def verified(workload: Workload, streams: int = 1) -> TrialEvidence:
    candidate = EngineSettings(dtype="float32")
    config = VerifyConfig(candidate=candidate, streams=streams)
    result = make_verify_result(candidate, ttft_s=0.05, itl_s=0.01, pairs=10, requests_per_run=12)
    return make_trial(result, role="verification", config=config, workload=workload)


def test_an_ab_trial_whose_requests_came_at_the_rate_can_prove_latency_at_it() -> None:
    trial = verified(AT_RATE)
    assert measured_at_rate(trial)
    assert not measured_at_rate(verified(CHAT))
    assert "0 of 120 requests over the limit" in target_status(trial, TTFT_P95, AT_RATE).reason
    missed = target_status(trial, target("ttft_s", "p95", 0.01), AT_RATE)
    assert missed.verdict == "missed"
    assert "one request" not in missed.reason


def test_a_closed_loop_names_its_requests_in_flight() -> None:
    met = target_status(verified(CHAT, 8), TTFT_P95, AT_RATE)
    assert met.verdict == "not_proven"
    assert "measured with 8 requests in flight; the target is for 12\u00a0req/s" in met.reason
    strict = target("ttft_s", "p95", 0.01)
    missed = target_status(verified(CHAT, 8), strict, AT_RATE)
    # Eight at once may well be more than the rate brings.
    assert missed.verdict == "not_proven"


def test_a_limit_missed_one_request_at_a_time_stays_missed_at_a_rate() -> None:
    found = status(ITL_P95, AT_RATE, itl_s=0.06)
    assert found.verdict == "missed"
    assert "already with one request at a time" in found.reason


def test_open_loop_arrivals_can_prove_latency_at_the_rate() -> None:
    requests = make_requests(1500, ttft_s=0.1, itl_s=0.01, rate_per_s=12)
    found = status(TTFT_P95, AT_RATE, requests=requests, arrivals="poisson")
    assert found.verdict == "met"


def test_an_invalid_measurement_proves_nothing() -> None:
    trial = make_trial(make_baseline_result(ttft_s=0.1), validity=make_validity("invalid"))
    found = target_status(trial, TTFT_P95, CHAT)
    assert found.verdict == "not_proven"
    assert "invalid: another process used the device" in found.reason


def test_a_warning_does_not_withdraw_the_verdict() -> None:
    trial = make_trial(make_baseline_result(ttft_s=0.1), validity=make_validity("warn"))
    assert target_status(trial, TTFT_P95, CHAT).verdict == "met"


# --- the other metrics -------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "verdict"), [(1.1e9, "met"), (1.0e9, "missed")])
def test_memory_is_exact_and_at_the_limit_is_within_it(limit: float, verdict: str) -> None:
    found = status(target("memory_bytes", "peak", limit), AT_RATE, peak_memory_bytes=1.1e9)
    assert (found.verdict, found.basis, found.low, found.high) == (verdict, "exact", 1.1e9, 1.1e9)


def test_energy_without_a_counter_is_not_measured_with_the_reason() -> None:
    found = status(target("joules_per_token", "mean", 2.0))
    assert (found.verdict, found.value) == ("not_measured", None)
    assert found.reason == "no energy counter on this device"


@pytest.mark.parametrize(
    ("joules", "verdict"), [(1.8, "met"), (1.98, "not_proven"), (2.2, "missed")]
)
def test_energy_read_once_is_decided_outside_the_noise(joules: float, verdict: str) -> None:
    found = status(target("joules_per_token", "mean", 2.0), joules_per_token=joules)
    assert found.verdict == verdict
    assert "measured once" in found.reason


@pytest.mark.parametrize(("limit", "verdict"), [(10, "met"), (16, "not_proven"), (25, "missed")])
def test_throughput_is_at_least(limit: float, verdict: str) -> None:
    goal = target("output_tok_s", "mean", limit)
    found = status(goal, ttft_s=0.1, itl_s=0.06, requests=make_requests(60, itl_s=0.06))
    assert found.verdict == verdict
    assert status(goal, AT_RATE, requests=make_requests(60)).verdict == "not_proven"


# --- trials without a number -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trial", "words"),
    [
        (None, "no trial has measured it yet"),
        (make_trial(), "trial 1 has no result yet"),
        (make_trial(state="cancelled"), "trial 1 was cancelled"),
        (make_kv_trial(), "trial 2 sends no requests"),
        (
            make_trial(failure=make_failure(FailureReason.OUT_OF_MEMORY)),
            "trial 1 failed: the model and its cache do not fit in memory",
        ),
    ],
)
def test_without_a_number_the_reason_is_said(trial, words: str) -> None:  # type: ignore[no-untyped-def]
    found = target_status(trial, TTFT_P95, CHAT)
    assert (found.verdict, found.value, found.trial_id) == ("not_measured", None, None)
    assert found.reason == words


def test_a_verification_is_judged_by_the_chosen_side() -> None:
    trial = make_verification(candidate=EngineSettings(dtype="float32"), pairs=12)
    assert target_status(trial, ITL_P95, CHAT, side="b").verdict == "met"
    assert target_status(trial, ITL_P95, CHAT, side="a").verdict == "missed"
    memory = target_status(trial, target("memory_bytes", "peak", 1e9), CHAT)
    assert memory.verdict == "not_measured"


def test_statuses_keep_the_order_of_the_study() -> None:
    spec = make_study_spec(targets=(ITL_P95, TTFT_P95))
    assert [s.target for s in target_statuses(make_current(), spec)] == [ITL_P95, TTFT_P95]


def test_labels_read_as_written() -> None:
    assert target_label(TTFT_P95) == "TTFT p95 ≤ 200\u00a0ms"
    assert target_label(ITL_P95) == "ITL p95 ≤ 50\u00a0ms"
    assert target_label(target("output_tok_s", "mean", 12.5)) == "Throughput ≥ 12.5\u00a0tok/s"
    assert target_name(target("memory_bytes", "peak", 1e9)) == "Memory"
