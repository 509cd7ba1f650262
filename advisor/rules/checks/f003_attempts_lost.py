"""Trials needed more than one attempt: their process or agent was lost on the way."""

from __future__ import annotations

from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import not_applicable, plain
from gpuagent.wire import FailureReason

ID = "attempts-lost"
LOST = (FailureReason.AGENT_LOST, FailureReason.CHILD_KILLED)


def check(evidence: StudyEvidence) -> list[Finding]:
    ended = [t for t in evidence.trials if t.finished_at is not None]
    if not ended:
        return not_applicable(ID, "No trial has ended yet", "A finished trial")
    again = [t for t in ended if _lost(t)]
    lost, made = sum(_lost(t) for t in again), sum(t.attempts for t in ended)
    total = EvidenceItem(
        text=f"{lost} of {_count(made, 'attempt')} of {_count(len(ended), 'trial')} "
        f"{'was' if lost == 1 else 'were'} lost",
        value=lost,
        n=made,
    )
    if not again:
        return plain(ID, Verdict.PASS, "Every trial ended at its first attempt", total)
    items = tuple(
        EvidenceItem(
            text=f"Trial {t.ordinal} lost {_lost(t)} of {_count(t.attempts, 'attempt')}",
            value=_lost(t),
            n=t.attempts,
            trial_id=t.trial_id,
        )
        for t in again
    )
    if lost == 1:
        title = f"Trial {again[0].ordinal} lost one attempt"
        return plain(ID, Verdict.INFORMATIVE, title, total, *items)
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Look at the agent's host: {lost} attempts were lost",
            summary="An attempt counts when its process was killed or its agent fell silent. A "
            "service on this host would have gone down as often.",
            evidence=(total, *items),
            change=Change(
                text="Read the host's kernel log for memory kills and the agent's log for restarts "
                "and network faults."
            ),
            confidence="high",
            confidence_reason="counted by the server",
        )
    ]


def _lost(trial: TrialEvidence) -> int:
    """All before the last attempt, and the last one where its process or agent was lost, too.

    A trial that was cancelled in the queue has none.
    """
    last = trial.failure is not None and trial.failure.reason in LOST
    return max(0, trial.attempts - 1) + (last and trial.attempts > 0)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


RULE = Rule(
    id=ID,
    code="f003",
    group="stability",
    title="Every trial ends at its first attempt",
    failing_title="Look at the agent's host",
    why="A retry hides a fault: the numbers are right in the end, and the host still kills "
    "processes.",
    how_measured="Attempts that the server counted for each trial; an agent that gives a trial "
    "back in order does not count.",
    threshold="Told for one lost attempt; fails from two on.",
    source="own choice: one loss may be a restart, two are a pattern",
    when_not="After maintenance of the host that you know of.",
    needs=("a finished trial",),
    knobs=(),
    check=check,
)
