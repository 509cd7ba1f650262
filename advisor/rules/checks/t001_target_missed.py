"""One finding per target: does the current configuration keep it, and does any other one."""

from __future__ import annotations

from advisor import units
from advisor.candidates import Candidate, best_candidate
from advisor.evidence import StudyEvidence
from advisor.measures import gain
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.targets import TargetStatus, limit_text, target_label, target_name, target_statuses
from gpuagent.wire import EngineSettings, SlaTarget

ID = "target-missed"
CHARTS = {"ttft_s": "ttft-trials", "itl_s": "itl-trials", "e2e_s": "e2e-trials"}


def check(evidence: StudyEvidence) -> list[Finding]:
    if not evidence.spec.targets:
        return [
            Finding(
                rule_id=ID,
                verdict=Verdict.NOT_APPLICABLE,
                title="The study has no targets",
                missing="A target: a limit for TTFT, ITL, end-to-end latency, throughput or memory",
            )
        ]
    best = best_candidate(evidence)
    current = target_statuses(evidence.current, evidence.spec)
    others = best.statuses if best is not None else (None,) * len(current)
    return [_finding(evidence, now, then, best) for now, then in zip(current, others, strict=True)]


def _finding(
    evidence: StudyEvidence,
    now: TargetStatus,
    then: TargetStatus | None,
    best: Candidate | None,
) -> Finding:
    target = now.target
    if now.verdict == "not_measured":
        return Finding(
            rule_id=ID,
            verdict=Verdict.NOT_APPLICABLE,
            title=f"{target_label(target)} is not measured: {now.reason}",
            missing=now.reason,
        )
    imported = evidence.spec.engine == "imported"
    items = [_item(now, "The imported result" if imported else "Current settings")]
    other = best if best is not None and best.trial.role != "current" else None
    if other is not None and then is not None and then.verdict != "not_measured":
        items.append(_item(then, f"Trial {other.trial.ordinal} ({other.trial.title})"))
    if now.verdict == "met":
        verdict, title = Verdict.PASS, f"{target_label(target)} is met{_number(now)}"
        return Finding(rule_id=ID, verdict=verdict, title=title, evidence=tuple(items))
    if now.verdict == "not_proven":
        return Finding(
            rule_id=ID,
            verdict=Verdict.CANNOT_TELL,
            title=f"{target_label(target)} is not proven{_number(now)}",
            summary=_sentence(now.reason),
            evidence=tuple(items),
            missing=_more_requests(now),
        )
    solved = other is not None and then is not None and then.verdict == "met"
    if other is not None and solved:
        trial = other.trial
        return Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Take the settings of trial {trial.ordinal} to keep {target_label(target)}: "
            f"current {_short(now)}",
            summary=_sentence(now.reason),
            evidence=tuple(items),
            change=Change(
                text=f"Trial {trial.ordinal} meets this target.",
                settings=_new_values(evidence.spec.current, trial.settings),
            ),
            gain=gain(evidence, evidence.current, trial) if evidence.current else 0.0,
            confidence="medium",
            confidence_reason="one trial each, verified only where an A/B says so",
        )
    return Finding(
        rule_id=ID,
        verdict=Verdict.FAIL,
        title=f"{target_name(target)} misses its limit of {limit_text(target)}{_number(now)}",
        summary=_sentence(now.reason),
        evidence=tuple(items),
        change=Change(
            text=_beyond_import(target, now) if imported else _what_then(target, now, then)
        ),
        confidence="high" if now.basis == "exact" or now.n >= 30 else "medium",
        confidence_reason=_sentence(now.reason),
    )


def _item(status: TargetStatus, who: str) -> EvidenceItem:
    target = status.target
    value = units.metric(target.metric, status.value)
    interval = ""
    if status.low is not None and status.high is not None and status.low != status.high:
        low, high = (units.metric(target.metric, v) for v in (status.low, status.high))
        interval = f" (95{units.NBSP}% interval {low} to {high})"
    shown = f"{value}{interval}, " if status.value is not None else ""
    return EvidenceItem(
        text=f"{who}: {target_name(target)} {shown}n = {status.n:,}; {status.reason}",
        value=status.value,
        low=status.low,
        high=status.high,
        unit=target.metric.rsplit("_", 1)[-1] if target.metric in CHARTS else None,
        n=status.n,
        trial_id=status.trial_id,
        chart=CHARTS.get(target.metric),
    )


def _number(status: TargetStatus) -> str:
    """ ": 412 ms", or nothing where the number is not shown."""
    if status.value is None:
        return ""
    return f": {units.metric(status.target.metric, status.value)}"


def _short(status: TargetStatus) -> str:
    if status.value is not None:
        return units.metric(status.target.metric, status.value)
    return f"{status.over:,} of {status.n:,} over the limit" if status.over else "over the limit"


def _more_requests(status: TargetStatus) -> str | None:
    return f"{status.needed_n:,} requests in all" if status.needed_n is not None else None


def _what_then(target: SlaTarget, now: TargetStatus, then: TargetStatus | None) -> str:
    """What is left when no measured configuration keeps the limit."""
    closest = then if then is not None and then.value is not None else now
    text = "No measured configuration keeps this limit."
    if closest.value is not None:
        side = "at most" if target.higher_is_better else "at least"
        text += f" The best one would need a limit of {side} {_bound(closest)}."
    return f"{text} Try other settings or faster hardware, or lower the load."


def _beyond_import(target: SlaTarget, now: TargetStatus) -> str:
    """What is left for a result whose settings nobody knows."""
    needs = ""
    if now.value is not None and target.higher_is_better:
        needs = f"It keeps a limit of {_bound(now)} at most. "
    elif now.value is not None:
        needs = f"It keeps a limit of {_bound(now)} or more. "
    return (
        f"The imported result does not keep this limit. {needs}To find settings that do, measure "
        "the model in a study with an agent; or lower the load and import the new result."
    )


def _bound(status: TargetStatus) -> str:
    bound = status.low if status.target.higher_is_better else status.high
    return units.metric(status.target.metric, bound if bound is not None else status.value)


def _new_values(
    current: EngineSettings, new: EngineSettings
) -> dict[str, str | int | float | bool | None]:
    changed = current.differences(new)
    return {knob: value for knob, value in new.model_dump().items() if knob in changed}


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""


RULE = Rule(
    id=ID,
    code="t001",
    group="targets",
    title="The target is met",
    failing_title="Keep the target",
    why="A target is the reason for the study. It counts as met or missed only when the "
    "measurement proves it; everything between is said to be open, with what would decide it.",
    how_measured="Percentiles by an exact binomial test on the requests over the limit, failed "
    "ones among them; means by their interval; memory by the device's own counter.",
    threshold="Met or missed with 95 % confidence; gaps of one request count as dependent.",
    source="MLPerf Inference early stopping; measurement checklist rows 2 to 5",
    when_not="Latency at a request rate cannot be judged from requests sent one after the other.",
    needs=("targets", "a baseline of the current settings"),
    knobs=(),
    check=check,
    sees_invalid=True,
)
