"""The same settings, measured twice, gave different numbers."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.measures import BASELINE_ROLES, answer_ratio, decode_ratio, interval_text, times
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import not_applicable, plain
from advisor.thresholds import UNVERIFIED_NOISE
from gpuagent.wire.trial import BaselineResult

ID = "repeats-disagree"


def check(evidence: StudyEvidence) -> list[Finding]:
    pairs = _pairs(evidence)
    noise = UNVERIFIED_NOISE.value
    rows = [
        (first, again, ratio)
        for first, again in pairs
        if (ratio := answer_ratio(first, again) or decode_ratio(first, again)) is not None
    ]
    if not rows:
        missing = "Two valid baselines of the same settings"
        return not_applicable(ID, "Nothing was measured twice", missing)
    items = tuple(
        EvidenceItem(
            text=f"Trial {again.ordinal} takes {times(ratio.value)} the time of trial "
            f"{first.ordinal} with the same settings{interval_text(ratio.low, ratio.high)}, "
            f"n = {ratio.n}",
            value=ratio.value,
            low=ratio.low,
            high=ratio.high,
            unit="×",
            n=ratio.n,
            trial_id=again.trial_id,
        )
        for first, again, ratio in rows
    )
    apart = [row for row in rows if row[2].below(noise) or row[2].above(noise)]
    if not apart:
        title = f"Repeats agree within {units.percent(noise)}"
        return plain(ID, Verdict.PASS, title, *items)
    first, again, ratio = max(apart, key=lambda row: abs(row[2].value - 1))
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Find what changed between trials {first.ordinal} and {again.ordinal}: the same "
            f"settings took {times(ratio.value)} the time",
            summary="Differences between configurations below "
            f"{units.percent(abs(ratio.value - 1))} prove nothing on this host unless an "
            "interleaved A/B shows them.",
            evidence=items,
            change=Change(
                text="Free the host of other work, fix the clocks, and measure again; trust the "
                "verification only."
            ),
            confidence="high",
            confidence_reason="the same settings on the same host",
        )
    ]


def _pairs(evidence: StudyEvidence) -> list[tuple[TrialEvidence, TrialEvidence]]:
    usable = [
        t
        for t in evidence.trials
        if t.role in BASELINE_ROLES and t.usable and t.measured(BaselineResult) is not None
    ]
    return [
        (first, again)
        for index, first in enumerate(usable)
        for again in usable[index + 1 :]
        if again.settings == first.settings and again.spec.config == first.spec.config
    ]


RULE = Rule(
    id=ID,
    code="v005",
    group="measurement",
    title="Repeats of the same settings agree",
    failing_title="Find what changed between repeats",
    why="What the same settings differ by is the noise that every other difference has to exceed.",
    how_measured="End-to-end latency, else decode steps, of baselines with equal settings.",
    threshold=f"Fails when the ratio lies beyond {UNVERIFIED_NOISE.value:.0%}, interval included.",
    source=UNVERIFIED_NOISE.source,
    when_not="When something was changed between the two on purpose.",
    needs=("two valid baselines of the same settings",),
    knobs=(),
    check=check,
)
