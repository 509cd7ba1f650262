"""A whole prefill keeps running answers waiting longer than the gap between tokens may be."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.measures import median_s
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import latest, missing_trial, not_applicable, plain
from advisor.targets import target_label
from gpuagent.wire.inside import BatchingResult, ChunkPoint

ID = "prefill-stalls-decode"


def check(evidence: StudyEvidence) -> list[Finding]:
    target = next((t for t in evidence.spec.targets if t.metric == "itl_s"), None)
    found = latest(evidence, BatchingResult)
    ran = [p for p in found[1].chunks if p.longest_chunk_s.value is not None] if found else []
    if target is None or found is None or len(ran) < 2:
        missing = missing_trial(evidence, "batching")
        if target is None:
            missing = f"An ITL target. {missing}" if found is None else "An ITL target"
        return not_applicable(ID, "Prefill in chunks is not measured", missing)
    trial, result = found
    ran.sort(key=lambda point: point.chunk_tokens)
    whole = ran[-1]
    items = tuple(_item(point, result.chunked_input_tokens, trial.trial_id) for point in ran)
    if whole.chunk_tokens < result.chunked_input_tokens:
        title = "Prefill in one piece was not timed, so what chunks save is open"
        return plain(ID, Verdict.CANNOT_TELL, title, *items)
    stall_s = whole.longest_chunk_s.value or 0.0
    label = target_label(target)
    if stall_s <= target.limit:
        title = f"Even a whole prefill of {result.chunked_input_tokens:,} tokens keeps {label}"
        return plain(ID, Verdict.PASS, title, *items)
    if evidence.spec.workload.request_rate_per_s is None:
        title = (
            f"A prefill of {result.chunked_input_tokens:,} tokens takes {units.seconds(stall_s)}, "
            "and with one request at a time it holds nobody up"
        )
        return plain(ID, Verdict.INFORMATIVE, title, *items)
    within = [p for p in ran if (p.longest_chunk_s.value or 0.0) <= target.limit]
    chosen = within[-1] if within else ran[0]
    cost = _cost(chosen, whole)
    text = f"Prefill in chunks of {chosen.chunk_tokens:,} tokens"
    text += f": TTFT of a long prompt changes by {units.percent(cost)}." if cost else "."
    if not within:
        text += " They are still too long: prefill on a device of its own, or relax the limit."
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Cut prefill into chunks: one of {result.chunked_input_tokens:,} tokens stops "
            f"other answers for {units.seconds(stall_s)}",
            summary=f"While one request computes its prompt, the others get no token; {label}.",
            evidence=items,
            change=Change(text=text),
            confidence="medium",
            confidence_reason="chunks are timed; running answers were not part of the trial",
        )
    ]


def _item(point: ChunkPoint, tokens: int, trial_id: str) -> EvidenceItem:
    longest = units.seconds(point.longest_chunk_s.value)
    return EvidenceItem(
        text=f"Chunks of {point.chunk_tokens:,}: longest {longest}, prefill of {tokens:,} tokens "
        f"in {units.seconds(median_s(point.seconds))} (median, n = {point.seconds.n})",
        value=point.longest_chunk_s.value,
        unit="s",
        n=point.seconds.n,
        trial_id=trial_id,
        chart="batch-scaling",
    )


def _cost(chosen: ChunkPoint, whole: ChunkPoint) -> float | None:
    """Relative change of the whole prefill."""
    one, all_ = median_s(chosen.seconds), median_s(whole.seconds)
    return one / all_ - 1 if one and all_ else None


RULE = Rule(
    id=ID,
    code="s007",
    group="scheduling",
    title="Prefill does not stall running answers",
    failing_title="Cut prefill into chunks",
    why="Engines interleave new prompts with running answers. A prompt in one piece holds all of "
    "them up for its whole length; in pieces they get a token in between.",
    how_measured="Prefill of one long prompt in chunks of several sizes, the longest chunk and the "
    "total time of each.",
    threshold="Fails when requests arrive at a rate and the whole prefill is longer than the ITL "
    "target's limit; the largest chunk within it is advised.",
    source="the study's own ITL target; chunked prefill of vLLM and SGLang",
    when_not="One request at a time: there is nobody to hold up.",
    needs=("an ITL target", "a batching trial"),
    knobs=(),
    check=check,
)
