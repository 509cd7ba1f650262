"""The same settings, measured twice, gave different numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor import units
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.measures import (
    BASELINE_ROLES,
    Ratio,
    answer_ratio,
    baseline_of,
    decode_ratio,
    interval_text,
    sample_ratio,
    times,
)
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import MIN_REQUESTS, not_applicable, plain
from advisor.targets import trial_metrics
from advisor.thresholds import UNVERIFIED_NOISE
from gpuagent.request_metrics import request_metrics
from gpuagent.wire import Samples
from gpuagent.wire.measure import RequestRecord
from gpuagent.wire.trial import BaselineResult, VerifyResult

ID = "repeats-disagree"


@dataclass(frozen=True, slots=True)
class _Repeat:
    """Time of `again` over that of `first`, same settings."""

    first: TrialEvidence
    again: TrialEvidence
    ratio: Ratio


def check(evidence: StudyEvidence) -> list[Finding]:
    noise = UNVERIFIED_NOISE.value
    rows = [*_baselines(evidence), *_sides(evidence)]
    if not rows:
        missing = "A second valid baseline of the same settings, or a verification of them"
        return not_applicable(ID, "Nothing was measured twice", missing)
    items = tuple(
        EvidenceItem(
            text=f"Trial {row.again.ordinal} takes {times(row.ratio.value)} the time of trial "
            f"{row.first.ordinal} with the same settings"
            f"{interval_text(row.ratio.low, row.ratio.high)}, n = {row.ratio.n}",
            value=row.ratio.value,
            low=row.ratio.low,
            high=row.ratio.high,
            unit="×",
            n=row.ratio.n,
            trial_id=row.again.trial_id,
        )
        for row in rows
    )
    apart = [row for row in rows if row.ratio.below(noise) or row.ratio.above(noise)]
    if not apart:
        title = f"Repeats agree within {units.percent(noise)}"
        return plain(ID, Verdict.PASS, title, *items)
    worst = max(apart, key=lambda row: abs(math.log(row.ratio.value)))
    value = worst.ratio.value
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Find what changed between trials {worst.first.ordinal} and "
            f"{worst.again.ordinal}: the same settings took {times(value)} the time",
            summary=f"Differences between configurations below {units.percent(abs(value - 1))} "
            "prove nothing on this host unless an interleaved A/B shows them.",
            evidence=items,
            change=Change(
                text="Free the host of other work, fix the clocks, and measure again; trust the "
                "verification only."
            ),
            confidence="high",
            confidence_reason="the same settings on the same host",
        )
    ]


def _baselines(evidence: StudyEvidence) -> list[_Repeat]:
    """Baselines with equal settings."""
    usable = _usable_baselines(evidence)
    return [
        _Repeat(first, again, ratio)
        for index, first in enumerate(usable)
        for again in usable[index + 1 :]
        if again.settings == first.settings
        and again.spec.config == first.spec.config
        and (ratio := _between(first, again)) is not None
    ]


def _between(first: TrialEvidence, again: TrialEvidence) -> Ratio | None:
    """Of requests at a rate the queue decides, which no two runs share: only steps compare."""
    queued = any(baseline_of(trial).arrivals != "closed_loop" for trial in (first, again))
    answers = None if queued else answer_ratio(first, again)
    return answers or decode_ratio(first, again)


def _sides(evidence: StudyEvidence) -> list[_Repeat]:
    """Each side of a verification against the baseline of its settings, one request at a time."""
    found = []
    for trial in evidence.succeeded(VerifyResult):
        result = trial.measured(VerifyResult)
        if result is None or not trial.usable:
            continue
        for side, settings in (("a", trial.settings), ("b", result.candidate)):
            first = next((b for b in _usable_baselines(evidence) if b.settings == settings), None)
            runs = [run.requests for run in result.runs if run.side == side]
            ratio = _against_runs(first, runs) if first is not None else None
            if first is not None and ratio is not None:
                found.append(_Repeat(first, trial, ratio))
    return found


def _against_runs(first: TrialEvidence, runs: Sequence[Sequence[RequestRecord]]) -> Ratio | None:
    """Mean end-to-end latency per run over that of the baseline's requests."""
    metrics = trial_metrics(first)
    again = [request_metrics(run) for run in runs]
    if metrics is None or metrics.overlapping or any(run.overlapping for run in again):
        return None
    means = [float(np.exp(np.log(run.e2e_s).mean())) for run in again if run.succeeded]
    if metrics.succeeded < MIN_REQUESTS or len(means) < 2:
        return None
    one_by_one = Samples(values=tuple(float(v) for v in metrics.e2e_s))
    return sample_ratio(one_by_one, Samples(values=tuple(means)))


def _usable_baselines(evidence: StudyEvidence) -> list[TrialEvidence]:
    return [
        t
        for t in evidence.trials
        if t.role in BASELINE_ROLES and t.usable and t.measured(BaselineResult) is not None
    ]


RULE = Rule(
    id=ID,
    code="v005",
    group="measurement",
    title="Repeats of the same settings agree",
    failing_title="Find what changed between repeats",
    why="What the same settings differ by is the noise that every other difference has to exceed.",
    how_measured="End-to-end latency of requests sent one after the other, else decode steps, of "
    "baselines with equal settings and of the sides of a verification.",
    threshold=f"Fails when the ratio lies beyond {UNVERIFIED_NOISE.value:.0%}, interval included.",
    source=UNVERIFIED_NOISE.source,
    when_not="When something was changed between the two on purpose.",
    needs=("two valid measurements of the same settings",),
    knobs=(),
    check=check,
)
