"""Rules on the misuse of a server: fails with evidence, passes, threshold, cannot tell, missing."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.rules.checks import (
    f006_health_check_lies,
    f007_abandoned_work,
    f008_overload_unanswered,
    f009_bad_request_breaks,
)
from advisor.rules.rule import Finding, Verdict
from advisor.thresholds import HEALTH_BAD_MAX, OVERLOAD_MAX_WAIT
from gpuagent.wire import EngineSettings
from gpuagent.wire.robustness import CHECKS, RobustnessConfig
from tests.builders import (
    make_current,
    make_evidence,
    make_failure,
    make_robustness,
    make_study_spec,
    make_trial,
    make_validity,
)
from tests.rule_checks import assert_says_what_is_missing, one, text_of, through_engine

MODULES = (
    f006_health_check_lies,
    f007_abandoned_work,
    f008_overload_unanswered,
    f009_bad_request_breaks,
)
VLLM = make_study_spec(engine="vllm", current=EngineSettings())


def found(module: Any, **result: Any) -> Finding:
    result.setdefault("seen", {})
    trial = make_trial(make_robustness(**result), ordinal=4, role="diagnosis")
    return one(module, make_current(), trial, spec=VLLM)


def failed(sentence: str = "it went wrong", **more: Any) -> dict[str, Any]:
    return {"verdict": "fail", "sentence": sentence, **more}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.ID)
def test_without_a_test_a_rule_says_how_to_get_one(module: Any) -> None:
    finding = one(module, make_current())
    assert_says_what_is_missing(finding)
    assert "A study of a server" in (finding.missing or "")
    finding = one(module, make_current(), spec=VLLM)
    assert "the plan left it out" in (finding.missing or "")
    unwanted = VLLM.model_copy(update={"robustness": False})
    assert "choose it" in (one(module, make_current(), spec=unwanted).missing or "")
    open_study = one(module, make_current(), spec=VLLM, finished=False)
    assert "The end of the study" in (open_study.missing or "")
    broken = make_trial(failure=make_failure(), ordinal=4, config=RobustnessConfig())
    assert "trial 4 failed" in (one(module, make_current(), broken, spec=VLLM).missing or "")


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.ID)
def test_a_server_that_takes_everything_well_passes(module: Any) -> None:
    finding = found(module)
    assert finding.verdict is Verdict.PASS
    assert finding.evidence


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.ID)
def test_an_invalid_test_is_not_judged(module: Any) -> None:
    trial = make_trial(
        make_robustness(**dict.fromkeys(CHECKS, "fail")),
        ordinal=4,
        role="diagnosis",
        validity=make_validity("invalid"),
    )
    evidence = make_evidence(make_current(), trial, spec=VLLM)
    assert through_engine(module.ID, evidence).verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("module", "line"),
    [
        (f006_health_check_lies, "health"),
        (f007_abandoned_work, "client_timeout"),
        (f007_abandoned_work, "cancelled_streams"),
        (f007_abandoned_work, "kv_released"),
        (f008_overload_unanswered, "overload"),
        (f008_overload_unanswered, "recovery"),
        (f008_overload_unanswered, "still_serving"),
        (f009_bad_request_breaks, "long_prompt"),
        (f009_bad_request_breaks, "max_tokens"),
        (f009_bad_request_breaks, "malformed_request"),
    ],
    ids=lambda value: getattr(value, "ID", value),
)
def test_each_misuse_that_is_taken_badly_fails_with_its_line(module: Any, line: str) -> None:
    finding = found(module, **{line: failed("the server answered 500", value=500.0, unit="status")})
    assert finding.verdict is Verdict.FAIL
    assert finding.change is not None
    assert finding.change.settings == {}
    assert "the server answered 500" in text_of(finding)
    assert finding.evidence[0].trial_id is not None


@pytest.mark.parametrize(
    ("module", "lines"),
    [
        (f007_abandoned_work, ("client_timeout",)),
        (f009_bad_request_breaks, ("long_prompt",)),
    ],
    ids=lambda value: getattr(value, "ID", ""),
)
def test_what_cannot_be_told_is_not_passed(module: Any, lines: tuple[str, ...]) -> None:
    unknown = {name: {"verdict": "cannot_tell", "sentence": "no metrics here"} for name in lines}
    finding = found(module, **unknown)
    assert finding.verdict is Verdict.CANNOT_TELL
    assert "no metrics here" in text_of(finding)


# --- health ------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["plain_request", "still_serving"])
def test_a_health_check_that_answers_for_a_broken_server_lies(line: str) -> None:
    finding = found(f006_health_check_lies, **{line: failed("completions fail")})
    assert finding.verdict is Verdict.FAIL
    assert "answers 200 for a server that does not" in finding.title


@pytest.mark.parametrize(
    ("bad", "verdict"),
    [(0, Verdict.PASS), (1, Verdict.INFORMATIVE), (2, Verdict.INFORMATIVE), (3, Verdict.FAIL)],
)
def test_three_late_checks_in_an_overload_restart_a_container(bad: int, verdict: Verdict) -> None:
    assert HEALTH_BAD_MAX.value == 2
    finding = found(f006_health_check_lies, seen={"health_bad": bad})
    assert finding.verdict is verdict
    assert f"{bad} of 8 health checks" in text_of(finding)


def test_without_an_overload_the_health_check_is_judged_at_rest() -> None:
    assert found(f006_health_check_lies, seen=None).verdict is Verdict.PASS


# --- overload ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slowest_s", "verdict"),
    [(OVERLOAD_MAX_WAIT.value, Verdict.INFORMATIVE), (60.1, Verdict.FAIL)],
)
def test_a_queue_without_a_limit_may_be_as_long_as_a_proxy_waits(
    slowest_s: float, verdict: Verdict
) -> None:
    seen = {"answered": 64, "refused": 0, "with_hint": 0, "slowest_s": slowest_s}
    finding = found(f008_overload_unanswered, seen=seen)
    assert finding.verdict is verdict
    assert "at most 24 waited" in text_of(finding)
    if verdict is Verdict.FAIL:
        assert finding.change is not None
        assert "--max-num-queued-reqs" in finding.change.text


@pytest.mark.parametrize(
    ("waiting", "words"), [(0, "no request waited"), (None, "/metrics does not say")]
)
def test_a_burst_that_fits_is_no_overload(waiting: int | None, words: str) -> None:
    seen = {"answered": 64, "refused": 0, "waiting_peak": waiting}
    finding = found(f008_overload_unanswered, seen=seen)
    assert finding.verdict is Verdict.CANNOT_TELL
    assert words in finding.title


def test_a_test_that_never_came_to_the_overload_tells_nothing_about_it() -> None:
    assert found(f008_overload_unanswered, seen=None).verdict is Verdict.CANNOT_TELL


# --- the server is gone ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "line", "words"),
    [
        (f007_abandoned_work, "cancelled_streams", "the server ends when clients leave"),
        (f008_overload_unanswered, "overload", "it ends under an overload"),
        (f009_bad_request_breaks, "long_prompt", "one of them ends it"),
    ],
    ids=lambda value: getattr(value, "ID", ""),
)
def test_the_misuse_that_ended_the_server_is_named(module: Any, line: str, words: str) -> None:
    finding = found(module, died_after=line, **{line: failed()})
    assert finding.verdict is Verdict.FAIL
    assert words in finding.title
    assert "vllm ended with code 1" in finding.summary


def test_a_prompt_that_is_cut_without_a_word_is_told_from_a_crash() -> None:
    cut = failed("answered 200", value=200.0, unit="status")
    finding = found(f009_bad_request_breaks, long_prompt=cut)
    assert "cut without a word" in finding.title
