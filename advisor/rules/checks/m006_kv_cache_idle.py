"""The device holds many times the cache that the load uses."""

from __future__ import annotations

from advisor.evidence import StudyEvidence
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import (
    mean_tokens,
    needed_concurrency,
    not_applicable,
    plain,
    predict,
)
from advisor.thresholds import KV_IDLE

ID = "kv-cache-idle"


def check(evidence: StudyEvidence) -> list[Finding]:
    needed = needed_concurrency(evidence)
    device = evidence.device
    tokens = mean_tokens(evidence.spec.workload)
    found = predict(evidence, context=tokens)
    if device is None or device.kind != "gpu" or needed is None or found is None:
        return not_applicable(
            ID,
            "The use of the cache is not known",
            "A request rate, a valid baseline, and a GPU of the catalogue",
        )
    if not found.memory.fits or found.memory.kv_capacity_tokens == 0:
        return not_applicable(ID, "There is no room for a cache", "A model that fits")
    sequences, how = needed
    asked = sequences * tokens
    times = found.memory.kv_capacity_tokens / asked
    items = (
        EvidenceItem(
            text=f"{sequences:,} sequences of {tokens:,} tokens are in flight: {how}",
            value=asked,
            unit="tokens",
        ),
        EvidenceItem(
            text=f"{device.name} holds {found.memory.kv_capacity_tokens:,} tokens of this model "
            "(predicted)",
            value=found.memory.kv_capacity_tokens,
            unit="tokens",
        ),
    )
    if times <= KV_IDLE.value:
        title = f"The cache holds {times:,.1f} times the tokens in flight"
        return plain(ID, Verdict.PASS, title, *items)
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.INFORMATIVE,
            title=f"The cache is idle: it holds {times:,.0f} times the tokens in flight",
            evidence=items,
            change=Change(
                text="A smaller GPU, a larger model or more traffic per replica would use it."
            ),
            confidence="medium",
            confidence_reason="the load is measured, the room predicted from the config",
        )
    ]


RULE = Rule(
    id=ID,
    code="m006",
    group="memory",
    title="The load uses the memory that is paid for",
    failing_title="Use the memory that lies idle",
    why="Memory that no sequence will ever fill is paid for by the hour.",
    how_measured="Tokens in flight by Little's law against the tokens that fit beside the weights.",
    threshold=f"Told above {KV_IDLE.value:.0f} times the tokens in flight; never a failure.",
    source=KV_IDLE.source,
    when_not="Peaks of traffic and prefix caches fill what the mean load leaves.",
    needs=("a request rate", "a valid baseline", "a GPU of the catalogue"),
    knobs=(),
    check=check,
)
