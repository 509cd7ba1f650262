"""The trial ended before all requests of the workload were sent."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import current_baseline, not_applicable, plain
from advisor.targets import trial_metrics

ID = "workload-cut-short"


def check(evidence: StudyEvidence) -> list[Finding]:
    found = current_baseline(evidence)
    metrics = trial_metrics(found[0]) if found is not None else None
    if found is None or metrics is None or metrics.sent == 0:
        missing = "A valid baseline with requests"
        return not_applicable(ID, "No requests were sent", missing)
    trial, result = found
    asked = trial.spec.workload.requests
    item = EvidenceItem(
        text=f"{metrics.sent:,} of {asked:,} requests in {units.seconds(result.window_s)}",
        value=metrics.sent,
        n=metrics.sent,
        trial_id=trial.trial_id,
    )
    if metrics.sent >= asked:
        return plain(ID, Verdict.PASS, f"All {asked:,} requests were sent", item)
    missing_s = result.window_s / metrics.sent * (asked - metrics.sent)
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Raise the time budget: only {metrics.sent:,} of {asked:,} requests fitted",
            summary="None of the numbers is wrong, but percentiles rest on fewer requests than "
            "were asked for.",
            evidence=(item,),
            change=Change(
                text=f"Give each trial {units.seconds(missing_s)} more, or ask for fewer requests."
            ),
            confidence="high",
            confidence_reason="counted",
        )
    ]


RULE = Rule(
    id=ID,
    code="f005",
    group="stability",
    title="The workload was sent in full",
    failing_title="Raise the time budget",
    why="A target on p99 needs hundreds of requests. A run that is cut short proves less than its "
    "plan says, without looking any different.",
    how_measured="Requests sent against those that the workload asks for.",
    threshold="Fails when fewer were sent.",
    source="definition of the workload",
    when_not="When the targets are proven with the requests that fitted.",
    needs=("a valid baseline with requests",),
    knobs=(),
    check=check,
)
