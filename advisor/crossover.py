"""From which context on one variant of attention is faster than another. Pure."""

from __future__ import annotations

from advisor.measures import sample_ratio
from gpuagent.wire.inside import AttentionPoint, AttentionVariant


def common_points(
    a: AttentionVariant, b: AttentionVariant
) -> list[tuple[AttentionPoint, AttentionPoint]]:
    """Points of both at the contexts that both ran, shortest first."""
    ran = {p.context_tokens: p for p in a.points if p.seconds.n}
    pairs = [
        (ran[p.context_tokens], p) for p in b.points if p.seconds.n and p.context_tokens in ran
    ]
    return sorted(pairs, key=lambda pair: pair[0].context_tokens)


def faster_from(a: AttentionVariant, b: AttentionVariant) -> int | None:
    """The shortest measured context from which on b is faster than a at every longer one, too.

    Faster: the interval of the ratio lies below 1. None where it is not at the longest.
    """
    found: int | None = None
    for mine, other in reversed(common_points(a, b)):
        ratio = sample_ratio(mine.seconds, other.seconds)
        upper = None if ratio is None else ratio.high if ratio.high is not None else ratio.value
        if upper is None or upper >= 1:
            break
        found = mine.context_tokens
    return found


def crossover_text(a: AttentionVariant, b: AttentionVariant) -> str:
    """Where b overtakes a among the measured contexts, or that it does nowhere."""
    pairs = common_points(a, b)
    at = faster_from(a, b)
    if at is None:
        longest = f" up to {pairs[-1][0].context_tokens:,} tokens" if pairs else ""
        return f"not proven faster{longest}"
    first = pairs[0][0].context_tokens
    return (
        f"faster at all lengths from {first:,} tokens"
        if at == first
        else (f"faster from {at:,} tokens on")
    )
