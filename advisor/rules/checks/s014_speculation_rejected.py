"""Speculative decoding drafts tokens that the model mostly rejects."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import current_baseline, not_applicable, plain
from advisor.thresholds import SPEC_ACCEPTANCE_GOOD, SPEC_ACCEPTANCE_MIN
from gpuagent.wire.trial import ServeResult

ID = "speculation-rejected"


def check(evidence: StudyEvidence) -> list[Finding]:
    found = current_baseline(evidence)
    result = found[1] if found is not None else None
    accepted = result.served.spec_accepted_frac.value if isinstance(result, ServeResult) else None
    if found is None or accepted is None:
        missing = "A valid trial on a server that speculates and counts what is accepted"
        return not_applicable(ID, "No speculation was seen", missing)
    share = units.percent(accepted)
    item = EvidenceItem(
        text=f"The model accepted {share} of the drafted tokens",
        value=accepted,
        unit="share of drafted tokens",
        n=len(result.requests) if result is not None else None,
        trial_id=found[0].trial_id,
    )
    if accepted >= SPEC_ACCEPTANCE_GOOD.value:
        return plain(ID, Verdict.PASS, f"{share} of the drafted tokens are accepted", item)
    if accepted >= SPEC_ACCEPTANCE_MIN.value:
        return plain(
            ID,
            Verdict.CANNOT_TELL,
            f"{share} of the drafted tokens are accepted: it may pay or not",
            item,
            summary="What drafts and their check cost depends on draft model and load. The same "
            "workload without speculation tells.",
        )
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Draft less or not at all: the model rejects {units.percent(1 - accepted)} of "
            "the drafted tokens",
            summary="Each rejected token was drafted and checked for nothing. At a low load that "
            "costs little; once requests share steps it takes the place of their tokens.",
            evidence=(item,),
            change=Change(
                text="Draft fewer tokens a step (--spec-tokens in vLLM, "
                "--speculative-num-draft-tokens in SGLang), take a draft model of the same family, "
                "or switch speculation off and measure again."
            ),
            confidence="medium",
            confidence_reason="counted by the server; what it costs is for a trial to show",
        )
    ]


RULE = Rule(
    id=ID,
    code="s014",
    group="scheduling",
    title="Speculation is accepted",
    failing_title="Draft less or not at all",
    why="Speculation buys several tokens a step with work that is thrown away where the model "
    "would have written something else.",
    how_measured="Accepted over drafted tokens in the server's own counters.",
    threshold=f"Fails below {SPEC_ACCEPTANCE_MIN.value:g}, passes from "
    f"{SPEC_ACCEPTANCE_GOOD.value:g} on; between them only a trial without speculation can tell. "
    "Both figures are our own choice.",
    source=SPEC_ACCEPTANCE_MIN.source,
    when_not="One stream on an idle device, where even a few accepted tokens are won.",
    needs=("a valid trial on a server that speculates and counts what is accepted",),
    knobs=(),
    check=check,
)
