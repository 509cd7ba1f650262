"""The requests share a beginning, and the server computes it again for most of them."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import current_baseline, hurts, not_applicable, plain
from advisor.thresholds import PREFIX_HIT_MIN
from gpuagent.wire.trial import ServeResult

ID = "prefix-unused"


def check(evidence: StudyEvidence) -> list[Finding]:
    found = current_baseline(evidence)
    result = found[1] if found is not None else None
    if found is None or not isinstance(result, ServeResult):
        return not_applicable(ID, "No prefix cache was watched", "A valid trial on a server")
    trial = found[0]
    shared = _shared_frac(trial, result)
    if not shared:
        missing = "A workload whose requests share a beginning: give its share of the prompt"
        return not_applicable(ID, "The requests share no beginning", missing)
    off = trial.settings.prefix_cache is False
    hit = 0.0 if off else result.served.prefix_hit_frac.value
    if hit is None:
        reason = result.served.prefix_hit_frac.reason or ""
        title = "Whether the shared beginning is reused is not known"
        return plain(ID, Verdict.CANNOT_TELL, title, summary=f"{reason}.".capitalize())
    used = hit / shared
    item = EvidenceItem(
        text=f"{units.percent(shared)} of a prompt is shared in whole cache blocks; "
        + (
            "the prefix cache is off"
            if off
            else f"the cache answered for {units.percent(hit)} of the prompt tokens"
        ),
        value=hit,
        unit="share of prompt tokens",
        n=len(result.requests),
        trial_id=trial.trial_id,
    )
    if used >= PREFIX_HIT_MIN.value:
        return plain(ID, Verdict.PASS, "The shared beginning of the prompts is reused", item)
    if result.served.engine == "sglang" and not off:
        title = "The last batch reused little of the shared beginning"
        summary = "SGLang shows the share of its last batch, not of the whole window."
        return plain(ID, Verdict.CANNOT_TELL, title, item, summary=summary)
    if not hurts(evidence, "ttft_s", "e2e_s", "output_tok_s"):
        title = "The shared beginning is computed again, within the targets"
        return plain(ID, Verdict.INFORMATIVE, title, item)
    turn_on = off or (trial.settings.prefix_cache is None and hit == 0)
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title="Switch the prefix cache on: requests share a beginning"
            if turn_on
            else "Let requests find the beginning that they share in the cache",
            summary="Prefill of the shared part is repeated for each request; reused, it takes "
            "next to no time.",
            evidence=(item,),
            change=Change(
                text="Keep the cache of prompt beginnings."
                if turn_on
                else "Give the cache more room, send requests of one beginning to one replica, and "
                "keep what changes (times, names) behind what is shared.",
                settings={"prefix_cache": True} if turn_on else {},
            ),
            confidence="high" if turn_on else "medium",
            confidence_reason="counted by the server; what it saves is for a trial to show",
        )
    ]


def _shared_frac(trial: TrialEvidence, result: ServeResult) -> float:
    """Share of a mean prompt in whole blocks that are the same for all; 0 where there is none."""
    workload = trial.spec.workload
    prompt = workload.input_tokens.mean
    block = result.served.facts.kv_block_tokens or 1
    whole = int(workload.shared_prefix_frac * prompt) // block * block
    return whole / prompt


RULE = Rule(
    id=ID,
    code="m013",
    group="memory",
    title="A shared beginning is computed once",
    failing_title="Reuse the beginning that prompts share",
    why="System prompts, few-shot examples and documents open many prompts alike. Computing them "
    "once saves prefill, and with it the time to the first token.",
    how_measured="Prompt tokens that the server's prefix cache answered for, against the share of "
    "a mean prompt that the workload's requests have in common, in whole cache blocks.",
    threshold=f"Fails below {PREFIX_HIT_MIN.value:.0%} of what is shared, when a target on the "
    "first token, the whole answer or throughput is not met.",
    source=PREFIX_HIT_MIN.source,
    when_not="Where prompts of several users must not share memory, or share too little to fill "
    "a block.",
    needs=("a valid trial on a server", "a workload whose requests share a beginning"),
    knobs=("prefix_cache",),
    check=check,
)
