"""The model with one request does not fit the device by the formula, and what would."""

from __future__ import annotations

from advisor import units
from advisor.estimates.service import Estimate
from advisor.evidence import StudyEvidence
from advisor.measures import resolved_dtype
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import (
    current_baseline,
    longest_tokens,
    not_applicable,
    plain,
    predict,
)
from gpuagent.wire import FailureReason

ID = "model-exceeds-memory"
# Smaller formats in the order of what they cost in quality: name of the estimate -> in words.
SMALLER = (("bfloat16", "bfloat16"), ("int8", "8-bit weights"), ("awq", "4-bit weights"))


def check(evidence: StudyEvidence) -> list[Finding]:
    longest = longest_tokens(evidence.spec.workload)
    found = predict(evidence, context=longest)
    if found is None:
        return not_applicable(
            ID,
            "The memory need cannot be predicted",
            "A readable config and a device whose memory is known",
        )
    item = budget_item(evidence, found, longest)
    if found.memory.fits:
        left = found.memory.usable - found.memory.total
        title = f"The model fits with {units.memory(left)} to spare (predicted)"
        return plain(ID, Verdict.PASS, title, item)
    if current_baseline(evidence) is not None:
        return plain(
            ID,
            Verdict.INFORMATIVE,
            "By the formula the model does not fit, but it runs",
            item,
            summary="The measurement counts. The formula keeps room for the engine's overheads.",
        )
    return [_failing(evidence, found, item, longest)]


def budget_item(evidence: StudyEvidence, found: Estimate, tokens: int) -> EvidenceItem:
    """The lines of the memory budget and their sum, against the device."""
    plan = found.memory
    parts = ", ".join(f"{name} {units.memory(size)}" for name, size in plan.lines() if size)
    return EvidenceItem(
        text=f"One request of {tokens:,} tokens needs {units.memory(plan.total)} ({parts}) of "
        f"{units.memory(plan.usable)} (predicted)",
        value=float(plan.total),
        unit="B",
    )


def _failing(evidence: StudyEvidence, found: Estimate, item: EvidenceItem, longest: int) -> Finding:
    items = [item]
    items += [
        EvidenceItem(
            text=f"Trial {trial.ordinal} ran out of memory: {trial.failure.message}",
            trial_id=trial.trial_id,
        )
        for trial in evidence.trials
        if trial.failure is not None and trial.failure.reason is FailureReason.OUT_OF_MEMORY
    ]
    fits = _smaller(evidence, longest)
    text = "Use a device with more memory, or a smaller model."
    settings: dict[str, str | int | float | bool | None] = {}
    if fits is not None:
        name, words, plan = fits
        text = f"Load the model in {words}: {units.memory(plan.memory.total)} then fit."
        settings = {"dtype": name} if name == "bfloat16" else {}
    elif found.memory.max_context:
        text = f"Cut requests to {found.memory.max_context:,} tokens, which fit."
    return Finding(
        rule_id=ID,
        verdict=Verdict.FAIL,
        title=f"Make the model smaller: {found.memory.reason}",
        summary="Lines of the budget are formulas with a band for the overheads.",
        evidence=tuple(items),
        change=Change(text=text, settings=settings),
        confidence="high" if len(items) > 1 else "medium",
        confidence_reason="predicted and seen" if len(items) > 1 else "predicted, not tried",
    )


def _smaller(evidence: StudyEvidence, longest: int) -> tuple[str, str, Estimate] | None:
    """The first smaller format that fits; a published quantisation stays as it is."""
    shape = evidence.shape
    if shape is None or shape.quant is not None:
        return None
    loaded = resolved_dtype(evidence.spec.current, shape)
    for name, words in SMALLER:
        if name == "bfloat16" and loaded != "float32":
            continue
        found = predict(evidence, context=longest, dtype=name)
        if found is not None and found.memory.fits:
            return name, words, found
    return None


RULE = Rule(
    id=ID,
    code="m003",
    group="memory",
    title="The model fits the device",
    failing_title="Make the model smaller",
    why="Weights, cache and working memory must fit at once. The sum is known before anything "
    "runs, so a crash on start is avoidable.",
    how_measured="Five lines from the config (weights, cache of the longest request, activations, "
    "graphs, runtime) against the memory that the device's driver shows.",
    threshold="Fails when one request of the workload does not fit by the formula.",
    source="formulas of the memory budget, checked against engine logs (docs/prediction.md)",
    when_not="Where the model already runs here: then the measurement counts.",
    needs=("a readable config", "a device whose memory is known"),
    knobs=("dtype",),
    check=check,
)
