"""Decode steps launch their kernels one by one although the engine could replay them."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import NO_COUNTERS, hurts, not_applicable, plain, server_counters
from advisor.thresholds import STEPS_EAGER_MAX

ID = "steps-without-graph"


def check(evidence: StudyEvidence) -> list[Finding]:
    found = server_counters(evidence)
    if found is None:
        return not_applicable(ID, "Captured steps were not counted", NO_COUNTERS)
    trial, server = found
    if server.eager_frac is None or server.steps is None:
        return not_applicable(ID, "Captured steps were not counted", "An engine that counts them")
    share = units.percent(server.eager_frac)
    item = EvidenceItem(
        text=f"{share} of {server.steps:,} steps decoded without a captured graph",
        value=server.eager_frac,
        unit="share of steps",
        n=server.steps,
        trial_id=trial.trial_id,
    )
    if server.eager_frac <= STEPS_EAGER_MAX.value:
        return plain(ID, Verdict.PASS, f"Only {share} of the steps ran without a graph", item)
    if not hurts(evidence, "ttft_s", "itl_s", "e2e_s", "output_tok_s"):
        title = f"{share} of the steps ran without a graph, within the targets"
        return plain(ID, Verdict.INFORMATIVE, title, item)
    off = trial.settings.cuda_graphs is False
    change = (
        Change(text="Switch CUDA graphs on.", settings={"cuda_graphs": True})
        if off
        else Change(
            text="Capture graphs up to the batch that runs "
            f"({server.running_peak:,} requests at the peak)."
        )
    )
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Replay decode steps: {share} of them launch every kernel anew",
            summary="The host's launches take a fixed time in each step, whatever the batch."
            if off
            else "The batch was larger than the largest captured one.",
            evidence=(item,),
            change=change,
            confidence="medium",
            confidence_reason="the engine counted the steps; what a launch costs here was not "
            "measured",
        )
    ]


RULE = Rule(
    id=ID,
    code="k020",
    group="kernels",
    title="Decode steps are replayed from graphs",
    failing_title="Replay decode steps",
    why="A decode step is hundreds of short kernels. Launched one by one the host is the limit on "
    "a fast device; a captured graph starts them all at once.",
    how_measured="Steps that decode without a captured graph, by the engine's counters.",
    threshold=f"Fails above {STEPS_EAGER_MAX.value:.0%} of the steps when a latency or throughput "
    "target is not met.",
    source=STEPS_EAGER_MAX.source,
    when_not="Where the cache needs the memory of the capture, or an adapter cannot be captured.",
    needs=("the engine's counters at a request rate",),
    knobs=("cuda_graphs",),
    check=check,
)
