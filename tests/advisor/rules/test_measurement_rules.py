"""Rules on measurement itself: fails with evidence, passes, not applicable, at the threshold."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.evidence import TrialEvidence
from advisor.rules.checks import (
    v004_environment_differs,
    v005_repeats_disagree,
    v006_warm_up_in_window,
    v007_lengths_differ,
)
from advisor.rules.rule import Verdict
from gpuagent.wire import EngineSettings, LengthSpec
from gpuagent.wire.measure import RequestRecord
from tests.builders import (
    make_baseline_result,
    make_current,
    make_environment,
    make_request,
    make_requests,
    make_trial,
    make_validity,
    make_variant,
    make_verification,
    make_workload,
)
from tests.rule_checks import assert_says_what_is_missing, invalid, one, text_of


@pytest.mark.parametrize(
    "module",
    [
        v004_environment_differs,
        v005_repeats_disagree,
        v006_warm_up_in_window,
        v007_lengths_differ,
    ],
    ids=lambda module: module.ID,
)
def test_without_its_evidence_a_rule_says_what_is_missing(module: Any) -> None:
    assert_says_what_is_missing(one(module, shape=None, device=None))
    assert_says_what_is_missing(one(module, invalid()))


# --- environment -------------------------------------------------------------------------------


def variant_under(**environment: Any) -> TrialEvidence:
    return make_trial(
        make_baseline_result("float32"),
        ordinal=3,
        role="variant",
        settings=EngineSettings(dtype="float32"),
        environment=make_environment(**environment),
    )


def test_an_update_between_two_trials_fails_and_names_the_versions() -> None:
    other = variant_under(versions={"torch": "2.14.0", "transformers": "5.1.0"})
    finding = one(v004_environment_differs, make_current(), other)
    assert finding.verdict is Verdict.FAIL
    assert "torch 2.13.0 and 2.14.0" in text_of(finding)
    assert "transformers" not in finding.evidence[0].text


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"driver_version": "570.1"}, "driver"),
        ({"versions": {"torch": "2.13.0"}}, "transformers 5.1.0 and unknown"),
        ({"device": "cuda:0"}, "GPUs"),
    ],
)
def test_device_and_driver_count_as_well(environment: dict[str, Any], words: str) -> None:
    finding = one(v004_environment_differs, make_current(), variant_under(**environment))
    assert finding.verdict is Verdict.FAIL
    assert words in text_of(finding)


def test_threads_are_a_setting_and_no_other_environment() -> None:
    finding = one(v004_environment_differs, make_current(), variant_under(threads=1))
    assert finding.verdict is Verdict.PASS
    assert finding.evidence[0].value is None
    assert finding.evidence[0].n == 2


def test_one_configuration_has_nothing_to_differ_from() -> None:
    assert_says_what_is_missing(one(v004_environment_differs, make_current()))


# --- repeats -----------------------------------------------------------------------------------


def again(factor: float, *, ordinal: int = 2, **result: Any) -> TrialEvidence:
    """The current settings once more, in `factor` of the time."""
    fields = {"ttft_s": 0.15 * factor, "itl_s": 0.06 * factor, "seed": 7, **result}
    return make_trial(make_baseline_result(**fields), ordinal=ordinal)


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.04, Verdict.PASS), (1.07, Verdict.FAIL), (0.93, Verdict.FAIL)]
)
def test_repeats_may_differ_by_the_noise(factor: float, verdict: Verdict) -> None:
    finding = one(v005_repeats_disagree, make_current(), again(factor))
    assert finding.verdict is verdict
    assert finding.evidence[0].value == pytest.approx(factor, abs=0.01)
    assert finding.evidence[0].low is not None
    if verdict is Verdict.FAIL:
        assert "between trials 1 and 2" in finding.title


def test_at_a_rate_only_decode_steps_are_compared() -> None:
    # The queue of another run is another queue.
    first = make_current(arrivals="poisson", decode_s=0.06)
    slow_queue = again(3.0, arrivals="poisson", decode_s=0.06)
    assert one(v005_repeats_disagree, first, slow_queue).verdict is Verdict.PASS
    slow_steps = again(1.0, arrivals="poisson", decode_s=0.07)
    assert one(v005_repeats_disagree, first, slow_steps).verdict is Verdict.FAIL


def test_a_verification_measures_both_settings_once_more() -> None:
    trials = (make_current(), make_variant(), make_verification())
    finding = one(v005_repeats_disagree, *trials)
    assert finding.verdict is Verdict.PASS
    assert [item.trial_id for item in finding.evidence] == [trials[2].trial_id] * 2
    slower = one(v005_repeats_disagree, make_current(ttft_s=0.12, itl_s=0.048), *trials[1:])
    assert slower.verdict is Verdict.FAIL
    assert "between trials 1 and 4" in slower.title


def test_other_settings_and_invalid_trials_are_no_repeats() -> None:
    assert_says_what_is_missing(one(v005_repeats_disagree, make_current(), make_variant()))
    disturbed = make_trial(
        make_baseline_result(ttft_s=0.5), ordinal=2, validity=make_validity("invalid")
    )
    assert_says_what_is_missing(one(v005_repeats_disagree, make_current(), disturbed))


# --- warm-up -----------------------------------------------------------------------------------


def with_first(first: RequestRecord, n: int = 20) -> TrialEvidence:
    """A first request before n of 0.15 s and 15 gaps of 0.03 s, one after the other."""
    rest = make_requests(n, ttft_s=0.15, itl_s=0.03, cov=0.0)
    later = tuple(
        make_request(100 + r.intended_s, ttft_s=0.15, gaps_s=[0.03] * 15, input_tokens=64)
        for r in rest
    )
    return make_current(requests=(first, *later))


@pytest.mark.parametrize(("ratio", "verdict"), [(2.99, Verdict.PASS), (3.01, Verdict.FAIL)])
def test_a_first_request_of_three_times_the_others_is_warm_up(
    ratio: float, verdict: Verdict
) -> None:
    first = make_request(ttft_s=0.15 * ratio, gaps_s=[0.03 * ratio] * 15)
    finding = one(v006_warm_up_in_window, with_first(first))
    assert finding.verdict is verdict
    assert finding.evidence[0].value == pytest.approx(ratio)
    text = text_of(finding)
    # Both means stand beside each other.
    assert "with it and 600 ms without" in text
    assert finding.change is None or finding.change.settings == {}


@pytest.mark.parametrize(
    "first",
    [
        make_request(ttft_s=0.15, gaps_s=[], input_tokens=64),  # a short answer
        make_request(ttft_s=1.5, gaps_s=[0.03] * 15, input_tokens=640),  # a long prompt
        make_request(ttft_s=0.15, gaps_s=[0.03] * 150, input_tokens=64),  # a long answer
    ],
)
def test_other_lengths_do_not_look_like_warm_up(first: RequestRecord) -> None:
    assert one(v006_warm_up_in_window, with_first(first)).verdict is Verdict.PASS


def test_warm_up_is_not_seen_in_a_queue_or_among_five_requests() -> None:
    assert_says_what_is_missing(one(v006_warm_up_in_window, make_current(arrivals="poisson")))
    assert_says_what_is_missing(one(v006_warm_up_in_window, make_current(n_requests=5)))
    assert one(v006_warm_up_in_window, make_current(n_requests=6)).verdict is Verdict.PASS


# --- lengths -----------------------------------------------------------------------------------


def counted(prompt: int, answer: int) -> TrialEvidence:
    requests = make_requests(20, input_tokens=prompt, output_tokens=answer)
    workload = make_workload(
        input_tokens=LengthSpec(mean=1000), output_tokens=LengthSpec(mean=100), requests=20
    )
    return make_trial(make_baseline_result(requests=requests), workload=workload)


@pytest.mark.parametrize(
    ("prompt", "answer", "verdict", "words"),
    [
        (1000, 100, Verdict.PASS, "those of the workload"),
        (951, 104, Verdict.PASS, "those of the workload"),
        (949, 100, Verdict.INFORMATIVE, "5.1 % shorter"),
        (1000, 106, Verdict.INFORMATIVE, "6.0 % longer"),
        (900, 100, Verdict.INFORMATIVE, "10.0 % shorter"),
    ],
)
def test_lengths_may_differ_by_a_twentieth(
    prompt: int, answer: int, verdict: Verdict, words: str
) -> None:
    finding = one(v007_lengths_differ, counted(prompt, answer))
    assert finding.verdict is verdict
    assert words in text_of(finding)
    assert [item.value for item in finding.evidence] == [prompt, answer]
    assert finding.change is None


def test_a_difference_that_few_requests_do_not_prove_is_none() -> None:
    lengths = (20, 400, 30, 500, 45)
    requests = tuple(make_request(i * 60.0, input_tokens=n) for i, n in enumerate(lengths))
    workload = make_workload(
        input_tokens=LengthSpec(mean=250), output_tokens=LengthSpec(mean=4), requests=5
    )
    trial = make_trial(make_baseline_result(requests=requests), workload=workload)
    assert one(v007_lengths_differ, trial).verdict is Verdict.PASS
    assert_says_what_is_missing(one(v007_lengths_differ, make_current(n_requests=4)))
