from __future__ import annotations

import pytest

from advisor.rules.checks.v001_measurement_invalid import FALLBACK, REMEDIES, check, remedy
from advisor.rules.rule import Verdict
from gpuagent.wire import SimulatedModel
from gpuagent.wire.measure import Validity, ValidityCheck
from tests.builders import (
    make_baseline_result,
    make_current,
    make_evidence,
    make_study_spec,
    make_trial,
    make_validity,
    make_variant,
)


def test_an_invalid_measurement_fails_with_what_to_do() -> None:
    validity = Validity(
        checks=(
            ValidityCheck(id="warmup", verdict="warn", message="Times had not settled"),
            ValidityCheck(
                id="other_cpu_load",
                verdict="invalid",
                message="Other processes used 70% of the processor",
                value=0.7,
                limit=0.5,
            ),
        )
    )
    trial = make_trial(make_baseline_result(), validity=validity, title="Current settings")
    (finding,) = check(make_evidence(trial))
    assert finding.verdict is Verdict.FAIL
    assert finding.title == (
        "Measure trial 1 (Current settings) again: other processes used 70% of the processor"
    )
    assert [item.text.split(":")[0] for item in finding.evidence] == ["invalid", "warning"]
    assert finding.evidence[0].text.endswith("(limit 0.5)")
    assert finding.change is not None
    assert finding.change.text == REMEDIES["other_cpu_load"]


def test_a_warning_is_told() -> None:
    trial = make_trial(
        make_baseline_result(),
        validity=make_validity("warn", "GPU clocks varied by 4%", "sm_clock_cov"),
    )
    (finding,) = check(make_evidence(trial))
    assert finding.verdict is Verdict.INFORMATIVE
    assert finding.title.endswith(": GPU clocks varied by 4%")


def test_valid_measurements_pass() -> None:
    (one,) = check(make_evidence(make_current()))
    assert (one.verdict, one.title) == (Verdict.PASS, "The measurement of trial 1 is valid")
    (two,) = check(make_evidence(make_current(), make_variant()))
    assert two.title == "All measurements are valid"


def test_not_checked_lines_are_no_finding() -> None:
    validity = Validity(
        checks=(ValidityCheck(id="x", verdict="not_checked", message="no such counter"),)
    )
    trial = make_trial(make_baseline_result(), validity=validity)
    assert check(make_evidence(trial))[0].verdict is Verdict.PASS


def test_nothing_measured_is_not_applicable() -> None:
    assert check(make_evidence())[0].verdict is Verdict.NOT_APPLICABLE
    assert check(make_evidence(make_trial()))[0].verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(("check_id", "text"), [*REMEDIES.items(), ("note_1", FALLBACK)])
def test_every_line_has_something_to_do(check_id: str, text: str) -> None:
    assert remedy(check_id) == text


def test_a_measurement_that_was_repeated_no_longer_fails() -> None:
    validity = make_validity("invalid", "Other processes used 70% of the processor")
    bad = make_trial(make_baseline_result(), validity=validity, title="Current settings")
    good = make_trial(make_baseline_result(), ordinal=2)
    (finding,) = check(make_evidence(bad, good))
    assert finding.verdict is Verdict.INFORMATIVE
    assert finding.title == (
        "Trial 1 (Current settings) was invalid and is measured again as trial 2: "
        "other processes used 70% of the processor"
    )


def test_a_simulation_warns_once_and_of_the_right_thing() -> None:
    spec = make_study_spec(engine="simulated", model=SimulatedModel(name="qwen3-32b-2xh100"))
    warning = ValidityCheck(id="simulated", verdict="warn", message="Simulated: nothing is real")
    trials = [
        make_trial(make_baseline_result(), ordinal=n, validity=Validity(checks=(warning,)))
        for n in (1, 2, 3)
    ]
    (finding,) = check(make_evidence(*trials, spec=spec, shape=None))
    assert finding.verdict is Verdict.INFORMATIVE
    assert finding.change is not None
    assert finding.change.text == REMEDIES["simulated"]
