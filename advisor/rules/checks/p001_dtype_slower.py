"""The current dtype is slower than another one measured on the same device."""

from __future__ import annotations

from dataclasses import dataclass

from advisor import units
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.measures import (
    Ratio,
    answer_ratio,
    baseline_of,
    baselines,
    decode_ratio,
    dtype_of,
    gain,
    interval_text,
    perplexity_increase,
    prefill_ratio,
    times,
)
from advisor.rules.rule import Change, Effect, EvidenceItem, Finding, Rule, Verdict
from advisor.thresholds import MAX_PERPLEXITY_INCREASE, UNVERIFIED_NOISE
from advisor.verification import verification_of
from gpuagent.wire import EngineSettings

ID = "dtype-slower"
NOISE = UNVERIFIED_NOISE.value


@dataclass(frozen=True, slots=True)
class _Pair:
    """Another dtype against the current one; ratios are other / current, below 1 is faster."""

    current: TrialEvidence
    other: TrialEvidence
    decode: Ratio
    answers: Ratio | None

    @property
    def deciding(self) -> Ratio:
        """End-to-end latency of the workload where it was measured, else the decode step."""
        return self.answers or self.decode


def check(evidence: StudyEvidence) -> list[Finding]:
    trials = baselines(evidence)
    if not trials or trials[0].role != "current":
        return [_not_applicable("A valid baseline of the current settings")]
    current = trials[0]
    pairs = [pair for other in trials[1:] if (pair := _pair(current, other)) is not None]
    if not pairs:
        return [_not_applicable("A baseline that differs in nothing but its dtype")]
    faster = sorted(
        (pair for pair in pairs if pair.deciding.below(NOISE)), key=lambda p: p.deciding.value
    )
    if not faster:
        return [_passing(current, pairs)]
    findings: list[Finding] = []
    for pair in faster:
        objection = _objection(evidence, pair)
        if objection is None:
            return [*findings, _failing(evidence, pair)]
        findings.append(_objected(pair, objection))
    return findings


def _pair(current: TrialEvidence, other: TrialEvidence) -> _Pair | None:
    differing = set(current.settings.differences(other.settings))
    if differing != {"dtype"} or dtype_of(current) == dtype_of(other):
        return None
    decode = decode_ratio(current, other)
    return _Pair(current, other, decode, answer_ratio(current, other)) if decode else None


def _objection(evidence: StudyEvidence, pair: _Pair) -> str | None:
    """Why the faster dtype is not recommended: quality, memory, or an A/B that said otherwise."""
    rise = perplexity_increase(pair.current, pair.other)
    if rise is not None and rise > MAX_PERPLEXITY_INCREASE.value:
        return f"perplexity rises by {units.percent(rise)}"
    memory = baseline_of(pair.other).peak_memory_bytes.value
    for target in evidence.spec.targets:
        if target.metric == "memory_bytes" and memory is not None and memory > target.limit:
            return (
                f"it takes {units.memory(memory)}, over the target of {units.memory(target.limit)}"
            )
    outcome = verification_of(evidence, pair.other.settings)
    if outcome is not None and outcome.status != "verified":
        return outcome.sentence
    return None


def _failing(evidence: StudyEvidence, pair: _Pair) -> Finding:
    own, new = dtype_of(pair.current), dtype_of(pair.other)
    outcome = verification_of(evidence, pair.other.settings)
    verified = outcome is not None and outcome.status == "verified"
    device = _device_word(evidence)
    if pair.decode.below(0):
        slow = f"{own} decodes {times(1 / pair.decode.value)} slower on this {device}"
    else:
        slow = f"{own} answers {times(1 / pair.deciding.value)} slower on this {device}"
    items = list(_items(pair))
    if outcome is not None:
        items.append(EvidenceItem(text=outcome.sentence, trial_id=outcome.trial.trial_id))
    ratio = pair.deciding
    return Finding(
        rule_id=ID,
        verdict=Verdict.FAIL,
        title=f"Serve in {new}: {slow}",
        summary=f"Same weights, same requests, only the number format differs. "
        f"{_quality_text(pair)} {_memory_text(pair)}".strip(),
        evidence=tuple(items),
        change=Change(text=f"Load the model in {new}.", settings={"dtype": _knob(pair.other)}),
        effect=Effect(
            metric="e2e_s" if pair.answers else "itl_s",
            change_frac=ratio.value - 1,
            low=ratio.low - 1 if ratio.low is not None else None,
            high=ratio.high - 1 if ratio.high is not None else None,
            basis="measured",
            better=True,
            from_trial=pair.current.trial_id,
            to_trial=pair.other.trial_id,
        ),
        confidence="high" if verified else "medium",
        confidence_reason=(
            "verified by an interleaved A/B"
            if verified
            else "measured once in each dtype, one trial after the other"
        ),
        gain=gain(evidence, pair.current, pair.other),
    )


