"""Attention is written out score by score although a fused implementation exists."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.measures import (
    Ratio,
    answer_ratio,
    baseline_of,
    baselines,
    gain,
    interval_text,
    prefill_ratio,
    times,
)
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import (
    current_start,
    latest,
    longest_prompt_tokens,
    not_applicable,
    plain,
    ratio_item,
)
from advisor.thresholds import EAGER_MIN_PROMPT, UNVERIFIED_NOISE
from gpuagent.wire.inside import AttentionResult

ID = "attention-eager"
_SCORE_BYTES = 4  # softmax runs in 32 bit


def check(evidence: StudyEvidence) -> list[Finding]:
    found = current_start(evidence)
    if found is None:
        missing = "A valid baseline of the current settings"
        return not_applicable(ID, "The attention in use is not known", missing)
    trial, result = found
    if result.model.attention != "eager":
        title = f"Attention is fused ({result.model.attention})"
        return plain(ID, Verdict.PASS, title)
    if latest(evidence, AttentionResult) is not None:
        missing = "Nothing: an attention trial compares implementations (attention-slower)"
        return not_applicable(ID, "Eager attention is in use and was measured apart", missing)
    tokens = longest_prompt_tokens(evidence.spec.workload)
    items = [EvidenceItem(text="The engine loaded attention eager", trial_id=trial.trial_id)]
    if evidence.shape is not None and evidence.shape.heads:
        items.append(_scores(evidence.shape.heads, tokens))
    measured = _measured(evidence, trial)
    if measured is not None:
        other, ratio = measured
        items.append(_item(other, ratio))
        if not ratio.below(UNVERIFIED_NOISE.value):
            return plain(ID, Verdict.PASS, "Eager attention costs nothing measured here", *items)
    elif tokens < EAGER_MIN_PROMPT.value:
        title = f"Attention is eager, which matters little at {tokens:,} tokens"
        return plain(ID, Verdict.INFORMATIVE, title, *items)
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title="Use fused attention: eager writes every score to memory",
            summary="Both give the same result within rounding. Eager is meant for looking at "
            "scores, and is what some models fall back to.",
            evidence=tuple(items),
            change=Change(text="Set attn_implementation to sdpa.", settings={"attention": "sdpa"}),
            confidence="high" if measured else "medium",
            confidence_reason="measured"
            if measured
            else "the mechanism is exact, the saving was not measured",
            gain=gain(evidence, trial, measured[0]) if measured else 0.0,
        )
    ]


def _scores(heads: int, tokens: int) -> EvidenceItem:
    scores = heads * tokens**2 * _SCORE_BYTES
    return EvidenceItem(
        text=f"A layer writes {units.memory(scores)} of scores for a prompt of {tokens:,} tokens "
        f"and {heads} heads; a fused one writes none (exact)",
        value=float(scores),
        unit="B",
    )


def _measured(evidence: StudyEvidence, trial: TrialEvidence) -> tuple[TrialEvidence, Ratio] | None:
    """The fastest baseline that differs in attention alone, and its time over the current one's."""
    rows = [
        (other, ratio)
        for other in baselines(evidence)
        if set(trial.settings.differences(other.settings)) == {"attention"}
        and baseline_of(other).model.attention != "eager"
        and (ratio := answer_ratio(trial, other) or prefill_ratio(trial, other)) is not None
    ]
    return min(rows, key=lambda row: row[1].value, default=None)


def _item(other: TrialEvidence, ratio: Ratio) -> EvidenceItem:
    return ratio_item(
        f"Attention {baseline_of(other).model.attention} takes {times(ratio.value)} the time"
        f"{interval_text(ratio.low, ratio.high)}, n = {ratio.n}",
        ratio,
        other,
    )


RULE = Rule(
    id=ID,
    code="a002",
    group="attention",
    title="Attention is fused",
    failing_title="Use fused attention",
    why="Written out, attention moves a matrix of scores that grows with the square of the prompt "
    "through memory three times. Fused kernels keep it on the chip.",
    how_measured="The implementation that the engine reports after loading; size of the scores "
    "from the config; a baseline with another implementation where there is one.",
    threshold=f"Fails with eager from prompts of {EAGER_MIN_PROMPT.value:.0f} tokens on, or when a "
    "fused baseline is faster beyond noise.",
    source=EAGER_MIN_PROMPT.source,
    when_not="When attention scores themselves are read, or a model's fused kernel is wrong.",
    needs=("a valid baseline of the current settings",),
    knobs=("attention",),
    check=check,
)
