"""The server's context limit is far beyond the longest request, and keeps it from starting."""

from __future__ import annotations

from advisor import units
from advisor.estimates.memory import MemoryPlan
from advisor.evidence import StudyEvidence
from advisor.rules.checks._parallel import split_of
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import (
    current_baseline,
    longest_tokens,
    not_applicable,
    plain,
    predict,
    rounded_context,
)
from advisor.thresholds import CONTEXT_SPARE
from gpuagent.wire.settings import PARALLEL_SERVERS
from gpuagent.wire.trial import ServeResult

ID = "context-beyond-need"


def check(evidence: StudyEvidence) -> list[Finding]:
    found, need = current_baseline(evidence), longest_tokens(evidence.spec.workload)
    limit, whose = _limit(evidence)
    if evidence.spec.engine not in PARALLEL_SERVERS or limit is None:
        missing = "A vLLM or SGLang server, and its limit or a config that states the model's"
        return not_applicable(ID, "The limit of a request's length is not known", missing)
    item = EvidenceItem(
        text=f"{whose} allows {limit:,} tokens, the longest request of the workload has {need:,}",
        value=limit / need,
        unit="×",
        trial_id=found[0].trial_id if found is not None else None,
    )
    if limit <= CONTEXT_SPARE.value * need:
        title = f"The limit of {limit:,} tokens is close to what is asked"
        return plain(ID, Verdict.PASS, title, item)
    title = f"The limit is {units.number(limit / need)} times the longest request"
    if found is not None:
        summary = "The server runs with it. Its cache is paged, so a longer limit holds no memory."
        return plain(ID, Verdict.INFORMATIVE, title, item, summary=summary)
    plan = _memory(evidence)
    if plan is None or plan.max_context >= limit:
        return plain(ID, Verdict.INFORMATIVE, title, item)
    if plan.max_context < need:
        missing = "A workload whose longest request fits: the limit is not what is in the way"
        return not_applicable(ID, "The longest request does not fit either", missing)
    room = EvidenceItem(
        text=f"The cache holds one sequence of {plan.max_context:,} tokens at most (predicted); "
        "an engine does not start with a limit beyond it",
        value=plan.max_context,
        unit="tokens",
    )
    size = rounded_context(min(plan.max_context, limit), need)
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Limit requests to {size:,} tokens: {limit:,} fit nowhere and are not asked",
            evidence=(item, room),
            change=Change(
                text=f"Set the longest request to {size:,} tokens.", settings={"max_context": size}
            ),
            confidence="medium",
            confidence_reason="the lengths are exact, the room is predicted",
        )
    ]


def _limit(evidence: StudyEvidence) -> tuple[int | None, str]:
    """(tokens, whose limit it is): what is set, what the server reported, or the model's own."""
    found, shape = current_baseline(evidence), evidence.shape
    if (own := evidence.spec.current.max_context) is not None:
        return own, "The setting"
    if found is not None and isinstance(found[1], ServeResult):
        told = found[1].served.facts.max_context
        if told is not None:
            return told, "The server"
    return (shape.max_context if shape is not None else None), "The model"


def _memory(evidence: StudyEvidence) -> MemoryPlan | None:
    """Room for one sequence under today's settings on a GPU; None where it is not predicted."""
    device, now = evidence.device, evidence.spec.current
    if device is None or device.kind != "gpu":
        return None
    split = split_of(now)
    found = predict(
        evidence,
        engine=str(evidence.spec.engine),
        context=1,
        tp=split.tp,
        pp=split.pp,
        kv_dtype=now.kv_dtype,
        memory_fraction=now.memory_share_frac,
    )
    return found.memory if found is not None and found.memory.fits else None


RULE = Rule(
    id=ID,
    code="m014",
    group="memory",
    title="The context limit suits the workload",
    failing_title="Limit requests to what is asked",
    why="A model's own limit is often a hundred times what a service asks. Engines refuse to start "
    "where the cache cannot hold one request of that length, though no such request ever comes.",
    how_measured="The limit that is set, reported or the model's, against the longest request of "
    "the workload and the longest sequence that the predicted cache holds.",
    threshold=f"Fails when the limit is more than {CONTEXT_SPARE.value:g} times the longest "
    "request, does not fit, and no trial ran with it; told where it fits or runs.",
    source=f"vLLM issues 2418 and 10517; {CONTEXT_SPARE.source}",
    when_not="Where longer requests than those of the workload are to be answered one day.",
    needs=("a vLLM or SGLang server", "a limit that is set, reported or in the config"),
    knobs=("max_context",),
    check=check,
)