def _objected(pair: _Pair, objection: str) -> Finding:
    new = dtype_of(pair.other)
    return Finding(
        rule_id=ID,
        verdict=Verdict.INFORMATIVE,
        title=f"{new} is {times(1 / pair.deciding.value)} faster, but not recommended: {objection}",
        evidence=_items(pair),
    )


def _passing(current: TrialEvidence, pairs: list[_Pair]) -> Finding:
    own = dtype_of(current)
    others = ", ".join(dtype_of(pair.other) for pair in pairs)
    if all(pair.deciding.above(NOISE) for pair in pairs):
        title = f"{own} is the fastest dtype measured here (against {others})"
    else:
        title = f"{own} and {others} answer equally fast within noise"
    return Finding(
        rule_id=ID,
        verdict=Verdict.PASS,
        title=title,
        evidence=tuple(item for pair in pairs for item in _items(pair)),
    )


def _items(pair: _Pair) -> tuple[EvidenceItem, ...]:
    own, new = dtype_of(pair.current), dtype_of(pair.other)
    rows = (
        ("Decode step", pair.decode, "decode-grid"),
        ("Prefill", prefill_ratio(pair.current, pair.other), "prefill-grid"),
        ("End-to-end latency", pair.answers, "e2e-trials"),
    )
    return tuple(
        EvidenceItem(
            text=f"{name}: {times(1 / ratio.value)} as long in {own} as in {new}"
            f"{interval_text(ratio.inverse.low, ratio.inverse.high)}, n = {ratio.n}",
            value=1 / ratio.value,
            low=ratio.inverse.low,
            high=ratio.inverse.high,
            unit="×",
            n=ratio.n,
            trial_id=pair.other.trial_id,
            chart=chart,
        )
        for name, ratio, chart in rows
        if ratio is not None
    )


def _quality_text(pair: _Pair) -> str:
    rise = perplexity_increase(pair.current, pair.other)
    if rise is None:
        return "Quality was not measured."
    first, second = baseline_of(pair.current).perplexity, baseline_of(pair.other).perplexity
    if first is None or second is None:
        return "Quality was not measured."
    return (
        f"Perplexity {units.number(first.value, 4)} becomes {units.number(second.value, 4)} "
        f"over {second.tokens:,} tokens."
    )


def _memory_text(pair: _Pair) -> str:
    first = baseline_of(pair.current).peak_memory_bytes.value
    second = baseline_of(pair.other).peak_memory_bytes.value
    if first is None or second is None:
        return ""
    return f"Peak memory {units.memory(first)} becomes {units.memory(second)}."


def _knob(trial: TrialEvidence) -> str:
    settings: EngineSettings = trial.settings
    return settings.dtype if settings.dtype != "auto" else dtype_of(trial)


def _device_word(evidence: StudyEvidence) -> str:
    return "GPU" if evidence.device is not None and evidence.device.kind == "gpu" else "CPU"


def _not_applicable(missing: str) -> Finding:
    return Finding(
        rule_id=ID,
        verdict=Verdict.NOT_APPLICABLE,
        title="No second dtype to compare with",
        missing=missing,
    )


RULE = Rule(
    id=ID,
    code="p001",
    group="precision",
    title="The dtype in use is the fastest one measured",
    failing_title="Serve in the faster dtype",
    why="Fewer bits mean fewer bytes to read, but only where the processor computes in that "
    "format. Elsewhere every weight is converted at every step, and the smaller format is the "
    "slower one.",
    how_measured="Baselines that differ in nothing but the dtype, paired by grid cell and compared "
    "on the same workload; quality by perplexity on the same text.",
    threshold=f"Fails when another dtype is more than {NOISE * 100:.0f} % faster end to end, its "
    f"perplexity rises by at most {MAX_PERPLEXITY_INCREASE.value * 100:.0f} % and it keeps the "
    "memory target.",
    source=UNVERIFIED_NOISE.source,
    when_not="When memory is the tight target: a wider format doubles weights and cache. Compare "
    "answers on the task itself before a narrower one.",
    needs=("baselines in two dtypes on the same agent",),
    knobs=("dtype",),
    check=check,
)
