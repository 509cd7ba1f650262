"""The attention implementation in use against the others, and what other structures would save."""

from __future__ import annotations

from advisor import units
from advisor.crossover import common_points, crossover_text
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.measures import Ratio, interval_text, sample_ratio, times
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import missing_trial
from advisor.thresholds import (
    ATTENTION_MAX_ERROR,
    ATTENTION_MIN_GAIN,
    MAX_PERPLEXITY_INCREASE,
)
from gpuagent.wire.inside import AttentionPoint, AttentionResult, AttentionVariant

ID = "attention-slower"


def check(evidence: StudyEvidence) -> list[Finding]:
    trials = [t for t in evidence.succeeded(AttentionResult) if t.usable]
    result = trials[-1].measured(AttentionResult) if trials else None
    if result is None:
        return [
            Finding(
                rule_id=ID,
                verdict=Verdict.NOT_APPLICABLE,
                title="Attention is not measured apart",
                missing=missing_trial(evidence, "attention"),
            )
        ]
    trial = trials[-1]
    return [_implementation(trial, result), *_inexact(trial, result), *_structures(trial, result)]


def exact(variant: AttentionVariant) -> bool:
    """Error against float64 at most twice that of plain PyTorch at the same precision."""
    error, plain = variant.error.value, variant.plain_error.value
    return error is not None and plain is not None and error <= ATTENTION_MAX_ERROR.value * plain


def longest(variant: AttentionVariant) -> AttentionPoint | None:
    """The longest context that ran."""
    ran = [p for p in variant.points if p.seconds.n]
    return max(ran, key=lambda p: p.context_tokens, default=None)


def ratio_at_common(a: AttentionVariant, b: AttentionVariant) -> tuple[int, Ratio] | None:
    """(tokens, b / a) at the longest context that both ran."""
    points = {p.context_tokens: p for p in a.points if p.seconds.n}
    for point in sorted(b.points, key=lambda p: -p.context_tokens):
        mine = points.get(point.context_tokens)
        if mine is not None and point.seconds.n:
            ratio = sample_ratio(mine.seconds, point.seconds)
            return (point.context_tokens, ratio) if ratio is not None else None
    return None


def _implementation(trial: TrialEvidence, result: AttentionResult) -> Finding:
    ran = [v for v in result.variants if v.kind == "implementation" and longest(v)]
    current = next((v for v in ran if v.name == result.model.attention), None)
    others = [v for v in ran if v is not current and exact(v)]
    compared = [
        (variant, *found)
        for variant in others
        if current is not None and (found := ratio_at_common(current, variant)) is not None
    ]
    if current is None or not compared:
        return Finding(
            rule_id=ID,
            verdict=Verdict.CANNOT_TELL,
            title=f"No other implementation than {result.model.attention} could be compared",
        )
    best, tokens, ratio = min(compared, key=lambda row: row[2].value)
    items = tuple(
        EvidenceItem(
            text=f"{variant.name} takes {times(r.value)} the time of {current.name} at {at:,} "
            f"tokens{interval_text(r.low, r.high)}, n = {r.n}",
            value=r.value,
            low=r.low,
            high=r.high,
            unit="×",
            n=r.n,
            trial_id=trial.trial_id,
            chart="attention-time",
        )
        for variant, at, r in compared
    )
    upper = ratio.high if ratio.high is not None else ratio.value
    if upper > 1 / ATTENTION_MIN_GAIN.value:
        return Finding(
            rule_id=ID,
            verdict=Verdict.PASS,
            title=f"No implementation is clearly faster than {current.name}",
            evidence=items,
        )
    knob = "sdpa" if best.name.startswith("sdpa") and current.name != "sdpa" else None
    return Finding(
        rule_id=ID,
        verdict=Verdict.FAIL,
        title=f"Use {best.name}: {current.name} attention takes {times(1 / ratio.value)} as long "
        f"at {tokens:,} tokens",
        summary="Same result within rounding, checked against float64. The share of a whole "
        "prefill that this saves grows with the prompt.",
        evidence=items,
        change=Change(
            text=f"Set the attention implementation to {best.name}.",
            settings={"attention": knob} if knob else {},
        ),
        confidence="medium",
        confidence_reason="measured on one layer alone, not on whole requests",
    )


def _inexact(trial: TrialEvidence, result: AttentionResult) -> list[Finding]:
    wrong = [v for v in result.variants if v.error.value is not None and not exact(v)]
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.INFORMATIVE,
            title=f"{variant.name} is less exact than plain PyTorch and is not recommended",
            evidence=(
                EvidenceItem(
                    text=f"Largest difference from float64 {variant.error.value:.2g}, plain "
                    f"PyTorch {variant.plain_error.value:.2g}",
                    value=variant.error.value,
                    trial_id=trial.trial_id,
                ),
            ),
        )
        for variant in wrong
    ]


def _structures(trial: TrialEvidence, result: AttentionResult) -> list[Finding]:
    """What fewer heads or a window save, beside what they cost in quality."""
    structures = [v for v in result.variants if v.kind == "structure"]
    if len(structures) < 2:
        return []
    own, *others = structures
    items = []
    kept = 0
    for variant in others:
        pairs = common_points(own, variant)
        if not pairs:
            continue
        base, at = pairs[-1]
        text = f"{variant.name}: cache {units.memory(at.cache_bytes)} instead of "
        text += f"{units.memory(base.cache_bytes)} at {at.context_tokens:,} tokens"
        found = ratio_at_common(own, variant)
        if found is not None:
            text += f", {times(found[1].value)} the time ({crossover_text(own, variant)})"
        rise: float | None = None
        if own.perplexity is None or variant.perplexity is None:
            text += f"; quality not measured ({variant.perplexity_reason})"
        else:
            rise = variant.perplexity.value / own.perplexity.value - 1
            text += f"; perplexity {units.number(variant.perplexity.value)}"
            text += f" instead of {units.number(own.perplexity.value)}"
            kept += rise <= MAX_PERPLEXITY_INCREASE.value
        items.append(EvidenceItem(text=text, value=rise, trial_id=trial.trial_id))
    if not items:
        return []
    title = "Fewer K/V heads or a window would cost quality without training"
    if kept:
        title = "A smaller attention structure keeps the quality measured here"
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.INFORMATIVE,
            title=title,
            summary="K/V heads are mean-pooled and windows cut without any training, so this is "
            "the worst case for a structure; perplexity windows are 512 tokens long.",
            evidence=tuple(items),
        )
    ]


RULE = Rule(
    id=ID,
    code="a001",
    group="attention",
    title="The fastest exact attention is in use",
    failing_title="Use a faster attention implementation",
    why="Implementations of the same attention differ by what they write to memory: eager writes "
    "every score, fused kernels none. The difference grows with the square of the context.",
    how_measured="One layer's causal attention at the model's heads over growing contexts, five "
    "repeats; each variant against a float64 reference; perplexity of structures on one text.",
    threshold=f"Fails when an exact implementation is {ATTENTION_MIN_GAIN.value} × faster at the "
    f"longest context, interval included. Exact: error at most {ATTENTION_MAX_ERROR.value:.0f} "
    "times that of plain PyTorch.",
    source=ATTENTION_MIN_GAIN.source,
    when_not="Short prompts: attention is then a small part of a step.",
    needs=("an attention trial",),
    knobs=("attention",),
    check=check,
)
