"""The tokens of one step are too many for the gap between tokens, or too few for the prompts."""

from __future__ import annotations

import math

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import NO_COUNTERS, not_applicable, plain, server_counters
from advisor.targets import target_statuses
from advisor.thresholds import STEPS_MIXED_MAX

ID = "prefill-chunks"


def check(evidence: StudyEvidence) -> list[Finding]:
    found = server_counters(evidence)
    if found is None:
        return not_applicable(ID, "Steps with prompts were not counted", NO_COUNTERS)
    trial, server = found
    if server.mixed_frac is None or server.steps is None:
        return not_applicable(
            ID, "Steps with prompts were not counted", "An engine that counts them"
        )
    share = units.percent(server.mixed_frac)
    budget = trial.settings.max_batched_tokens
    prompt = evidence.spec.workload.input_tokens.mean
    tokens = f"{budget:,} tokens" if budget is not None else "the engine's own number of tokens"
    item = EvidenceItem(
        text=f"{share} of {server.steps:,} steps computed prompts beside answers, with {tokens} "
        f"in a step; a mean prompt has {prompt:,}",
        value=server.mixed_frac,
        unit="share of steps",
        n=server.steps,
        trial_id=trial.trial_id,
    )
    if server.mixed_frac <= STEPS_MIXED_MAX.value:
        title = f"Prompts share {share} of the steps with answers"
        return plain(ID, Verdict.PASS, title, item)
    missed = {
        status.target.metric
        for status in target_statuses(evidence.current, evidence.spec)
        if status.verdict == "missed"
    }
    first, gap = bool(missed & {"ttft_s", "e2e_s"}), "itl_s" in missed
    if first and gap:
        title = f"Prompts and answers compete in {share} of the steps, and both miss their target"
        summary = "Fewer tokens in a step shorten the gaps and lengthen the wait for the first one."
        return plain(ID, Verdict.CANNOT_TELL, title, item, summary=summary)
    if gap:
        return [_failing(item, "Compute fewer prompt tokens in a step", share, _smaller(budget))]
    if first and budget is not None and budget < prompt:
        return [_failing(item, "Compute more prompt tokens in a step", share, _larger(prompt))]
    return plain(ID, Verdict.INFORMATIVE, f"Prompts share {share} of the steps with answers", item)


def _failing(item: EvidenceItem, title: str, share: str, tokens: int) -> Finding:
    smaller = title.startswith("Compute fewer")
    return Finding(
        rule_id=ID,
        verdict=Verdict.FAIL,
        title=f"{title}: {share} of the steps mix prompts and answers",
        summary="A step lasts as long as its prompt tokens take, and every running answer waits "
        "for it."
        if smaller
        else "A mean prompt takes several steps, each with the full cost of a decode step.",
        evidence=(item,),
        change=Change(
            text=f"Set the tokens of a step to {tokens:,}. "
            + (
                "The first token will come later."
                if smaller
                else "The gap between tokens will grow while prompts are computed."
            ),
            settings={"max_batched_tokens": tokens},
        ),
        confidence="medium",
        confidence_reason="the engine counted the steps; the effect is for a trial to show",
    )


def _smaller(budget: int | None) -> int:
    """Half of today's; 2,048 where the engine chose, the usual default before larger ones."""
    return max(256, budget // 2) if budget is not None else 2048


def _larger(prompt: int) -> int:
    """The power of two that holds two mean prompts."""
    return int(2 ** math.ceil(math.log2(2 * prompt)))


RULE = Rule(
    id=ID,
    code="s011",
    group="scheduling",
    title="Prompts and answers share steps in the right measure",
    failing_title="Change the tokens of a step",
    why="The token budget of a step trades the wait for the first token against the gap between "
    "tokens: large chunks finish prompts soon and make running answers stutter.",
    how_measured="Steps that decode and compute prompts, by the engine's counters, together with "
    "which target is missed.",
    threshold=f"Above {STEPS_MIXED_MAX.value:.0%} of the steps: fails when only the gap between "
    "tokens misses its target, or only the first token does and a mean prompt does not fit a step.",
    source=STEPS_MIXED_MAX.source,
    when_not="Where prompts and answers run on separate replicas.",
    needs=("the engine's counters at a request rate",),
    knobs=("max_batched_tokens", "chunked_prefill"),
    check=check,
)
