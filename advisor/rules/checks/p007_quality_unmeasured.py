"""Formats are compared for speed although their quality could not be measured."""

from __future__ import annotations

from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.measures import baseline_of, baselines, dtype_of
from advisor.rules.rule import EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import not_applicable
from gpuagent.wire import EngineSettings
from gpuagent.wire.trial import VerifyResult

ID = "quality-unmeasured"


def check(evidence: StudyEvidence) -> list[Finding]:
    trials = baselines(evidence)
    if len({_format(trial) for trial in trials}) < 2:
        missing = "Baselines in two formats"
        return not_applicable(ID, "Only one format was measured", missing)
    scored = _scored(evidence) | {_format(t) for t in trials if baseline_of(t).perplexity}
    without = [trial for trial in trials if _format(trial) not in scored]
    if not without:
        item = EvidenceItem(
            text=f"Every format of {len(trials)} baselines has a perplexity", n=len(trials)
        )
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
                    text=f"{_format(trial)}: {baseline_of(trial).perplexity_reason}",
                    trial_id=trial.trial_id,
                )
                for trial in without
            ),
            missing="Real weights, and a text of your own (text_path) for perplexity",
        )
    ]


def _format(trial: TrialEvidence) -> str:
    return _name(dtype_of(trial), trial.settings)


def _name(dtype: str, settings: EngineSettings) -> str:
    """Format of the weights, and of the cache where it is one of its own."""
    return dtype if settings.kv_dtype == "auto" else f"{dtype} with a cache in {settings.kv_dtype}"


def _scored(evidence: StudyEvidence) -> set[str]:
    """Formats that a verification scored: a server's cache is scored there alone."""
    found = set()
    for trial in evidence.trials:
        result = trial.measured(VerifyResult)
        if result is not None and trial.usable and result.perplexity_a and result.perplexity_b:
            found.add(_name(result.model_a.dtype, trial.settings))
            found.add(_name(result.model_b.dtype, result.candidate))
    return found


RULE = Rule(
    id=ID,
    code="p007",
    group="precision",
    title="The quality of every format is measured",
    failing_title="Measure quality before changing the format",
    why="A format that is faster and worse looks like a gain as long as nobody scores its answers.",
    how_measured="Whether each format of weights or cache that is compared has a perplexity, from "
    "its baseline or the verification, and why not.",
    threshold="Cannot tell as soon as one format has none.",
    source="reliability checklist row 18",
    when_not="Random weights: speed is the same, quality has no meaning.",
    needs=("baselines in two formats of weights or cache",),
    knobs=(),
    check=check,
)
