"""A format with fewer bits that is faster and as good, or faster but worse."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.measures import Ratio, interval_text, sample_ratio, times
from advisor.rules.rule import Change, Effect, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import missing_trial, ratio_item
from advisor.thresholds import MAX_PERPLEXITY_INCREASE, UNVERIFIED_NOISE
from gpuagent.wire.inside import QuantisationConfig, QuantisationResult, QuantVariant

ID = "format-faster"
NAMES = {
    "int8_weight_only": "int8 weights",
    "int8_dynamic": "dynamic int8",
    "int4_weight_only": "int4 weights",
    "as_stored": "the stored format",
}
_KNOBS = ("float32", "bfloat16", "float16")


def check(evidence: StudyEvidence) -> list[Finding]:
    trials = [t for t in evidence.succeeded(QuantisationResult) if t.usable]
    result = trials[-1].measured(QuantisationResult) if trials else None
    if result is None:
        return [_none(missing_trial(evidence, "quantisation"))]
    trial = trials[-1]
    base = _base(trial, result)
    if base is None:
        return [_none("A quantisation trial in which today's format runs")]
    found = [
        _judged(trial, result, base, variant, ratio)
        for variant in result.variants
        if variant is not base
        and not variant.reason
        and (ratio := _ratio(trial, base, variant)) is not None
    ]
    failing = sorted(
        (f for f in found if f.verdict is Verdict.FAIL),
        key=lambda f: f.effect.change_frac if f.effect else 0.0,
    )
    # One recommendation; what is slower than it needs no finding of its own.
    others = [f for f in found if f.verdict not in (Verdict.FAIL, Verdict.PASS)]
    if failing:
        return [failing[0], *others]
    if others:
        return others
    return found[:1] or [_none("A second format that runs on this device")]


def _none(missing: str) -> Finding:
    return Finding(
        rule_id=ID,
        verdict=Verdict.NOT_APPLICABLE,
        title="Formats of the weights are not compared",
        missing=missing,
    )


def name_of(method: str) -> str:
    return NAMES.get(method, method)


def _in_format(variant: QuantVariant) -> str:
    """ "in bfloat16", "with int8 weights (torchao)"."""
    name = name_of(variant.method)
    kernel = f" ({variant.kernel})" if variant.kernel else ""
    plain = variant.method in _KNOBS or variant.method in ("float8", "as_stored")
    return f"{'in' if plain else 'with'} {name}{kernel}"


def _base(trial: TrialEvidence, result: QuantisationResult) -> QuantVariant | None:
    """The format in use today, else the first that ran."""
    ran = [v for v in result.variants if not v.reason]
    own = next((v for v in ran if v.method == trial.settings.dtype), None)
    return own or next(iter(ran), None)


def _ratio(trial: TrialEvidence, base: QuantVariant, other: QuantVariant) -> Ratio | None:
    config = trial.spec.config
    groups = config.repeats if isinstance(config, QuantisationConfig) else 0
    return sample_ratio(base.decode_step_s, other.decode_step_s, groups=groups)


def perplexity_rise(base: QuantVariant, other: QuantVariant) -> float | None:
    first, second = base.perplexity, other.perplexity
    if first is None or second is None or first.text_sha256 != second.text_sha256:
        return None
    return second.value / first.value - 1


def identical_answers(variant: QuantVariant, answer_tokens: int) -> tuple[int, int]:
    """(prompts with the reference's whole answer, prompts)."""
    same = sum(1 for tokens in variant.agreed_tokens if tokens == answer_tokens)
    return same, len(variant.agreed_tokens)


def _judged(
    trial: TrialEvidence,
    result: QuantisationResult,
    base: QuantVariant,
    other: QuantVariant,
    ratio: Ratio,
) -> Finding:
    name, today = name_of(other.method), name_of(base.method)
    rise = perplexity_rise(base, other)
    items = _items(trial, result, base, other, ratio, rise)
    if not ratio.below(UNVERIFIED_NOISE.value):
        return Finding(
            rule_id=ID,
            verdict=Verdict.PASS,
            title=f"{today} is not slower than {name}",
            evidence=items,
        )
    faster = times(1 / ratio.value)
    if rise is None:
        return Finding(
            rule_id=ID,
            verdict=Verdict.CANNOT_TELL,
            title=f"{name} is {faster} faster, its quality is not measured",
            summary=other.perplexity_reason or base.perplexity_reason or "",
            evidence=items,
        )
    if rise > MAX_PERPLEXITY_INCREASE.value:
        return Finding(
            rule_id=ID,
            verdict=Verdict.INFORMATIVE,
            title=f"{name} is faster but worse: {faster} the speed, perplexity "
            f"{units.percent(rise)} higher",
            summary="Speed that costs quality is not recommended.",
            evidence=items,
        )
    return Finding(
        rule_id=ID,
        verdict=Verdict.FAIL,
        title=f"Use {name}: decoding in {today} takes {faster} as long",
        summary="Decoding reads every weight once per token, so fewer bytes are less time where "
        "the kernel unpacks them fast enough.",
        evidence=items,
        change=Change(
            text=f"Serve {_in_format(other)}.",
            settings={"dtype": other.method} if other.method in _KNOBS else {},
        ),
        effect=Effect(
            metric="itl_s",
            change_frac=ratio.value - 1,
            low=ratio.low - 1 if ratio.low is not None else None,
            high=ratio.high - 1 if ratio.high is not None else None,
            basis="measured",
            better=True,
            from_trial=trial.trial_id,
            to_trial=trial.trial_id,
        ),
        confidence="medium",
        confidence_reason="one model load each, one after the other; quality on one text",
    )


def _items(
    trial: TrialEvidence,
    result: QuantisationResult,
    base: QuantVariant,
    other: QuantVariant,
    ratio: Ratio,
    rise: float | None,
) -> tuple[EvidenceItem, ...]:
    name, today = name_of(other.method), name_of(base.method)
    items = [
        ratio_item(
            f"A decode step in {name} takes {times(ratio.value)} the time of {today}"
            f"{interval_text(ratio.low, ratio.high)}, n = {ratio.n}",
            ratio,
            trial,
            chart="format-tradeoff",
        )
    ]
    if rise is not None and other.perplexity is not None:
        items.append(
            EvidenceItem(
                text=f"Perplexity changes by {units.percent(rise)} to "
                f"{units.number(other.perplexity.value)} over {other.perplexity.tokens:,} tokens",
                value=rise,
                n=other.perplexity.tokens,
                trial_id=trial.trial_id,
                chart="format-tradeoff",
            )
        )
    same, prompts = identical_answers(other, result.answer_tokens)
    if prompts:
        items.append(
            EvidenceItem(
                text=f"{same} of {prompts} greedy answers of {result.answer_tokens} tokens are "
                "those of the reference",
                value=same / prompts,
                n=prompts,
                trial_id=trial.trial_id,
            )
        )
    if other.weight_bytes.value is not None:
        items.append(
            EvidenceItem(
                text=f"Weights take {units.memory(other.weight_bytes.value)} instead of "
                f"{units.memory(base.weight_bytes.value)}",
                value=other.weight_bytes.value,
                unit="B",
                trial_id=trial.trial_id,
            )
        )
    return tuple(items)


RULE = Rule(
    id=ID,
    code="p002",
    group="precision",
    title="The weights are in the fastest format that keeps the quality",
    failing_title="Use a format with fewer bits",
    why="Decoding is bound by reading the weights. Half the bytes can be half the time, or twice "
    "the time where the device has no kernel for the format, or another model altogether.",
    how_measured="Decode steps, bytes, perplexity and greedy answers of each format in one "
    "process, one load after the other, same prompts.",
    threshold=f"Fails when a format decodes faster by more than {UNVERIFIED_NOISE.value:.0%} and "
    f"raises perplexity by {MAX_PERPLEXITY_INCREASE.value:.0%} at most.",
    source=MAX_PERPLEXITY_INCREASE.source,
    when_not="Where answers must be those of the original model, token by token.",
    needs=("a quantisation trial",),
    knobs=("dtype",),
    check=check,
)
