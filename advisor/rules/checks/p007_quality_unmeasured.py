"""Formats are compared for speed although their quality could not be measured."""

from __future__ import annotations

from advisor.evidence import StudyEvidence
from advisor.measures import baseline_of, baselines, dtype_of
from advisor.rules.rule import EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import not_applicable

ID = "quality-unmeasured"


def check(evidence: StudyEvidence) -> list[Finding]:
    trials = baselines(evidence)
    if len({dtype_of(trial) for trial in trials}) < 2:
        missing = "Baselines in two formats"
        return not_applicable(ID, "Only one format was measured", missing)
    without = [trial for trial in trials if baseline_of(trial).perplexity is None]
    if not without:
        item = EvidenceItem(text=f"All {len(trials)} baselines have a perplexity", n=len(trials))
        title = "The quality of every format was measured"
        return [Finding(rule_id=ID, verdict=Verdict.PASS, title=title, evidence=(item,))]
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.CANNOT_TELL,
            title="Whether another format keeps the quality is not known",
            summary="Advice on the format rests on speed and memory alone.",
            evidence=tuple(
                EvidenceItem(
                    text=f"{dtype_of(trial)}: {baseline_of(trial).perplexity_reason}",
                    trial_id=trial.trial_id,
                )
                for trial in without
            ),
            missing="Real weights, and a text of your own (text_path) for perplexity",
        )
    ]


RULE = Rule(
    id=ID,
    code="p007",
    group="precision",
    title="The quality of every format is measured",
    failing_title="Measure quality before changing the format",
    why="A format that is faster and worse looks like a gain as long as nobody scores its answers.",
    how_measured="Whether each baseline of a comparison of formats has a perplexity, and why not.",
    threshold="Cannot tell as soon as one format has none.",
    source="reliability checklist row 18",
    when_not="Random weights: speed is the same, quality has no meaning.",
    needs=("baselines in two formats",),
    knobs=(),
    check=check,
)
