"""A fresh process takes longer to its first answer than a probe or an autoscaler waits."""

from __future__ import annotations

import math

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import current_baseline, not_applicable, plain
from advisor.thresholds import COLD_START_MAX

ID = "cold-start-long"
_PERIOD_S = 10


def check(evidence: StudyEvidence) -> list[Finding]:
    found = current_baseline(evidence)
    cold = found[1].cold if found is not None else None
    if found is None or cold is None:
        missing = "A valid baseline of the current settings"
        return not_applicable(ID, "The start is not measured", missing)
    trial, _ = found
    total_s = cold.import_s + cold.load_s + cold.warmup_s
    item = EvidenceItem(
        text=f"Start {units.seconds(total_s)}: imports {units.seconds(cold.import_s)}, loading "
        f"{units.seconds(cold.load_s)}, warm-up {units.seconds(cold.warmup_s)} (measured once)",
        value=total_s,
        unit="s",
        n=1,
        trial_id=trial.trial_id,
    )
    if total_s <= COLD_START_MAX.value:
        return plain(ID, Verdict.PASS, f"A process is ready after {units.seconds(total_s)}", item)
    failures = math.ceil(2 * total_s / _PERIOD_S)
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Plan for a start of {units.seconds(total_s)}: probes with defaults give up "
            f"after {COLD_START_MAX.value:.0f}{units.NBSP}s",
            summary="Scaling up helps only that much later, and every restart costs the same.",
            evidence=(item,),
            change=Change(
                text=f"Give the startup probe a failureThreshold of {failures} at "
                f"{_PERIOD_S}{units.NBSP}s, keep a warm replica, and keep weights on a local disk."
            ),
            confidence="medium",
            confidence_reason="one start; the file cache may have been warm",
        )
    ]


RULE = Rule(
    id=ID,
    code="f001",
    group="stability",
    title="A process starts faster than probes give up",
    failing_title="Plan for a long start",
    why="A restart, a new node or an autoscaler all wait for the start. Probes that are shorter "
    "kill the process while it loads, again and again.",
    how_measured="Imports, loading of weights and warm-up of the trial's own process.",
    threshold=f"Fails above {COLD_START_MAX.value:.0f} s.",
    source=COLD_START_MAX.source,
    when_not="Batch jobs that start once a day.",
    needs=("a valid baseline",),
    knobs=(),
    check=check,
)
