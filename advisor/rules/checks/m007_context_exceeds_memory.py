"""The context that the model allows, or the workload asks, is longer than the memory holds."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import (
    longest_tokens,
    not_applicable,
    plain,
    predict,
    rounded_context,
)

ID = "context-exceeds-memory"


def check(evidence: StudyEvidence) -> list[Finding]:
    shape = evidence.shape
    limit = shape.max_context if shape is not None else None
    found = predict(evidence, context=1)
    if limit is None or found is None or not found.memory.fits:
        return not_applicable(
            ID,
            "The longest context is not known",
            "A config that states its limit, and a known device that holds the weights",
        )
    longest, fits = longest_tokens(evidence.spec.workload), found.memory.max_context
    item = EvidenceItem(
        text=f"{units.memory(found.memory.kv_available)} left for the cache hold one sequence of "
        f"{fits:,} tokens; the model allows {limit:,}, the workload asks {longest:,} (predicted)",
        value=fits,
        unit="tokens",
    )
    if longest <= fits and limit <= fits:
        return plain(ID, Verdict.PASS, f"Even the model's limit of {limit:,} tokens fits", item)
    text = f"Set the longest context to {rounded_context(min(fits, limit), longest):,} tokens."
    if longest <= fits:
        return [
            Finding(
                rule_id=ID,
                verdict=Verdict.INFORMATIVE,
                title=f"The model's limit of {limit:,} tokens does not fit; the workload's "
                f"{longest:,} do",
                summary="Engines that reserve for the model's limit refuse to start.",
                evidence=(item,),
                change=Change(text=text),
            )
        ]
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Shorten requests to {fits:,} tokens: {longest:,} do not fit in memory",
            evidence=(item,),
            change=Change(
                text=f"{text} For longer ones store the cache in fewer bits or split the model "
                "over more GPUs."
            ),
            confidence="medium",
            confidence_reason="predicted from the config",
        )
    ]


RULE = Rule(
    id=ID,
    code="m007",
    group="memory",
    title="The longest context fits in memory",
    failing_title="Limit the context to what fits",
    why="Engines size their cache by the longest context. A limit of 128K that nobody uses costs "
    "the start, or sequences that could have run.",
    how_measured="The longest single sequence that the memory budget holds, against the config's "
    "limit and the workload's longest request.",
    threshold="Fails when the workload's longest request does not fit; told when only the model's "
    "limit does not.",
    source="vLLM issues 2418 and 10517; memory budget (docs/prediction.md)",
    when_not="Where a prefix cache is to hold documents longer than a request.",
    needs=("a config that states its limit", "a known device"),
    knobs=(),
    check=check,
)
