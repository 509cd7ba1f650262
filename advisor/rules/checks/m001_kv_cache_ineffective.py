"""The KV cache is off, or on and of no use; and whether its bytes are those of the formula."""

from __future__ import annotations

from dataclasses import dataclass

from advisor import units
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.measures import (
    DTYPE_BYTES,
    Ratio,
    answer_ratio,
    baselines,
    gain,
    interval_text,
    median_s,
    sample_ratio,
    times,
)
from advisor.rules.rule import Change, Effect, EvidenceItem, Finding, Rule, Verdict
from advisor.shapes import ModelShape
from advisor.thresholds import (
    KV_BYTES_TOLERANCE,
    KV_CACHE_MAX_STEP_GROWTH,
    KV_CACHE_MIN_CONTEXT,
    KV_CACHE_MIN_GAIN,
)
from gpuagent.wire.trial import KvCacheConfig, KvCacheResult, KvPoint

ID = "kv-cache-ineffective"


@dataclass(frozen=True, slots=True)
class _Worth:
    """What the cache saves per decode step at one context: ratio = uncached / cached."""

    trial: TrialEvidence
    point: KvPoint
    ratio: Ratio

    @property
    def item(self) -> EvidenceItem:
        cached, uncached = median_s(self.point.cached_step_s), median_s(self.point.uncached_step_s)
        context = f"{self.point.context_tokens:,} tokens"
        return EvidenceItem(
            text=f"A decode step at {context} takes {units.seconds(cached)} with the cache and "
            f"{units.seconds(uncached)} without: {times(self.ratio.value)}"
            f"{interval_text(self.ratio.low, self.ratio.high)}, n = {self.ratio.n}",
            value=self.ratio.value,
            low=self.ratio.low,
            high=self.ratio.high,
            unit="×",
            n=self.ratio.n,
            trial_id=self.trial.trial_id,
            chart="kv-speed",
        )


def check(evidence: StudyEvidence) -> list[Finding]:
    worth = _worth(evidence)
    off = not evidence.spec.current.kv_cache
    if off:
        return [_off(evidence, worth), *_bytes(evidence)]
    if worth is None:
        return [
            Finding(
                rule_id=ID,
                verdict=Verdict.NOT_APPLICABLE,
                title="The worth of the KV cache is not measured",
                missing="A kv_cache trial: decode steps with and without the cache",
            ),
            *_bytes(evidence),
        ]
    return [_on(evidence, worth), *_bytes(evidence)]


def _worth(evidence: StudyEvidence) -> _Worth | None:
    """The longest context measured both ways, in the newest usable trial."""
    for trial in reversed(evidence.succeeded(KvCacheResult)):
        result = trial.measured(KvCacheResult)
        if result is None or not trial.usable:
            continue
        config = trial.spec.config
        groups = config.repeats if isinstance(config, KvCacheConfig) else 0
        for point in sorted(result.points, key=lambda p: -p.context_tokens):
            ratio = sample_ratio(point.cached_step_s, point.uncached_step_s, groups=groups)
            if ratio is not None:
                return _Worth(trial, point, ratio)
    return None


