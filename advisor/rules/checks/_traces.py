"""What the rules on a recorded trace share: one finding code of the trace analysis each.

The trace decides (`gpuagent.traces.findings`); a rule carries its answer, its numbers and its
doubts over. A recording that abstains stays "cannot tell", and without GPU work there is no answer.
"""

from __future__ import annotations

from typing import Any

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.rules.rule import Change, Effect, EvidenceItem, Finding, Verdict
from advisor.rules.support import latest, missing_trial, modelled_gain, not_applicable, plain
from advisor.thresholds import PROFILE_MAX_OVERHEAD
from gpuagent.wire.trial import ProfileResult, RecordedTrace, TraceFinding

NEEDS = ("a profile on a GPU",)
SOURCE = "limits of the trace analysis, each with its source (gpuagent/traces/thresholds.py)"
RECORDERS = {"torch": "torch.profiler", "nsys": "Nsight Systems"}
# What the host does is what a profiler in the same process slows down.
_OF_THE_HOST = frozenset({"launch_overhead", "synchronisation", "step_border", "allocation"})


def check_code(rule_id: str, code: str, passing: str, evidence: StudyEvidence) -> list[Finding]:
    """Findings of one code in the newest usable profile; of two recordings the clearer one."""
    found = latest(evidence, ProfileResult)
    traces = [t for t in found[1].traces if t.work == "gpu"] if found is not None else []
    if found is None or not traces:
        missing = missing_trial(evidence, "profile")
        if found is not None or (evidence.device is not None and evidence.device.kind == "cpu"):
            missing = "A profile on a GPU: the one of a processor has no GPU work in it"
        return not_applicable(rule_id, "No GPU work was recorded", missing)
    trial, result = found
    rows = [(t, f) for t in traces for f in t.findings if f.code == code]
    if rows:
        trace, row = max(rows, key=lambda pair: pair[1].recoverable_frac.value or 0.0)
        return [_failing(evidence, trial.trial_id, result, (rule_id, trace, row))]
    answered = [t for t in traces if t.bottleneck not in _silent(code)]
    items = tuple(_item(t, trial.trial_id) for t in answered or traces)
    if not answered:
        return plain(rule_id, Verdict.CANNOT_TELL, "The recording cannot tell", *items)
    return plain(rule_id, Verdict.PASS, passing, *items)


def _silent(code: str) -> frozenset[str]:
    """Answers of a trace that leave this code open: start-up says nothing about the steady state,
    and of it the trace looks at allocation alone."""
    return frozenset({"cannot_tell"} if code == "allocation" else {"cannot_tell", "initialisation"})


def _worth(evidence: StudyEvidence, worth: float | None) -> dict[str, Any]:
    """Effect and gain of a share of the window that goes away at best and not at all at worst.

    Ranked by the middle of that range, so that a bound does not stand above what was measured.
    """
    if not worth or worth >= 1:
        return {}
    changes = dict.fromkeys(("itl_s", "e2e_s"), -worth / 2)
    gain = modelled_gain(evidence, {**changes, "output_tok_s": 1 / (1 - worth / 2) - 1})
    effect = Effect(
        metric="itl_s", change_frac=-worth / 2, low=-worth, high=0.0, basis="modelled", better=True
    )
    return {"effect": effect, "gain": gain}


def _failing(
    evidence: StudyEvidence,
    trial_id: str,
    result: ProfileResult,
    found: tuple[str, RecordedTrace, TraceFinding],
) -> Finding:
    rule_id, trace, row = found
    worth = row.recoverable_frac.value
    share = f"at most {units.percent(worth)} of the window to win back" if worth else "worth open"
    items = [
        EvidenceItem(
            text=f"{row.detail.rstrip('.')}; {share} ({row.basis}, {RECORDERS[trace.recorder]})",
            value=worth,
            unit="share",
            trial_id=trial_id,
        )
    ]
    ratio = result.overhead_ratio.value
    slowed = (
        trace.recorder == "torch"
        and row.code in _OF_THE_HOST
        and ratio is not None
        and ratio > PROFILE_MAX_OVERHEAD.value
    )
    if slowed:
        items.append(
            EvidenceItem(
                text=f"A step takes {ratio:.2f} times as long under the profiler",
                value=ratio,
                unit="×",
                n=result.profiled_step_s.n,
                trial_id=trial_id,
            )
        )
    confidence, reason = trace.confidence, trace.confidence_reason
    if slowed:
        confidence, reason = "low", "the profiler slowed the host, which is what is looked at"
    elif trace.bottleneck in _silent(row.code):
        # Its own confidence is that it cannot answer.
        confidence, reason = "low", "the recording has no answer to what limits a step"
    return Finding(
        rule_id=rule_id,
        verdict=Verdict.FAIL,
        title=row.title if not worth else f"{row.title}: {units.percent(worth)} of the window",
        evidence=tuple(items),
        change=Change(text=row.change),
        confidence=confidence,
        confidence_reason=reason,
        **_worth(evidence, worth),
    )


def _item(trace: RecordedTrace, trial_id: str) -> EvidenceItem:
    return EvidenceItem(
        text=f"{RECORDERS[trace.recorder]}: {trace.sentence}",
        value=trace.idle_frac.value,
        trial_id=trial_id,
    )
