"""Configurations are compared although they were measured under different software or hardware."""

from __future__ import annotations

from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.measures import baselines
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import not_applicable, plain

ID = "environment-differs"


def check(evidence: StudyEvidence) -> list[Finding]:
    trials = baselines(evidence)
    if len(trials) < 2:
        return not_applicable(ID, "Only one configuration was measured", "A second baseline")
    first = _facts(trials[0])
    items = tuple(
        EvidenceItem(
            text=f"Trial {trial.ordinal} against {trials[0].ordinal}: {'; '.join(differing)}",
            trial_id=trial.trial_id,
        )
        for trial in trials[1:]
        if (differing := _differing(first, _facts(trial)))
    )
    if not items:
        count = len(trials)
        item = EvidenceItem(
            text=f"{count} baselines agree in host, device, driver and versions", n=count
        )
        return plain(ID, Verdict.PASS, "All configurations were measured alike", item)
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title="Measure again under one environment: trials differ in more than their settings",
            summary="What looks like the effect of a setting may be that of the update.",
            evidence=items,
            change=Change(
                text="Submit the study again, and update the agent only between studies."
            ),
            confidence="high",
            confidence_reason="recorded by the agent with each result",
        )
    ]


def _facts(trial: TrialEvidence) -> dict[str, str]:
    if trial.result is None:
        return {}
    environment = trial.result.environment
    return {
        "host": environment.host.hostname if environment.host is not None else "not known",
        "device": environment.device,
        "GPUs": ", ".join(gpu.uuid for gpu in environment.gpus),
        "driver": environment.driver_version or "",
        **environment.versions,
    }


def _differing(a: dict[str, str], b: dict[str, str]) -> list[str]:
    return [
        f"{name} {a.get(name, 'unknown')} and {b.get(name, 'unknown')}"
        for name in dict.fromkeys((*a, *b))
        if a.get(name) != b.get(name)
    ]


RULE = Rule(
    id=ID,
    code="v004",
    group="measurement",
    title="All configurations were measured alike",
    failing_title="Measure again under one environment",
    why="An update of the driver or of the engine between two trials moves numbers by more than "
    "most settings do.",
    how_measured="Host, device, driver and versions that the agent records with each result.",
    threshold="Fails when baselines of one study differ in any of them.",
    source="reliability checklist: provenance of a number",
    when_not="When the version is what is compared.",
    needs=("two baselines",),
    knobs=(),
    check=check,
)
