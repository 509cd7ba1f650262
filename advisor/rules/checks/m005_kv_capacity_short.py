"""The cache holds fewer sequences than the request rate keeps in flight."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import (
    mean_tokens,
    needed_concurrency,
    not_applicable,
    plain,
    predict,
)
from advisor.rules.support_cache import fp8_cache_quality

ID = "kv-capacity-short"


def check(evidence: StudyEvidence) -> list[Finding]:
    needed = needed_concurrency(evidence)
    tokens = mean_tokens(evidence.spec.workload)
    found = predict(evidence, context=tokens)
    if needed is None or found is None or not found.memory.fits:
        return not_applicable(
            ID,
            "Cache and load are not compared",
            "A request rate, a valid baseline, and a model that fits a known device",
        )
    sequences, how = needed
    room = found.memory.max_concurrency
    per_token = found.memory.kv_reserved_per_token
    items = (
        EvidenceItem(text=f"At least {sequences:,} sequences in flight: {how}", value=sequences),
        EvidenceItem(
            text=f"Room for {room:,} sequences of {tokens:,} tokens at {units.memory(per_token)} "
            f"a token in {units.memory(found.memory.kv_available)} (predicted)",
            value=room,
        ),
    )
    if room >= sequences:
        title = f"The cache holds {room:,} sequences where the load needs {sequences:,}"
        return plain(ID, Verdict.PASS, title, *items)
    smaller = predict(evidence, context=tokens, kv_dtype="fp8")
    text = "Use a device with more memory, or spread the load over more replicas."
    quality = fp8_cache_quality(evidence)
    if quality and smaller is not None and smaller.memory.max_concurrency > room:
        text = (
            f"An fp8 cache holds {smaller.memory.max_concurrency:,} sequences ({quality}); "
            f"else {text[:1].lower()}{text[1:]}"
        )
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Make room in the cache: it holds {room:,} sequences of {sequences:,}",
            summary="What does not fit waits, or is thrown out and computed again.",
            evidence=items,
            change=Change(text=text),
            confidence="medium",
            confidence_reason="the load is measured, the room predicted from the config",
        )
    ]


RULE = Rule(
    id=ID,
    code="m005",
    group="memory",
    title="The cache holds what the load keeps in flight",
    failing_title="Make room in the cache",
    why="A sequence that finds no room waits in the queue or loses its cache to another one. Both "
    "show as latency far above the model's own.",
    how_measured="Sequences in flight by Little's law from the rate and the measured time of one "
    "request; room from the memory budget at the mean length.",
    threshold="Fails when the load keeps more sequences in flight than the cache holds.",
    source="Little's law; memory budget (docs/prediction.md)",
    when_not="Bursts need more than the mean: this is a lower bound.",
    needs=("a request rate", "a valid baseline", "a known device"),
    knobs=(),
    check=check,
)
