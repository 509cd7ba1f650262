"""Runs the rules over the evidence of a study and ranks what they found. Pure.

A rule that throws becomes an `error` finding of that rule, never a lost report. Rules that give
advice do not see trials whose measurement is invalid. No rule sees the host's device in a study of
the simulated engine, because nothing of it was measured.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from advisor.candidates import best_candidate, recommended_settings
from advisor.evidence import StudyEvidence
from advisor.rules import RULES
from advisor.rules.imported import what_to_run
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
    evidence = without_host(evidence)
    usable = trusted(evidence)
    found = [
        (index, finding)
        for index, rule in enumerate(rules)
        for finding in run_rule(rule, evidence if rule.sees_invalid else usable)
    ]
    found = [(index, what_to_run(finding, evidence)) for index, finding in found]
    found.sort(key=_rank)
    kept = _without_contradictions(found, _recommended(evidence))
    return [row[1] for row in sorted(kept, key=_rank)]


def _rank(row: tuple[int, Finding]) -> tuple[int, float, float, int]:
    index, finding = row
    return (ORDER.index(finding.verdict), -finding.gain, -_effect_size(finding), index)


# A knob's new value, and who sets it.
Choices = dict[str, tuple[object, str]]


def _recommended(evidence: StudyEvidence) -> Choices:
    """What the study's own recommendation sets: it was measured, so nothing may contradict it."""
    best = best_candidate(evidence)
    settings = recommended_settings(evidence, best)
    if best is None or settings is None:
        return {}
    changes = evidence.spec.current.differences(settings)
    return {
        knob: (new, f"the settings of trial {best.trial.ordinal}, which set")
        for knob, (_, new) in changes.items()
    }


def _without_contradictions(
    found: list[tuple[int, Finding]], chosen: Choices
) -> list[tuple[int, Finding]]:
    """Of findings that set one knob to different values the best ranked one advises alone.

    The others stay as information: a change that was thought out or measured as a whole must not
    be applied in part.
    """
    kept = []
    for index, finding in found:
        change = finding.change
        if change is not None and finding.verdict is Verdict.FAIL:
            rivals = [
                (knob, *chosen[knob])
                for knob, value in change.settings.items()
                if knob in chosen and chosen[knob][0] != value
            ]
            if rivals:
                finding = _set_aside(finding, *rivals[0])
            else:
                who = f"“{finding.title}”, which sets"
                for knob, value in change.settings.items():
                    chosen.setdefault(knob, (value, who))
        kept.append((index, finding))
    return kept


def _set_aside(finding: Finding, knob: str, value: object, who: str) -> Finding:
    """The finding without its change, and what it gives way to."""
    return finding.model_copy(
        update={
            "verdict": Verdict.INFORMATIVE,
            "title": f"Set aside: {finding.title}",
            "summary": f"Not advised together with {who} {knob} to {value}. "
            f"{finding.summary}".strip(),
            "change": None,
            "effect": None,
            "gain": 0.0,
        }
    )


def without_host(evidence: StudyEvidence) -> StudyEvidence:
    """A simulated study without the device of the agent that computed it."""
    return replace(evidence, device=None) if evidence.spec.engine == "simulated" else evidence


def trusted(evidence: StudyEvidence) -> StudyEvidence:
    """Without trials that were measured but must not be used; those without result stay."""
    kept = tuple(t for t in evidence.trials if t.result is None or t.usable)
    return evidence if len(kept) == len(evidence.trials) else replace(evidence, trials=kept)


def run_rule(rule: Rule, evidence: StudyEvidence) -> list[Finding]:
    """Findings of one rule on exactly this evidence; one that throws gives an `error` finding."""
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
