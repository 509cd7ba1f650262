from __future__ import annotations

import pytest

from advisor.rules.checks.t001_target_missed import check
from advisor.rules.rule import Verdict
from gpuagent.wire import SlaTarget
from tests.builders import (
    ITL_P95,
    TTFT_P95,
    make_baseline_result,
    make_current,
    make_evidence,
    make_failure,
    make_study_spec,
    make_trial,
    make_validity,
    make_variant,
)


def test_each_target_gets_a_finding() -> None:
    findings = check(make_evidence(make_current(ttft_s=0.1, itl_s=0.06)))
    assert [f.verdict for f in findings] == [Verdict.PASS, Verdict.FAIL]
    assert findings[0].title == "TTFT p95 ≤ 200\u00a0ms is met: 104\u00a0ms"
    assert findings[1].title == "ITL p95 misses its limit of 50\u00a0ms: 62.9\u00a0ms"
    assert findings[1].change is not None
    assert "No measured configuration keeps this limit" in findings[1].change.text


def test_a_measured_way_out_is_named() -> None:
    findings = check(make_evidence(make_current(itl_s=0.06), make_variant(itl_s=0.03)))
    missed = findings[1]
    assert missed.verdict is Verdict.FAIL
    assert missed.title.startswith("Take the settings of trial 3 to keep ITL p95 ≤ 50")
    assert missed.change is not None
    assert missed.change.settings == {"dtype": "float32"}
    assert missed.gain == pytest.approx(1.0)
    assert len(missed.evidence) == 2
    assert missed.evidence[1].trial_id == make_variant().trial_id


def test_too_few_requests_cannot_tell_and_say_what_would() -> None:
    (finding,) = check(
        make_evidence(make_current(n_requests=30), spec=make_study_spec(targets=(TTFT_P95,)))
    )
    assert finding.verdict is Verdict.CANNOT_TELL
    assert finding.missing == "59 requests in all"


def test_an_invalid_measurement_cannot_tell() -> None:
    trial = make_trial(make_baseline_result(itl_s=0.06), validity=make_validity("invalid"))
    findings = check(make_evidence(trial))
    assert {f.verdict for f in findings} == {Verdict.CANNOT_TELL}
    assert "The measurement is invalid" in findings[1].summary


def test_at_the_limit_memory_passes_and_one_byte_more_fails() -> None:
    goal = SlaTarget(metric="memory_bytes", statistic="peak", limit=1.1e9)
    spec = make_study_spec(targets=(goal,))
    at = check(make_evidence(make_current(peak_memory_bytes=1.1e9), spec=spec))
    above = check(make_evidence(make_current(peak_memory_bytes=1.1e9 + 1), spec=spec))
    assert at[0].verdict is Verdict.PASS
    assert above[0].verdict is Verdict.FAIL


def test_not_measured_says_why() -> None:
    goal = SlaTarget(metric="joules_per_token", statistic="mean", limit=2.0)
    (finding,) = check(make_evidence(make_current(), spec=make_study_spec(targets=(goal,))))
    assert finding.verdict is Verdict.NOT_APPLICABLE
    assert finding.missing == "no energy counter on this device"


def test_without_targets_or_trials_it_is_not_applicable() -> None:
    (none,) = check(make_evidence(spec=make_study_spec(targets=())))
    assert none.missing is not None
    assert {f.verdict for f in check(make_evidence())} == {Verdict.NOT_APPLICABLE}
    failed = check(make_evidence(make_trial(failure=make_failure())))
    assert {f.verdict for f in failed} == {Verdict.NOT_APPLICABLE}


def test_a_variant_that_misses_too_shows_the_bound() -> None:
    (finding,) = check(
        make_evidence(
            make_current(itl_s=0.09),
            make_variant(itl_s=0.07),
            spec=make_study_spec(targets=(ITL_P95,)),
        )
    )
    assert finding.verdict is Verdict.FAIL
    assert finding.change is not None
    assert "would need a limit of at least 73" in finding.change.text
