from __future__ import annotations

import pytest

from advisor.comparable import hardware_of
from advisor.comparison import Side, compare_trials, sentence
from advisor.evidence import TrialEvidence
from gpuagent.wire import LengthSpec
from gpuagent.wire.serving import ServeConfig
from tests.builders import (
    make_baseline_result,
    make_current,
    make_environment,
    make_evidence,
    make_served,
    make_trial,
    make_variant,
    make_verification,
    make_workload,
)


def sides(*trials: TrialEvidence, shown: int = 2) -> tuple[Side, ...]:
    """Of a study with all of `trials` the first `shown`."""
    evidence = make_evidence(*trials)
    return tuple(Side(evidence, trial) for trial in trials[:shown])


def test_trials_one_after_the_other_are_compared_by_blocks_and_said_so() -> None:
    found = compare_trials(sides(make_current(), make_variant()))
    (pair,) = found.pairs
    assert pair.method == "one_after_other"
    assert "not interleaved" in pair.how
    ttft = next(d for d in pair.deltas if d.metric == "ttft_s")
    assert ttft.verdict == "better"
    assert ttft.change_frac is not None
    assert ttft.low_frac is not None
    assert ttft.high_frac is not None
    assert ttft.low_frac < ttft.change_frac < ttft.high_frac < 0
    assert ttft.unit_of_n == "block"
    assert ttft.noise_floor_frac is None
    assert [line.name for line in found.settings] == ["dtype"]
    assert "better in TTFT" in sentence(pair, "trial 1", "trial 3")


def test_an_interleaved_ab_of_the_same_settings_decides() -> None:
    found = compare_trials(sides(make_current(), make_variant(), make_verification()))
    (pair,) = found.pairs
    assert pair.method == "interleaved"
    assert pair.evidence_trial_id is not None
    runs = [d for d in pair.deltas if d.unit_of_n == "run"]
    assert runs
    assert all(d.noise_floor_frac is not None for d in runs)
    assert all(d.n == (6, 6) for d in runs)


def test_equal_trials_are_not_ranked() -> None:
    same = make_trial(make_baseline_result(seed=5), ordinal=2, role="current")
    (pair,) = compare_trials(sides(make_current(), same)).pairs
    latencies = [d for d in pair.deltas if d.metric.endswith("_s")]
    assert {d.verdict for d in latencies} == {"no_proven_difference"}
    assert all(d.reason for d in latencies)


def test_other_hardware_gives_no_claim_but_both_numbers() -> None:
    host = make_environment().host.model_copy(update={"cpu": "Another CPU"})
    other = make_environment().model_copy(update={"host": host})
    moved = make_trial(make_baseline_result(), ordinal=2, role="variant", environment=other)
    (pair,) = compare_trials(sides(make_current(), moved)).pairs
    assert pair.method == "none"
    assert "hardware differs" in pair.caveat
    assert {d.verdict for d in pair.deltas} == {"no_claim"}
    assert all(d.change_frac is None and d.before is not None for d in pair.deltas)


@pytest.mark.parametrize(
    ("trial", "said"),
    [
        (make_trial(state="failed", ordinal=2), "no result"),
        (
            make_trial(
                make_baseline_result(),
                ordinal=2,
                workload=make_workload(input_tokens=LengthSpec(mean=512)),
            ),
            "input length",
        ),
    ],
)
def test_what_may_not_be_compared_says_why(trial: TrialEvidence, said: str) -> None:
    (pair,) = compare_trials(sides(make_current(), trial)).pairs
    assert said in pair.caveat
    assert "No claim" in sentence(pair, "trial 1", "trial 2")


def test_a_closed_loop_tells_how_many_requests_it_keeps_in_flight() -> None:
    loads = [
        make_trial(make_served(), ordinal=n, config=ServeConfig(streams=streams))
        for n, streams in enumerate((1, 8), start=1)
    ]
    (rate,) = [
        line for line in compare_trials(sides(*loads)).environment if line.name == "Request rate"
    ]
    assert rate.values == ("one at a time", "8 requests in flight")


def test_two_to_four_different_trials() -> None:
    one = sides(make_current(), shown=1)
    for wrong in (one, one * 2, one * 5):
        with pytest.raises(ValueError, match="2 to 4"):
            compare_trials(wrong)


def test_a_simulated_device_is_the_hardware_and_not_who_computed_it() -> None:
    """Neither its host's processor nor a GPU in that host."""
    gpus = make_environment("cuda").gpus
    simulated = make_environment("simulated NVIDIA H100 SXM", gpus=gpus)
    assert hardware_of(simulated) == ("simulated NVIDIA H100 SXM",)
    assert len(hardware_of(make_environment("cuda"))) == 2
