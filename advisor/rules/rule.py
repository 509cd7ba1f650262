"""What a rule is and what it returns. Both are plain values; a rule has no access to anything else.

A finding without evidence is not a finding: `fail` needs at least one evidence item, and advice
needs a change. Findings are stored and served as JSON, hence pydantic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator

from advisor.evidence import StudyEvidence

Group = Literal[
    "memory",
    "attention",
    "kernels",
    "scheduling",
    "precision",
    "parallelism",
    "cost and energy",
    "stability",
    "targets",
    "measurement",
]


class Verdict(StrEnum):
    """fail: something to change. cannot_tell: measured, but it proves nothing either way."""

    FAIL = "fail"
    PASS = "pass"  # noqa: S105 - a verdict, not a password
    INFORMATIVE = "informative"
    CANNOT_TELL = "cannot_tell"
    NOT_APPLICABLE = "not_applicable"
    ERROR = "error"


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class EvidenceItem(_Value):
    """One measured fact, as a sentence with its number; links to the trial it comes from."""

    text: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    unit: str | None = None
    n: int | None = None
    trial_id: str | None = None
    chart: str | None = None


class Change(_Value):
    """What to set. `settings`: canonical knob -> new value; `text` for what is not a knob."""

    text: str
    settings: dict[str, str | int | float | bool | None] = {}


class Effect(_Value):
    """Expected or measured relative change of one metric: -0.3 is 30 % less.

    low and high bound the 95 % interval, of a modelled effect its range; None where it was measured
    once.
    """

    metric: str
    change_frac: float
    low: float | None = None
    high: float | None = None
    basis: Literal["measured", "modelled"]
    better: bool
    from_trial: str | None = None
    to_trial: str | None = None


class Finding(_Value):
    """The outcome of one rule for one study.

    title: imperative for `fail` ("Serve in float32: bfloat16 is slower here"), a statement else.
    gain: share of the distance to the user's targets that the change closes, 0..; ranks findings.
    missing: for not_applicable, what to run to make the rule apply.
    """

    rule_id: str
    verdict: Verdict
    title: str
    summary: str = ""
    evidence: tuple[EvidenceItem, ...] = ()
    change: Change | None = None
    effect: Effect | None = None
    confidence: Literal["high", "medium", "low"] = "medium"
    confidence_reason: str = ""
    missing: str | None = None
    source: str = ""
    gain: float = 0.0

    @model_validator(mode="after")
    def _no_advice_without_evidence(self) -> Self:
        if self.verdict is Verdict.FAIL and not self.evidence:
            raise ValueError(f"{self.rule_id}: a failing finding needs evidence")
        return self


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the catalogue; `check` is pure and may return several findings.

    id: noun of the failing state, in the URL. code: prefix of its file, letter of the group first.
    needs: what must have been measured, in words; shown where the rule does not apply.
    sees_invalid: gets trials whose measurement is invalid, too. Never a rule that gives advice on
    settings.
    """

    id: str
    code: str
    group: Group
    title: str
    failing_title: str
    why: str
    how_measured: str
    threshold: str
    source: str
    when_not: str
    needs: tuple[str, ...]
    knobs: tuple[str, ...]
    check: Callable[[StudyEvidence], list[Finding]]
    sees_invalid: bool = False
