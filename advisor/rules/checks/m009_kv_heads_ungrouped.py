"""Every query head has its own keys and values, so the cache is several times its peers'."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.rules.rule import EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import mean_tokens, not_applicable, plain
from advisor.thresholds import KV_HEADS_MANY

ID = "kv-heads-ungrouped"


def check(evidence: StudyEvidence) -> list[Finding]:
    shape = evidence.shape
    if shape is None or not shape.attention_layers:
        missing = "A readable config of a model with a KV cache"
        return not_applicable(ID, "The heads of the cache are not known", missing)
    per_token = shape.kv_bytes_per_token(2)
    tokens = mean_tokens(evidence.spec.workload)
    item = EvidenceItem(
        text=f"{shape.heads} query and {shape.kv_heads} K/V heads: {units.memory(per_token)} per "
        f"token in 16 bit, {units.memory(shape.kv_bytes_for(tokens, 2))} for the mean request of "
        f"{tokens:,} tokens (exact)",
        value=per_token,
        unit="B/token",
    )
    many = int(KV_HEADS_MANY.value)
    if shape.is_mla or shape.kv_heads <= many or shape.kv_heads < shape.heads:
        return plain(ID, Verdict.PASS, f"The cache is shared by heads ({shape.attention})", item)
    factor = shape.kv_heads / many
    return plain(
        ID,
        Verdict.INFORMATIVE,
        f"No grouped attention: the cache is {units.number(factor, 2)} times that of "
        f"a peer with {many} K/V heads",
        item,
        summary="It is right as it is, and no setting changes it. For long contexts or many "
        "sequences choose a model with grouped attention, or store the cache in 8 bits.",
    )


RULE = Rule(
    id=ID,
    code="m009",
    group="memory",
    title="Heads share their cache",
    failing_title="Expect a large cache",
    why="Grouped attention stores one pair of keys and values for several query heads. Models "
    "without it need several times the cache, which looks like a fault and is none.",
    how_measured="Heads and K/V heads of the config; bytes by the exact formula.",
    threshold=f"Told above {KV_HEADS_MANY.value:.0f} K/V heads when every query head has its own.",
    source=KV_HEADS_MANY.source,
    when_not="Short contexts: the weights outweigh the cache.",
    needs=("a readable config",),
    knobs=(),
    check=check,
)
