"""Whether keys and values stored in fewer bits still give the same answers."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.rules.rule import EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import missing_trial, not_applicable, plain
from advisor.rules.support_cache import NarrowCache, narrow_caches
from advisor.thresholds import MAX_PERPLEXITY_INCREASE

ID = "narrow-cache-worse"


def check(evidence: StudyEvidence) -> list[Finding]:
    found = narrow_caches(evidence)
    if found is None:
        missing = missing_trial(evidence, "kv_cache")
        return not_applicable(ID, "Narrower caches are not judged", missing)
    own, narrow = found
    if not narrow:
        title = f"No cache narrower than {own} ran"
        return plain(ID, Verdict.INFORMATIVE, title)
    without = [cache for cache in narrow if cache.increase is None]
    judged = [cache for cache in narrow if cache.increase is not None]
    items = tuple(_item(own, cache) for cache in narrow)
    if not judged:
        return [
            Finding(
                rule_id=ID,
                verdict=Verdict.CANNOT_TELL,
                title="What a narrower cache costs in quality is not known",
                summary=without[0].reason or "",
                evidence=items,
                missing="Real weights, and a text of your own (text_path) for perplexity",
            )
        ]
    limit = MAX_PERPLEXITY_INCREASE.value
    worse = [cache for cache in judged if (cache.increase or 0.0) > limit]
    if not worse:
        return plain(
            ID,
            Verdict.PASS,
            f"A cache in {judged[-1].name} keeps the quality: perplexity rises by "
            f"{units.percent(max(0.0, judged[-1].increase or 0.0))}",
            *items,
        )
    worst = max(worse, key=lambda cache: cache.increase or 0.0)
    return plain(
        ID,
        Verdict.INFORMATIVE,
        f"Keep the cache out of {worst.name}: it raises perplexity by "
        f"{units.percent(worst.increase or 0.0)}",
        *items,
        summary="Nothing is lost today; an engine that is told to store keys and values in it "
        "would answer worse.",
    )


def _item(own: str, cache: NarrowCache) -> EvidenceItem:
    share = f"holds {units.percent(cache.bytes_frac)} of the bytes of {own}"
    if cache.increase is None:
        text = f"A cache in {cache.name} {share}; its quality is not known: {cache.reason}"
        return EvidenceItem(text=text, trial_id=cache.trial.trial_id, chart="kv-forms")
    return EvidenceItem(
        text=f"A cache in {cache.name} {share}, perplexity {units.number(cache.perplexity, 4)} "
        f"against {units.number(cache.reference, 4)} over {cache.tokens:,} tokens",
        value=cache.increase,
        unit="relative increase of perplexity",
        n=cache.tokens,
        trial_id=cache.trial.trial_id,
        chart="kv-forms",
    )


RULE = Rule(
    id=ID,
    code="p008",
    group="precision",
    title="A narrower cache keeps the quality",
    failing_title="Keep the cache in the model's own format",
    why="A cache in eight bits holds twice the tokens, so engines are often told to use one; "
    "whether this model's answers survive it is seldom tried.",
    how_measured="Perplexity of a text that goes through the model in chunks of 64 tokens, so that "
    "each chunk reads all earlier keys and values back from the cache; the same text with the "
    "model's own cache is the reference. A cast without scales, as vLLM's fp8 without a "
    "calibrated checkpoint.",
    threshold=f"Said when a narrower cache is more than {MAX_PERPLEXITY_INCREASE.value:.0%} above "
    "the model's own.",
    source=MAX_PERPLEXITY_INCREASE.source,
    when_not="Checkpoints with scales for keys and values: their range is fitted to the model.",
    needs=("a kv_cache trial",),
    knobs=("kv_dtype",),
    check=check,
)
