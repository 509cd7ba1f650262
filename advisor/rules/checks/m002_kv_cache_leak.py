"""Memory that released caches do not give back; and what other forms of the cache would bring."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.measures import interval_text, sample_ratio, times
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import ratio_item
from advisor.thresholds import KV_LEAK_MAX_SHARE
from gpuagent.wire.inside import CacheDetails
from gpuagent.wire.trial import KvCacheResult

ID = "kv-cache-leak"


def check(evidence: StudyEvidence) -> list[Finding]:
    for trial in reversed(evidence.succeeded(KvCacheResult)):
        result = trial.measured(KvCacheResult)
        if result is not None and trial.usable and result.details is not None:
            return [_leak(trial, result, result.details), *_forms(trial, result.details)]
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.NOT_APPLICABLE,
            title="Release of the cache is not measured",
            missing="A kv_cache trial with an engine that runs in the agent's process",
        )
    ]


def _leak(trial: TrialEvidence, result: KvCacheResult, details: CacheDetails) -> Finding:
    held = details.held_bytes.values
    cache = max(point.cache_bytes for point in result.points)
    if len(held) < 4 or cache <= 0:
        return Finding(
            rule_id=ID,
            verdict=Verdict.CANNOT_TELL,
            title="Whether released caches come back is not known",
            summary=details.held_reason or "fewer than four rounds were read",
        )
    # Halves, so that one block which the allocator keeps is no growth.
    middle = len(held) // 2
    early, late = sum(held[:middle]) / middle, sum(held[middle:]) / (len(held) - middle)
    per_round = (late - early) / (len(held) / 2)
    share = per_round / cache
    item = EvidenceItem(
        text=f"After each of {len(held)} generations of {details.context_tokens:,} tokens memory "
        f"rises by {units.memory(max(0.0, per_round))}; one cache is {units.memory(cache)}",
        value=share,
        unit="share of a cache",
        n=len(held),
        trial_id=trial.trial_id,
        chart="kv-memory",
    )
    if share <= KV_LEAK_MAX_SHARE.value:
        return Finding(
            rule_id=ID,
            verdict=Verdict.PASS,
            title="Released caches give their memory back",
            evidence=(item,),
        )
    return Finding(
        rule_id=ID,
        verdict=Verdict.FAIL,
        title=f"Find what holds on to released caches: {units.memory(per_round)} a generation",
        summary="A server that keeps a part of every cache runs out of memory after some hours.",
        evidence=(item,),
        change=Change(
            text="Look for references to past key values in hooks, logs and exception traces; "
            "compare with another version of the engine."
        ),
        confidence="medium",
        confidence_reason="resident memory also holds what the allocator keeps for reuse",
    )


def _forms(trial: TrialEvidence, details: CacheDetails) -> list[Finding]:
    """Static and quantised caches and prefix reuse against what is used today."""
    items = []
    by_form = {f.form: f for f in details.forms}
    base = by_form.get("dynamic")
    for form in details.forms:
        ratio = sample_ratio(base.seconds, form.seconds) if base is not None else None
        if form is base:
            continue
        if ratio is None:
            text = f"A {form.form} cache did not run: {form.reason}"
            items.append(EvidenceItem(text=text, trial_id=trial.trial_id))
            continue
        items.append(
            ratio_item(
                f"A step with a {form.form} cache takes {times(ratio.value)} that of a "
                f"growing one{interval_text(ratio.low, ratio.high)}, n = {ratio.n}, and holds "
                f"{units.memory(form.cache_bytes.value)}",
                ratio,
                trial,
            )
        )
    title = "Other forms of the cache"
    reuse = details.prefix
    saved = sample_ratio(reuse.full_s, reuse.reused_s) if reuse is not None else None
    if reuse is not None and saved is not None:
        title = (
            f"Reusing {reuse.shared_tokens:,} of {reuse.context_tokens:,} prompt tokens makes "
            f"prefill {times(1 / saved.value)} as fast"
        )
        items.append(
            ratio_item(
                f"Prefill with a shared prefix takes {times(saved.value)} the time"
                f"{interval_text(saved.low, saved.high)}, n = {saved.n}",
                saved,
                trial,
            )
        )
    if not items:
        return []
    return [Finding(rule_id=ID, verdict=Verdict.INFORMATIVE, title=title, evidence=tuple(items))]


RULE = Rule(
    id=ID,
    code="m002",
    group="memory",
    title="Released caches give their memory back",
    failing_title="Find what holds on to released caches",
    why="Each answer needs a cache and drops it at its end. What is not given back adds up until "
    "the process dies.",
    how_measured="Memory after each of eight generations; decode steps with a growing, a static "
    "and a quantised cache; prefill with and without a cached prefix.",
    threshold=f"Fails when memory rises by more than {KV_LEAK_MAX_SHARE.value:.0%} of one cache "
    "per generation.",
    source=KV_LEAK_MAX_SHARE.source,
    when_not="Engines that preallocate their blocks: their memory is constant by design.",
    needs=("a kv_cache trial",),
    knobs=(),
    check=check,
)