def _off(evidence: StudyEvidence, worth: _Worth | None) -> Finding:
    pair = _baseline_pair(evidence)
    if worth is None and pair is None:
        return Finding(
            rule_id=ID,
            verdict=Verdict.NOT_APPLICABLE,
            title="The KV cache is off and its worth is not measured",
            missing="A kv_cache trial, or a baseline with the cache on",
        )
    items = [worth.item] if worth else []
    ratio = worth.ratio if worth else None
    if pair is not None:
        off, on, answers = pair
        items.append(
            EvidenceItem(
                text=f"Answers take {times(1 / answers.value)} as long without the cache "
                f"(trial {off.ordinal} against {on.ordinal})",
                value=1 / answers.value,
                unit="×",
                n=answers.n,
                trial_id=on.trial_id,
            )
        )
        ratio = ratio or answers.inverse
    if ratio is None or ratio.value < KV_CACHE_MIN_GAIN.value:
        return Finding(
            rule_id=ID,
            verdict=Verdict.CANNOT_TELL,
            title="The KV cache is off, and little is lost at the contexts measured",
            evidence=tuple(items),
        )
    where = f"at {worth.point.context_tokens:,} tokens " if worth else ""
    closed = gain(evidence, pair[0], pair[1]) if pair else 0.0
    return Finding(
        rule_id=ID,
        verdict=Verdict.FAIL,
        title=f"Switch the KV cache on: decoding {where}takes {times(ratio.value)} as long "
        "without it",
        summary="Without the cache every new token recomputes the keys and values of the whole "
        "context, so a step costs a prefill.",
        evidence=tuple(items),
        change=Change(
            text="Keep keys and values between decode steps.", settings={"kv_cache": True}
        ),
        effect=_effect(ratio, worth.trial.trial_id if worth else None),
        confidence="high" if ratio.low is not None else "medium",
        confidence_reason="the mechanism is exact and the factor is measured on this device",
        gain=closed,
    )


def _baseline_pair(
    evidence: StudyEvidence,
) -> tuple[TrialEvidence, TrialEvidence, Ratio] | None:
    """Baselines that differ in nothing but the cache: off, on, end-to-end ratio on / off."""
    trials = baselines(evidence)
    for off in (t for t in trials if not t.settings.kv_cache):
        for on in trials:
            if set(off.settings.differences(on.settings)) == {"kv_cache"}:
                ratio = answer_ratio(off, on)
                if ratio is not None:
                    return off, on, ratio
    return None


def _effect(ratio: Ratio, trial_id: str | None) -> Effect:
    """From without to with: the step shrinks to 1 / ratio."""
    saved = ratio.inverse
    return Effect(
        metric="itl_s",
        change_frac=saved.value - 1,
        low=saved.low - 1 if saved.low is not None else None,
        high=saved.high - 1 if saved.high is not None else None,
        basis="measured",
        better=True,
        from_trial=trial_id,
        to_trial=trial_id,
    )


def _on(evidence: StudyEvidence, worth: _Worth) -> Finding:
    context = worth.point.context_tokens
    at = f"at {context:,} tokens"
    if worth.ratio.value >= KV_CACHE_MIN_GAIN.value:
        return Finding(
            rule_id=ID,
            verdict=Verdict.PASS,
            title=f"The KV cache works: a decode step {at} is {times(worth.ratio.value)} faster "
            "with it",
            evidence=(worth.item,),
        )
    if context < KV_CACHE_MIN_CONTEXT.value:
        return Finding(
            rule_id=ID,
            verdict=Verdict.CANNOT_TELL,
            title=f"The contexts measured are too short to judge the KV cache ({context:,} tokens)",
            evidence=(worth.item,),
            missing=f"A kv_cache trial up to {KV_CACHE_MIN_CONTEXT.value:,.0f} tokens or more",
        )
    growth = _growth(evidence, worth.trial)
    if growth is None or growth.value is None or growth.value <= KV_CACHE_MAX_STEP_GROWTH.value:
        return Finding(
            rule_id=ID,
            verdict=Verdict.INFORMATIVE,
            title=f"The KV cache saves little {at}: something else sets the pace of a step",
            summary="The cached step does not grow with context, so the cache works; launch "
            "overhead or the read of the weights hides what it saves.",
            evidence=(worth.item,) if growth is None else (worth.item, growth),
        )
    return Finding(
        rule_id=ID,
        verdict=Verdict.FAIL,
        title=f"Repair the KV cache: a decode step {at} is only {times(worth.ratio.value)} faster "
        "with it, and grows with context",
        summary="A cached step reads one token's projections and the cache. One that grows with "
        "context as recomputing does is recomputing, or copies the cache at every step.",
        evidence=(worth.item, growth),
        change=Change(
            text="Check that the model code takes and returns past key values; use a cache that "
            "is written in place (static) rather than concatenated; try attention sdpa.",
            settings={"attention": "sdpa"} if evidence.spec.current.attention == "eager" else {},
        ),
        confidence="medium",
        confidence_reason="the cause is inferred from the growth, not seen in a profile",
    )


