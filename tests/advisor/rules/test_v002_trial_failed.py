from __future__ import annotations

import pytest

from advisor.rules.checks.v002_trial_failed import check
from advisor.rules.rule import Verdict
from gpuagent.wire import FAILURES, EngineSettings, FailureReason
from tests.builders import (
    make_current,
    make_device,
    make_evidence,
    make_failure,
    make_trial,
)


@pytest.mark.parametrize("reason", list(FailureReason))
def test_every_reason_becomes_a_finding_with_its_fix(reason: FailureReason) -> None:
    trial = make_trial(failure=make_failure(reason, "what the engine said"))
    (finding,) = check(make_evidence(trial))
    assert finding.verdict is Verdict.FAIL
    assert finding.title.startswith(FAILURES[reason].text)
    assert finding.evidence[0].text == "what the engine said"
    assert finding.change is not None
    assert finding.change.text.startswith(FAILURES[reason].fix)


def test_out_of_memory_says_how_much_is_needed_and_there() -> None:
    settings = EngineSettings(dtype="float32")
    trial = make_trial(failure=make_failure(), settings=settings)
    (finding,) = check(make_evidence(trial, device=make_device(memory_bytes=512 * 1024**2)))
    item = finding.evidence[1]
    assert item.value is not None
    assert item.value > 134_515_008 * 4
    assert "the device has 512\u00a0MiB" in item.text
    assert finding.change is not None
    assert finding.change.settings == {"dtype": "bfloat16"}


def test_without_shape_or_device_memory_the_reason_is_still_there() -> None:
    trial = make_trial(failure=make_failure())
    (bare,) = check(make_evidence(trial, shape=None))
    assert len(bare.evidence) == 1
    (unknown,) = check(make_evidence(trial, device=None))
    assert "the device has" not in unknown.evidence[1].text


def test_a_variant_that_cannot_run_is_told_and_no_fault() -> None:
    variant = make_trial(failure=make_failure(), ordinal=2, role="variant")
    findings = check(make_evidence(make_current(), variant))
    assert [f.verdict for f in findings] == [Verdict.INFORMATIVE]


def test_a_quarantined_trial_points_at_the_agent() -> None:
    trial = make_trial(state="quarantined", attempts=2)
    (finding,) = check(make_evidence(trial))
    assert finding.verdict is Verdict.FAIL
    assert "withdrawn after 2 attempts" in finding.title


def test_results_pass_and_nothing_ended_is_not_applicable() -> None:
    assert check(make_evidence(make_current()))[0].verdict is Verdict.PASS
    assert check(make_evidence(make_trial()))[0].verdict is Verdict.NOT_APPLICABLE
