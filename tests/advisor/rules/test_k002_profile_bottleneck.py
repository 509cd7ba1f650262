from __future__ import annotations

from advisor.rules.checks.k002_profile_bottleneck import ID, check
from advisor.rules.engine import evaluate
from advisor.rules.rule import Finding, Verdict
from gpuagent.wire import Quantity
from gpuagent.wire.trial import ProfileResult, RecordedTrace
from tests.builders import (
    make_current,
    make_evidence,
    make_profile_result,
    make_recorded_trace,
    make_trial,
)


def findings(result: ProfileResult) -> list[Finding]:
    return check(make_evidence(make_current(), make_trial(result, ordinal=2, role="diagnosis")))


def of(*traces: RecordedTrace, **result: object) -> list[Finding]:
    return findings(make_profile_result(traces=traces, **result))


def test_the_class_of_the_trace_is_told_and_the_advice_left_to_its_rule() -> None:
    (finding,) = findings(make_profile_result())
    assert finding.verdict is Verdict.INFORMATIVE
    assert finding.title == "A step is launch-bound: launch kernels in one go"
    assert finding.change is None
    assert finding.confidence == "high"
    assert finding.evidence[0].value == 0.86
    texts = [item.text.replace("\u00a0", " ") for item in finding.evidence]
    assert any("75 % of the window" in text for text in texts)
    assert any("1.20 times as long" in text for text in texts)


def test_a_profiler_that_slows_the_host_lowers_the_confidence() -> None:
    (finding,) = findings(make_profile_result(overhead_ratio=Quantity(value=2.0)))
    assert finding.confidence == "low"
    assert "2.0 times" in finding.confidence_reason
    (nsys,) = of(make_recorded_trace(recorder="nsys"), overhead_ratio=Quantity(value=2.0))
    assert nsys.confidence == "high"


def test_an_abstaining_trace_stays_open_and_advises_nothing() -> None:
    (finding,) = of(make_recorded_trace(bottleneck="cannot_tell", findings=()))
    assert finding.verdict is Verdict.CANNOT_TELL
    assert finding.change is None


def test_a_trace_without_findings_passes() -> None:
    (finding,) = of(make_recorded_trace(bottleneck="compute_bound", findings=()))
    assert finding.verdict is Verdict.PASS
    assert "compute-bound" in finding.title


def test_cpu_operators_are_told_and_advise_nothing() -> None:
    (finding,) = of(make_recorded_trace(work="cpu", bottleneck="cpu_work", findings=()))
    assert finding.verdict is Verdict.INFORMATIVE
    assert "GEMM takes 71" in finding.title
    assert finding.change is None


def test_two_profilers_that_agree_speak_once() -> None:
    assert len(of(make_recorded_trace(), make_recorded_trace(recorder="nsys"))) == 1
    other = make_recorded_trace(recorder="nsys", bottleneck="sync_bound")
    assert len(of(make_recorded_trace(), other)) == 2


def test_without_a_profile_it_says_what_to_run() -> None:
    (finding,) = check(make_evidence(make_current()))
    assert finding.verdict is Verdict.NOT_APPLICABLE
    assert finding.missing


def test_it_reaches_the_findings_of_a_study() -> None:
    found = evaluate(make_evidence(make_current(), make_trial(make_profile_result(), ordinal=2)))
    assert any(f.rule_id == ID and f.verdict is Verdict.INFORMATIVE for f in found)
    advice = [f for f in found if f.rule_id == "launch-overhead"]
    assert [f.verdict for f in advice] == [Verdict.FAIL]
