from __future__ import annotations

from typing import Literal

import pytest

from advisor.evidence import TrialEvidence
from advisor.rules.checks import s012_client_bound
from advisor.rules.rule import Verdict
from gpuagent.wire import SimulatedModel
from gpuagent.wire.measure import Validity, ValidityCheck
from tests.builders import (
    make_baseline_result,
    make_current,
    make_request,
    make_study_spec,
    make_trial,
)
from tests.rule_checks import assert_says_what_is_missing, one, text_of

Line = Literal["valid", "warn", "invalid", "not_checked"]


def at_rate(verdict: Line, *, queue_s: float = 0.03) -> TrialEvidence:
    """Twenty requests under a rate, of which each waited `queue_s` of 0.1 s in the client."""
    requests = [make_request(float(n), ttft_s=0.1, queue_s=queue_s) for n in range(20)]
    result = make_baseline_result(requests=requests, arrivals="poisson")
    line = ValidityCheck(id="send_lag", verdict=verdict, message="p99 12 ms late", value=1.2)
    return make_trial(result, validity=Validity(checks=(line,)))


@pytest.mark.parametrize(
    ("line", "verdict", "confidence"),
    [
        ("valid", Verdict.PASS, "medium"),
        ("warn", Verdict.FAIL, "medium"),
        ("invalid", Verdict.FAIL, "high"),
        ("not_checked", Verdict.CANNOT_TELL, "medium"),
    ],
)
def test_the_checklist_decides_at_its_limits(line: Line, verdict: Verdict, confidence: str) -> None:
    finding = one(s012_client_bound, at_rate(line))
    assert (finding.verdict, finding.confidence) == (verdict, confidence)
    if verdict is Verdict.FAIL:
        assert "30 % of the time to first token passed in the client" in text_of(finding)
        assert finding.change is not None


def test_an_older_agent_leaves_it_open() -> None:
    old = at_rate("valid")
    assert old.result is not None
    bare = make_trial(old.result.measurements, validity=Validity())
    assert one(s012_client_bound, bare).verdict is Verdict.CANNOT_TELL


def test_a_simulated_engine_has_no_client() -> None:
    spec = make_study_spec(engine="simulated", model=SimulatedModel(name="qwen3-32b-2xh100"))
    finding = one(s012_client_bound, at_rate("valid"), spec=spec)
    assert finding.verdict is Verdict.NOT_APPLICABLE
    assert_says_what_is_missing(finding)


def test_without_a_rate_or_a_trial_it_does_not_apply() -> None:
    assert_says_what_is_missing(one(s012_client_bound, make_current()))
    assert_says_what_is_missing(one(s012_client_bound))
