""" "Throughput did not improve": every step by what it needs, and the walk's conclusion."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.diagnoses import Diagnosis, Step, throughput_walk
from advisor.evidence import TrialEvidence
from gpuagent.wire import EngineSettings
from gpuagent.wire.measure import Validity, ValidityCheck
from tests.builders import (
    make_baseline_result,
    make_current,
    make_device,
    make_evidence,
    make_kv_trial,
    make_profile_result,
    make_recorded_trace,
    make_requests,
    make_study_spec,
    make_trial,
    make_validity,
    make_variant,
    make_verification,
    make_workload,
)
from tests.rule_checks import make_counters

SMALL = EngineSettings(dtype="bfloat16", max_running=4)
LARGE = EngineSettings(dtype="bfloat16", max_running=64)


def walk(*trials: TrialEvidence, trial: int | None = None, **fields: Any) -> Diagnosis:
    return throughput_walk(make_evidence(*trials, **fields), trial)


def step(name: str, *trials: TrialEvidence, **fields: Any) -> Step:
    return next(s for s in walk(*trials, **fields).steps if s.id == name)


def at_rate(settings: EngineSettings, *, ordinal: int = 1, **result: Any) -> TrialEvidence:
    """A trial under 2 requests a second of 16 tokens each, by default served in full."""
    fields: dict[str, Any] = {
        "requests": make_requests(200, ttft_s=0.05, itl_s=0.01, rate_per_s=2, seed=ordinal),
        "arrivals": "poisson",
        **result,
    }
    return make_trial(
        make_baseline_result(**fields),
        ordinal=ordinal,
        role="current" if ordinal == 1 else "variant",
        settings=settings,
    )


RATE = {"spec": make_study_spec(workload=make_workload(request_rate_per_s=2.0))}


def test_a_change_that_helped_is_no_complaint() -> None:
    found = walk(make_current(), make_variant())
    assert found.outcome == "no_complaint"
    assert found.conclusion.startswith("Throughput did improve: 15")
    assert found.compared == (1, 3)


def test_an_interleaved_proof_counts_before_one_measurement_each() -> None:
    found = walk(make_current(), make_variant(), make_verification(ratio=0.5))
    assert "in the interleaved A/B (6 runs each)" in found.conclusion


def test_without_a_changed_trial_it_says_what_to_run() -> None:
    for trials in ((), (make_current(),), (make_current(), make_kv_trial())):
        found = walk(*trials)
        assert (found.outcome, found.compared) == ("cannot_tell", None)
        assert "A trial of the changed settings" in found.conclusion


def test_an_invalid_side_comes_first() -> None:
    bad = make_trial(
        make_baseline_result("float32"),
        ordinal=3,
        role="variant",
        settings=EngineSettings(dtype="float32"),
        validity=make_validity("invalid"),
    )
    found = walk(make_current(), bad)
    assert found.conclusion.startswith("The measurement is invalid: trial 3")


def test_a_load_that_asks_for_no_more_is_the_cause() -> None:
    found = walk(at_rate(SMALL), at_rate(LARGE, ordinal=2), **RATE)
    assert found.conclusion.startswith("The load asks for no more")
    demand = next(s for s in found.steps if s.id == "demand")
    assert demand.evidence[0].value == pytest.approx(1.0, abs=0.15)


def test_a_load_that_is_not_served_passes_that_step() -> None:
    slow = make_requests(200, ttft_s=30.0, itl_s=8.0, rate_per_s=2)
    trials = at_rate(SMALL, requests=slow), at_rate(LARGE, ordinal=2, requests=slow)
    assert step("demand", *trials, **RATE).verdict == "pass"


def test_a_late_client_is_the_cause() -> None:
    late = Validity(
        checks=(ValidityCheck(id="send_lag", verdict="invalid", message="p99 300 ms late"),)
    )
    trial = at_rate(LARGE, ordinal=2)
    found = make_trial(
        trial.result.measurements if trial.result else None,
        ordinal=2,
        role="variant",
        settings=LARGE,
        validity=late,
    )
    client = step("client", at_rate(SMALL), found, **RATE)
    assert client.verdict == "fail"
    assert "p99 300 ms late" in client.answer
    assert step("client", at_rate(SMALL), trial, **RATE).verdict == "cannot_tell"
    assert step("client", make_current(), make_variant(itl_s=0.07)).verdict == "pass"


@pytest.mark.parametrize(("after", "verdict"), [(4, "fail"), (5, "pass")])
def test_a_batch_that_never_grew(after: int, verdict: str) -> None:
    trials = (
        at_rate(SMALL, server=make_counters(running_peak=4)),
        at_rate(LARGE, ordinal=2, server=make_counters(running_peak=after)),
    )
    assert step("batch", *trials, **RATE).verdict == verdict


def test_a_batch_limit_means_nothing_one_request_at_a_time() -> None:
    trials = (
        make_trial(make_baseline_result(), settings=SMALL),
        make_trial(make_baseline_result(), ordinal=2, role="variant", settings=LARGE),
    )
    found = step("batch", *trials)
    assert found.cause == "The batch never grew: requests are sent one at a time"


def test_a_batch_without_counters_cannot_be_told() -> None:
    busy = make_requests(100, ttft_s=0.5, itl_s=0.05, rate_per_s=2)
    trials = at_rate(SMALL, requests=busy), at_rate(LARGE, ordinal=2, requests=busy)
    assert step("batch", *trials, **RATE).verdict == "cannot_tell"


def test_the_host_is_the_new_bound() -> None:
    on_gpu = {"device": make_device("gpu")}
    slower = make_variant(ttft_s=0.15, itl_s=0.06)
    profile = make_trial(make_profile_result(), ordinal=5, role="diagnosis")
    found = step("host", make_current(), slower, profile, **on_gpu)
    assert (found.verdict, found.rule_id) == ("fail", "launch-overhead")
    assert step("host", make_current(), slower, **on_gpu).run is not None
    fine = make_trial(
        make_profile_result(traces=(make_recorded_trace(findings=(), bottleneck="compute"),)),
        ordinal=5,
        role="diagnosis",
    )
    assert step("host", make_current(), slower, fine, **on_gpu).verdict == "pass"
    on_cpu = step("host", make_current(), slower, profile)
    assert (on_cpu.verdict, on_cpu.rule_id) == ("cannot_tell", "step-recoverable")
    assert step("tensor_cores", make_current(), slower).verdict == "pass"
    assert step("tensor_cores", make_current(), slower, **on_gpu).verdict == "cannot_tell"


def test_the_cache_limit_is_read_from_the_changed_trial() -> None:
    trials = (
        at_rate(SMALL, server=make_counters()),
        at_rate(LARGE, ordinal=2, server=make_counters(preemptions=7, starved_frac=0.3)),
    )
    spec = RATE["spec"].model_copy(update={"targets": (), "engine": "vllm"})
    assert step("kv_limit", *trials, spec=spec).verdict == "fail"
    assert step("kv_limit", *trials).verdict == "pass"


def test_a_format_without_a_kernel_is_the_cause() -> None:
    found = walk(make_current(itl_s=0.03), make_variant(ttft_s=0.15, itl_s=0.06))
    assert found.conclusion.startswith("The format falls back to a slow kernel: bfloat16 to")


def test_a_difference_within_the_noise_asks_for_pairs() -> None:
    found = step("noise", make_current(), make_variant(ttft_s=0.15, itl_s=0.06))
    assert (found.verdict, found.run) == (
        "cannot_tell",
        "An interleaved A/B of the two configurations",
    )
    proven = step(
        "noise", make_current(), make_variant(ttft_s=0.15, itl_s=0.06), make_verification(ratio=1.0)
    )
    assert proven.verdict == "fail"
    assert "no difference" in (proven.cause or "")


def test_a_chosen_trial_must_have_other_settings() -> None:
    found = walk(make_current(), make_variant(ttft_s=0.15, itl_s=0.06), trial=3)
    assert found.compared == (1, 3)
    for number in (1, 9):
        with pytest.raises(KeyError, match=f"trial {number}"):
            walk(make_current(), make_variant(), trial=number)
