from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import advisor.rules.checks
from advisor import thresholds
from advisor.evidence import StudyEvidence
from advisor.rules import RULES
from advisor.rules.engine import evaluate, run_rule
from advisor.rules.rule import Finding, Rule, Verdict
from advisor.rules.support import missing_trial
from gpuagent.wire.inside import KernelsConfig
from tests.builders import (
    make_baseline_result,
    make_current,
    make_evidence,
    make_failure,
    make_kv_trial,
    make_study_spec,
    make_trial,
    make_validity,
    make_variant,
    make_verification,
)


def test_every_file_is_registered_and_named_after_its_rule() -> None:
    folder = Path(advisor.rules.checks.__file__).parent
    files = {path.stem for path in folder.glob("[a-z]*.py")}
    assert files == {f"{rule.code}_{rule.id.replace('-', '_')}" for rule in RULES}
    assert len({rule.id for rule in RULES}) == len(RULES)


def test_the_page_on_rules_names_each_of_them_for_its_states() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "rules.md").read_text()
    table = page.split("## What each rule is for")[1].split("Which studies the rules")[0]
    assert set(re.findall(r"`([a-z0-9-]+)`", table)) == {rule.id for rule in RULES}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_rule_is_documented(rule: Rule) -> None:
    for text in (rule.title, rule.why, rule.how_measured, rule.threshold, rule.source):
        assert len(text) > 10
        assert "!" not in text
    assert rule.failing_title
    assert rule.when_not
    assert rule.needs


def test_every_threshold_says_where_it_comes_from() -> None:
    assert len({t.id for t in thresholds.THRESHOLDS}) == len(thresholds.THRESHOLDS)
    for threshold in thresholds.THRESHOLDS:
        assert threshold.value > 0
        assert all((threshold.unit, threshold.meaning, threshold.source, threshold.date))


def test_failing_findings_come_first_and_advice_by_what_it_gains() -> None:
    findings = evaluate(
        make_evidence(make_current(), make_kv_trial(), make_variant(), make_verification())
    )
    order = [Verdict.FAIL, Verdict.ERROR, Verdict.CANNOT_TELL, Verdict.INFORMATIVE]
    ranks = [order.index(f.verdict) if f.verdict in order else 9 for f in findings]
    assert ranks == sorted(ranks)
    assert findings[0].rule_id == "dtype-slower"
    assert findings[0].gain == pytest.approx(1.0)
    assert all(finding.source for finding in findings)


def test_a_rule_that_throws_is_an_error_finding_and_the_others_stay() -> None:
    def explode(evidence: StudyEvidence) -> list[Finding]:
        raise KeyError("secret detail")

    broken = replace(RULES[0], id="broken", check=explode)
    findings = evaluate(make_evidence(make_current()), (broken, *RULES))
    errors = [f for f in findings if f.verdict is Verdict.ERROR]
    assert [f.rule_id for f in errors] == ["broken"]
    assert "secret detail" not in errors[0].model_dump_json()
    assert len(findings) > len(RULES) - 1


def test_advice_does_not_rest_on_an_invalid_measurement() -> None:
    variant = make_variant()
    assert variant.result is not None
    invalid = make_trial(
        variant.result.measurements,
        ordinal=3,
        role="variant",
        settings=variant.settings,
        validity=make_validity("invalid"),
    )
    findings = evaluate(make_evidence(make_current(), invalid))
    by_rule = {f.rule_id: f for f in findings}
    assert by_rule["dtype-slower"].verdict is Verdict.NOT_APPLICABLE
    assert by_rule["measurement-invalid"].verdict is Verdict.FAIL


def test_an_invalid_baseline_gives_no_advice_at_all() -> None:
    trial = make_trial(make_baseline_result(decode_s=1.0), validity=make_validity("invalid"))
    failing = [f for f in evaluate(make_evidence(trial)) if f.verdict is Verdict.FAIL]
    assert [f.rule_id for f in failing] == ["measurement-invalid"]


@pytest.mark.parametrize(
    "evidence",
    [
        make_evidence(),
        make_evidence(make_current(), shape=None, device=None),
        make_evidence(make_trial(state="cancelled"), cancelled=True),
        make_evidence(make_current(requests=(), cells=(), read_bandwidth_bytes_s=None)),
    ],
)
def test_no_rule_throws_on_poor_evidence(evidence: StudyEvidence) -> None:
    findings = evaluate(evidence)
    assert Verdict.ERROR not in {f.verdict for f in findings}
    assert {f.rule_id for f in findings} == {rule.id for rule in RULES}


def test_no_finding_asks_for_the_goal_or_the_profile_that_the_study_has() -> None:
    spec = make_study_spec(goal="diagnose", profile=True)
    failed = make_trial(failure=make_failure(), ordinal=2, config=KernelsConfig())
    for trials in ((), (make_current(), failed)):
        evidence = make_evidence(*trials, spec=spec)
        for finding in (f for rule in RULES for f in run_rule(rule, evidence)):
            assert "goal diagnose" not in (finding.missing or ""), finding.rule_id
            assert "when submitting" not in (finding.missing or ""), finding.rule_id


def test_a_failed_part_of_a_diagnosis_is_named() -> None:
    spec = make_study_spec(goal="diagnose")
    failed = make_trial(failure=make_failure(), ordinal=2, config=KernelsConfig())
    found = missing_trial(make_evidence(make_current(), failed, spec=spec), "kernels")
    assert found.startswith("A kernels trial that succeeds: trial 2 failed")
    left_out = missing_trial(make_evidence(make_current(), spec=spec), "attention")
    assert left_out.startswith("An attention trial that is valid: the plan left it out")
    assert missing_trial(make_evidence(), "attention").endswith("choose the goal diagnose")


def test_findings_survive_their_json() -> None:
    for finding in evaluate(make_evidence(make_current(), make_kv_trial(), make_variant())):
        assert Finding.model_validate_json(finding.model_dump_json()) == finding
