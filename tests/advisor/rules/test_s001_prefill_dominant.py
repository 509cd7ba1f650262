from __future__ import annotations

import pytest

from advisor.rules.checks.s001_prefill_dominant import check
from advisor.rules.rule import Finding, Verdict
from tests.builders import (
    ITL_P95,
    TTFT_P95,
    make_baseline_result,
    make_current,
    make_evidence,
    make_requests,
    make_study_spec,
    make_trial,
    make_validity,
)
from tests.rule_checks import assert_says_what_is_missing, make_counters


def only(ttft_s: float, *, targets=(TTFT_P95,), output_tokens: int = 16, **fields) -> Finding:  # type: ignore[no-untyped-def]
    requests = make_requests(60, ttft_s=ttft_s, itl_s=0.02, output_tokens=output_tokens, **fields)
    (finding,) = check(
        make_evidence(make_current(requests=requests), spec=make_study_spec(targets=targets))
    )
    return finding


def test_prefill_above_half_fails_with_its_cost_per_token() -> None:
    finding = only(0.9)
    assert finding.verdict is Verdict.FAIL
    assert finding.title == "Shorten prefill: it is 75\u00a0% of every answer"
    assert finding.evidence[0].n == 60
    assert finding.evidence[0].low is not None
    assert finding.evidence[1].text.startswith("One prompt token costs 14")
    assert finding.change is not None


def test_prefill_below_half_passes() -> None:
    assert only(0.1).verdict is Verdict.PASS


# 15 gaps of 20 ms are 300 ms.
@pytest.mark.parametrize(
    ("ttft_s", "verdict"), [(0.29, "pass"), (0.301, "cannot_tell"), (0.33, "fail")]
)
def test_half_is_the_threshold_with_room_for_noise(ttft_s: float, verdict: str) -> None:
    assert only(ttft_s).verdict == verdict


def test_short_answers_are_prefill_by_nature() -> None:
    assert only(0.9, output_tokens=4).verdict is Verdict.INFORMATIVE


def test_within_the_latency_targets_it_is_only_told() -> None:
    generous = TTFT_P95.model_copy(update={"limit": 5.0})
    assert only(0.9, targets=(generous,)).verdict is Verdict.INFORMATIVE
    assert only(0.9, targets=(ITL_P95,)).verdict is Verdict.INFORMATIVE
    assert only(0.9, targets=()).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    "evidence",
    [
        make_evidence(),
        make_evidence(make_current(requests=())),
        make_evidence(make_trial(make_baseline_result(), validity=make_validity("invalid"))),
    ],
)
def test_without_valid_requests_it_is_not_applicable(evidence) -> None:  # type: ignore[no-untyped-def]
    (finding,) = check(evidence)
    assert finding.verdict is Verdict.NOT_APPLICABLE
    assert finding.missing


def test_a_queue_inside_a_server_is_not_called_prefill() -> None:
    requests = make_requests(60, ttft_s=9.0, itl_s=0.02, rate_per_s=4.0)
    trial = make_current(requests=requests, arrivals="poisson", server=make_counters())
    (finding,) = check(make_evidence(trial))
    assert_says_what_is_missing(finding)