def _growth(evidence: StudyEvidence, trial: TrialEvidence) -> EvidenceItem | None:
    """How much more the cached step grew than reading weights and cache explains."""
    result = trial.measured(KvCacheResult)
    if result is None or len(result.points) < 2:
        return None
    points = sorted(result.points, key=lambda p: p.context_tokens)
    first, last = points[0], points[-1]
    ratio = sample_ratio(first.cached_step_s, last.cached_step_s)
    weights = result.model.stored_weight_bytes
    if ratio is None or weights is None:
        return None
    expected = (weights + last.cache_bytes) / (weights + first.cache_bytes)
    return EvidenceItem(
        text=f"The cached step grows {times(ratio.value)} from {first.context_tokens:,} to "
        f"{last.context_tokens:,} tokens; reading weights and cache explains {times(expected)}",
        value=ratio.value / expected,
        unit="×",
        n=ratio.n,
        trial_id=trial.trial_id,
        chart="kv-speed",
    )


def _bytes(evidence: StudyEvidence) -> list[Finding]:
    """Measured bytes per token against the formula; a finding only where they differ."""
    shape = evidence.shape
    for trial in reversed(evidence.succeeded(KvCacheResult)):
        result = trial.measured(KvCacheResult)
        if shape is None or result is None or not trial.usable or len(result.points) < 2:
            continue
        measured, formula = _bytes_per_token(result, shape)
        if formula <= 0 or abs(measured / formula - 1) <= KV_BYTES_TOLERANCE.value:
            continue
        return [
            Finding(
                rule_id=ID,
                verdict=Verdict.INFORMATIVE,
                title=f"The cache takes {units.memory(measured)} per token where the formula says "
                f"{units.memory(formula)}",
                summary="The engine stores more than keys and values of this architecture need "
                "(padding, another dtype, all layers of a windowed model), or allocates ahead.",
                evidence=(
                    EvidenceItem(
                        text=f"Growth from {result.points[0].context_tokens:,} to "
                        f"{result.points[-1].context_tokens:,} tokens, one sequence",
                        value=measured,
                        unit="B/token",
                        trial_id=trial.trial_id,
                        chart="kv-speed",
                    ),
                ),
            )
        ]
    return []


def _bytes_per_token(result: KvCacheResult, shape: ModelShape) -> tuple[float, float]:
    """Slopes, so that bytes that do not depend on context (state, first block) cancel."""
    points = sorted(result.points, key=lambda p: p.context_tokens)
    first, last = points[0], points[-1]
    tokens = last.context_tokens - first.context_tokens
    if tokens <= 0:
        return 0.0, 0.0
    itemsize = DTYPE_BYTES.get(result.model.dtype, 2)
    formula = shape.kv_bytes_for(last.context_tokens, itemsize) - shape.kv_bytes_for(
        first.context_tokens, itemsize
    )
    return (last.cache_bytes - first.cache_bytes) / tokens, formula / tokens


RULE = Rule(
    id=ID,
    code="m001",
    group="memory",
    title="The KV cache saves what it should",
    failing_title="Use the KV cache",
    why="Every output token attends to all tokens before it. With the cache their keys and values "
    "are read; without it they are computed again, so a step costs a whole prefill and answers "
    "slow down with every token.",
    how_measured="Decode steps at growing context, cache on and off, warm-up apart, at least five "
    "repeats; bytes of the cache tensors as the engine holds them.",
    threshold=f"Fails when the cache is off and costs {KV_CACHE_MIN_GAIN.value} × or more, or is "
    f"on, saves less than that at {KV_CACHE_MIN_CONTEXT.value:.0f} tokens or more, and the cached "
    f"step grows {KV_CACHE_MAX_STEP_GROWTH.value} × beyond what reading the cache explains.",
    source=KV_CACHE_MIN_GAIN.source,
    when_not="Single-token answers (classification, scoring) never read the cache again; it then "
    "only costs memory.",
    needs=("a kv_cache trial",),
    knobs=("kv_cache", "attention"),
    check=check,
)
