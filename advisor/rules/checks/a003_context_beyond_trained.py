"""Requests are longer than the positions that the model was trained on."""

from __future__ import annotations

from advisor.evidence import StudyEvidence
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import longest_tokens, not_applicable, plain

ID = "context-beyond-trained"


def check(evidence: StudyEvidence) -> list[Finding]:
    limit = evidence.shape.max_context if evidence.shape is not None else None
    if limit is None:
        missing = "A config that states its longest context"
        return not_applicable(ID, "The model's longest context is not known", missing)
    longest = longest_tokens(evidence.spec.workload)
    item = EvidenceItem(
        text=f"Longest request {longest:,} tokens (prompt and answer), positions of the model "
        f"{limit:,} (config)",
        value=longest,
        unit="tokens",
    )
    if longest <= limit:
        return plain(ID, Verdict.PASS, f"Requests stay within {limit:,} trained positions", item)
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Cut requests to {limit:,} tokens: the model knows no position beyond",
            summary="Engines refuse longer requests, cut them, or answer in nonsense.",
            evidence=(item,),
            change=Change(
                text=f"Limit prompt plus answer to {limit:,} tokens, or use a model (or a rope "
                "scaling that its authors publish) for longer ones."
            ),
            confidence="high",
            confidence_reason="the limit stands in the config",
        )
    ]


RULE = Rule(
    id=ID,
    code="a003",
    group="attention",
    title="Requests stay within the trained context",
    failing_title="Cut requests to the trained context",
    why="Beyond its trained positions a model's attention is undefined: quality falls at once, "
    "whatever the speed.",
    how_measured="Longest prompt plus longest answer of the workload against the config's limit.",
    threshold="Fails when the longest request exceeds the config's max_position_embeddings.",
    source="definition of the config key in transformers",
    when_not="When a rope scaling that the authors tested is configured outside this config.",
    needs=("a config that states its longest context",),
    knobs=(),
    check=check,
)
