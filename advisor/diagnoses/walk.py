"""A guided diagnosis: ordered questions about one complaint, each answered from evidence. Pure.

The order is that in which an answer would make the later ones worthless: first whether the
measurement can be used, then what limits it from outside, then the engine. The first step that
fails names the cause; the others stay visible, because causes add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import BaseModel, ConfigDict

from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.rules.engine import run_rule, trusted
from advisor.rules.rule import EvidenceItem, Rule, Verdict
from gpuagent.wire.measure import ValidityCheck

StepVerdict = Literal["fail", "pass", "cannot_tell"]
Outcome = Literal["cause", "no_complaint", "cannot_tell", "nothing_found"]


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Step(_Value):
    """One question. fail: here is the cause, named by `cause`, with `fix`. pass: not here.

    answer: one sentence with the number. run: for cannot_tell, what would answer it. rule_id: the
    rule that was asked, where there is one.
    """

    id: str
    question: str
    verdict: StepVerdict
    answer: str
    evidence: tuple[EvidenceItem, ...] = ()
    cause: str | None = None
    fix: str | None = None
    run: str | None = None
    rule_id: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """One question of a walk, and the steps that its answers make."""

    id: str
    text: str

    def passed(self, answer: str, *evidence: EvidenceItem) -> Step:
        return self._step("pass", answer, evidence)

    def failed(self, answer: str, *evidence: EvidenceItem, cause: str, fix: str) -> Step:
        return self._step("fail", answer, evidence, cause=cause, fix=fix)

    def untold(self, answer: str, *evidence: EvidenceItem, run: str) -> Step:
        return self._step("cannot_tell", answer, evidence, run=run)

    def judged(
        self, answer: str, *evidence: EvidenceItem, fails: bool, cause: str, fix: str
    ) -> Step:
        """`failed` or `passed`, on the same evidence."""
        if fails:
            return self.failed(answer, *evidence, cause=cause, fix=fix)
        return self.passed(answer, *evidence)

    def _step(
        self,
        verdict: StepVerdict,
        answer: str,
        evidence: tuple[EvidenceItem, ...],
        *,
        cause: str | None = None,
        fix: str | None = None,
        run: str | None = None,
    ) -> Step:
        return Step(
            id=self.id,
            question=self.text,
            verdict=verdict,
            answer=answer,
            evidence=evidence,
            cause=cause,
            fix=fix,
            run=run,
        )


class Diagnosis(_Value):
    """A complaint and where it comes from.

    conclusion: the named cause, or what to run because nothing can tell. compared: numbers of the
    trials before and after, where the complaint is about a change.
    """

    id: Literal["throughput", "memory"]
    complaint: str
    outcome: Outcome
    conclusion: str
    fix: str | None
    compared: tuple[int, int] | None
    steps: tuple[Step, ...]


def concluded(
    name: Literal["throughput", "memory"],
    complaint: str,
    steps: Sequence[Step],
    *,
    compared: tuple[int, int] | None = None,
) -> Diagnosis:
    """The first failing step is the cause; without one, what the first open step needs."""
    failing = [step for step in steps if step.verdict == "fail"]
    open_steps = [step for step in steps if step.verdict == "cannot_tell"]
    outcome: Outcome = "nothing_found"
    conclusion = "None of the usual causes: every step passed."
    fix = None
    if failing:
        outcome, fix = "cause", failing[0].fix
        conclusion = failing[0].cause or failing[0].answer
        if len(failing) > 1:
            more = ", ".join(f"“{step.question}”" for step in failing[1:])
            conclusion += f" Also failing: {more}"
    elif open_steps:
        outcome = "cannot_tell"
        names = "; ".join(dict.fromkeys(step.run for step in open_steps if step.run))
        passed = len(steps) - len(open_steps)
        conclusion = f"Cannot tell: {passed} of {len(steps)} steps passed. Run: {names}"
    return Diagnosis(
        id=name,
        complaint=complaint,
        outcome=outcome,
        conclusion=_sentence(conclusion),
        fix=fix,
        compared=compared,
        steps=tuple(steps),
    )


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


def from_rule(question: Question, rule: Rule, evidence: StudyEvidence) -> Step:
    """What `rule` says, as an answer: its failure is the cause, its absence what to run.

    Of several findings the first failing one counts, else the first.
    """
    findings = run_rule(rule, evidence if rule.sees_invalid else trusted(evidence))
    found = next((f for f in findings if f.verdict is Verdict.FAIL), findings[0])
    verdict: StepVerdict = "pass"
    if found.verdict is Verdict.FAIL:
        verdict = "fail"
    elif found.verdict in (Verdict.CANNOT_TELL, Verdict.NOT_APPLICABLE, Verdict.ERROR):
        verdict = "cannot_tell"
    shown = found.evidence[0].text if found.evidence else found.summary
    return Step(
        id=question.id,
        question=question.text,
        verdict=verdict,
        answer=f"{found.title}. {shown}".strip() if shown else found.title,
        evidence=found.evidence,
        cause=found.title if verdict == "fail" else None,
        fix=found.change.text if found.change is not None and verdict == "fail" else None,
        run=(found.missing or "The same trial with more repeats")
        if verdict == "cannot_tell"
        else None,
        rule_id=rule.id,
    )


def seen_from(evidence: StudyEvidence, trial: TrialEvidence) -> StudyEvidence:
    """The evidence as if `trial` were the current settings, for rules that look at those."""
    moved = tuple(
        replace(t, role="current")
        if t is trial
        else replace(t, role="variant")
        if t.role == "current"
        else t
        for t in evidence.trials
    )
    return replace(evidence, trials=moved)


def check_of(trial: TrialEvidence, check_id: str) -> ValidityCheck | None:
    """One line of the trial's measurement checklist, or None."""
    checks = trial.result.validity.checks if trial.result is not None else ()
    return next((c for c in checks if c.id == check_id), None)


def checklist_step(
    question: Question,
    trials: Sequence[TrialEvidence],
    check_ids: Sequence[str],
    *,
    cause: str,
    fix: str,
    run: str,
) -> Step:
    """Fails where one of these lines of the checklist warns or is invalid in one of the trials."""
    found = [(t, c) for t in trials for name in check_ids if (c := check_of(t, name)) is not None]
    bad = [(t, c) for t, c in found if c.verdict in ("warn", "invalid")]
    read = [(t, c) for t, c in found if c.verdict == "valid"]
    shown = bad or read
    items = tuple(
        EvidenceItem(
            text=f"Trial {t.ordinal}: {c.message}", value=c.value, n=1, trial_id=t.trial_id
        )
        for t, c in shown
    )
    if bad:
        return question.failed(items[0].text, *items, cause=cause, fix=fix)
    if read:
        return question.passed(items[0].text, *items)
    why = next((c.message for _, c in found), "It was not looked at in this trial")
    return question.untold(why, run=run)
