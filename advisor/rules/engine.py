"""Runs the rules over the evidence of a study and ranks what they found. Pure.

A rule that throws becomes an `error` finding of that rule, never a lost report. Rules that give
advice do not see trials whose measurement is invalid.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from advisor.evidence import StudyEvidence
from advisor.rules import RULES
from advisor.rules.rule import Finding, Rule, Verdict

log = logging.getLogger(__name__)

ORDER: tuple[Verdict, ...] = (
    Verdict.FAIL,
    Verdict.ERROR,
    Verdict.CANNOT_TELL,
    Verdict.INFORMATIVE,
    Verdict.PASS,
    Verdict.NOT_APPLICABLE,
)


def evaluate(evidence: StudyEvidence, rules: Sequence[Rule] = RULES) -> list[Finding]:
    """Findings of all rules, best first.

    Failing before open before passing; among equals by the share of the distance to the user's
    targets that the change closes, then by the size of its effect, then in catalogue order.
    """
    trusted = _trusted(evidence)
    ranked = [
        (ORDER.index(finding.verdict), -finding.gain, -_effect_size(finding), index, finding)
        for index, rule in enumerate(rules)
        for finding in _run(rule, evidence if rule.sees_invalid else trusted)
    ]
    return _without_contradictions([row[-1] for row in sorted(ranked, key=lambda row: row[:-1])])


def _without_contradictions(findings: list[Finding]) -> list[Finding]:
    """Where two findings set one knob to different values, the better ranked one keeps it."""
    chosen: dict[str, object] = {}
    kept = []
    for finding in findings:
        change = finding.change
        if change is not None and finding.verdict is Verdict.FAIL:
            agreed = {
                knob: value
                for knob, value in change.settings.items()
                if chosen.setdefault(knob, value) == value
            }
            if agreed != change.settings:
                finding = finding.model_copy(
                    update={"change": change.model_copy(update={"settings": agreed})}
                )
        kept.append(finding)
    return kept


def _trusted(evidence: StudyEvidence) -> StudyEvidence:
    """Without trials that were measured but must not be used; those without result stay."""
    kept = tuple(t for t in evidence.trials if t.result is None or t.usable)
    return evidence if len(kept) == len(evidence.trials) else replace(evidence, trials=kept)


def _run(rule: Rule, evidence: StudyEvidence) -> list[Finding]:
    try:
        findings = rule.check(evidence)
    except Exception as error:
        log.exception("rule %s failed on study %s", rule.id, evidence.study_id)
        return [
            Finding(
                rule_id=rule.id,
                verdict=Verdict.ERROR,
                title=f"The rule {rule.id} failed on this study",
                summary="The other findings are not affected. The server's log has the details.",
                confidence="low",
                confidence_reason=f"{type(error).__name__} inside the rule",
                source=rule.source,
            )
        ]
    return [f if f.source else f.model_copy(update={"source": rule.source}) for f in findings]


def _effect_size(finding: Finding) -> float:
    return abs(finding.effect.change_frac) if finding.effect is not None else 0.0
