"""What the rules on a robustness test share: the latest usable test and its lines as evidence."""

from __future__ import annotations

from collections.abc import Iterable

from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.rules.rule import EvidenceItem, Finding
from advisor.rules.support import latest, missing_trial, not_applicable
from gpuagent.wire.robustness import RobustnessCheck, RobustnessResult

NEEDS = ("a robustness test of a server",)
UNITS = {"s": "s", "status": "HTTP status", "count": "", "frac": "share", "ratio": "× before"}


def find(evidence: StudyEvidence) -> tuple[TrialEvidence, RobustnessResult] | None:
    return latest(evidence, RobustnessResult)


def not_tested(rule_id: str, evidence: StudyEvidence) -> list[Finding]:
    """The finding of a rule without a test, and how to get one."""
    return not_applicable(rule_id, "The server was not misused", _missing(evidence))


def _missing(evidence: StudyEvidence) -> str:
    spec = evidence.spec
    if spec.engine in ("transformers", "simulated"):
        return "A study of a server: an engine in the agent's process is not misused"
    planned = any(t.spec.experiment == "robustness" for t in evidence.trials)
    if spec.tests_robustness and not planned and not evidence.finished:
        return "The end of the study, where the robustness test is run"
    return missing_trial(evidence, "robustness")


def items(
    checks: Iterable[RobustnessCheck | None], trial: TrialEvidence
) -> tuple[EvidenceItem, ...]:
    """One item for each line that there is."""
    return tuple(
        EvidenceItem(
            text=check.sentence,
            value=check.value,
            unit=(UNITS[check.unit] or None) if check.unit is not None else None,
            trial_id=trial.trial_id,
        )
        for check in checks
        if check is not None
    )


def gone(result: RobustnessResult, *names: str) -> str | None:
    """Why the server was gone, where that happened after one of these checks."""
    return result.died_why if result.died_after in names else None
