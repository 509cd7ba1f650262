"""What a profile of the settings names as the limit: the verdict of a recorded trace as a finding.

The trace decides (gpuagent.traces.verdict); this rule only carries its answer and its doubts over.
What to change is said by one rule per kind of loss (k010 to k019). A recording that abstains stays
"cannot tell", and CPU operators give no advice.
"""

from __future__ import annotations

from typing import Literal

from advisor import units
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.rules.checks._traces import RECORDERS, SOURCE
from advisor.rules.rule import EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import missing_trial
from advisor.thresholds import PROFILE_MAX_OVERHEAD
from gpuagent.traces.verdict import CLASS_LABELS
from gpuagent.wire.trial import ProfileResult, RecordedTrace

ID = "profile-bottleneck"
_HOST_BOUND = frozenset({"launch_bound", "sync_bound", "scheduler_bound"})


def check(evidence: StudyEvidence) -> list[Finding]:
    found = [
        _of_trace(trial, result, trace)
        for trial in evidence.trials
        if (result := trial.measured(ProfileResult)) is not None
        for trace in _distinct(result)
    ]
    if found:
        return found
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.NOT_APPLICABLE,
            title="No profile was recorded",
            missing=missing_trial(evidence, "profile"),
        )
    ]


def _distinct(result: ProfileResult) -> tuple[RecordedTrace, ...]:
    """One recording for each answer: two profilers that agree say it once."""
    kept: dict[str, RecordedTrace] = {}
    for trace in result.traces:
        kept.setdefault(trace.bottleneck, trace)
    return tuple(kept.values())


def _of_trace(trial: TrialEvidence, result: ProfileResult, trace: RecordedTrace) -> Finding:
    evidence = _evidence(trial, result, trace)
    if trace.work == "cpu":
        largest = trace.shares[0] if trace.shares else None
        title = "The profile holds CPU operators only"
        if largest is not None:
            title = f"{largest.name} takes {units.percent(largest.frac)} of operator time"
        return Finding(
            rule_id=ID, verdict=Verdict.INFORMATIVE, title=title, summary=trace.sentence,
            evidence=evidence, confidence=trace.confidence,
            confidence_reason=trace.confidence_reason,
        )  # fmt: skip
    if trace.bottleneck == "cannot_tell":
        return Finding(
            rule_id=ID, verdict=Verdict.CANNOT_TELL, title="The profile cannot tell what limits",
            summary=trace.sentence, evidence=evidence, confidence="low",
            confidence_reason=trace.confidence_reason,
        )  # fmt: skip
    confidence, reason = _confidence(result, trace)
    label = CLASS_LABELS.get(trace.bottleneck, trace.bottleneck)
    if not trace.findings:
        return Finding(
            rule_id=ID, verdict=Verdict.PASS,
            title=f"Nothing to gain inside a step: {label.lower()}",
            summary=trace.sentence, evidence=evidence, confidence=confidence,
            confidence_reason=reason,
        )  # fmt: skip
    return Finding(
        rule_id=ID, verdict=Verdict.INFORMATIVE,
        title=f"A step is {label.lower()}: {trace.findings[0].title.lower()}",
        summary=trace.sentence, evidence=evidence, confidence=confidence,
        confidence_reason=reason,
    )  # fmt: skip


def _confidence(
    result: ProfileResult, trace: RecordedTrace
) -> tuple[Literal["high", "medium", "low"], str]:
    ratio = result.overhead_ratio.value
    slowed = ratio is not None and ratio > PROFILE_MAX_OVERHEAD.value
    if slowed and trace.recorder == "torch" and trace.bottleneck in _HOST_BOUND:
        return "low", f"the profiler made a step {ratio:.1f} times as long, and that is host time"
    return trace.confidence, trace.confidence_reason


def _evidence(
    trial: TrialEvidence, result: ProfileResult, trace: RecordedTrace
) -> tuple[EvidenceItem, ...]:
    items = [
        EvidenceItem(
            text=f"{RECORDERS[trace.recorder]}: {trace.sentence}",
            value=trace.idle_frac.value,
            trial_id=trial.trial_id,
        )
    ]
    for row in trace.findings:
        worth = row.recoverable_frac.value
        text = f"{row.title}: {row.basis}"
        if worth is not None:
            text = f"{row.title}: {units.percent(worth)} of the window ({row.basis})"
        items.append(EvidenceItem(text=text, value=worth, trial_id=trial.trial_id))
    if result.overhead_ratio.value is not None:
        steps = len(result.profiled_step_s.values)
        items.append(
            EvidenceItem(
                text=f"A decode step takes {result.overhead_ratio.value:.2f} times as long under "
                "torch.profiler",
                value=result.overhead_ratio.value,
                n=steps,
                trial_id=trial.trial_id,
            )
        )
    return tuple(items)


RULE = Rule(
    id=ID,
    code="k002",
    group="kernels",
    title="Nothing inside a step keeps the device waiting",
    failing_title="Know what limits a step",
    why="Latencies say that a step is slow, a profile says why: late launches, waits, copies, "
    "communication, kernels without tensor cores. Each has another remedy.",
    how_measured="A few steps under torch.profiler and, where installed, Nsight Systems; time "
    "is split by exact interval algebra and each gap by its cause.",
    threshold="Told when the trace has a finding worth 2 % of its window or more, and each such "
    "finding is a rule of its own; abstains where the recording cannot answer. Above "
    f"{PROFILE_MAX_OVERHEAD.value} times the plain step time host-bound answers count as low "
    "confidence.",
    source=SOURCE,
    when_not="When the profiler itself slowed the host: compare the overhead first.",
    needs=("a profile trial",),
    knobs=(),
    check=check,
)
