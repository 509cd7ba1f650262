"""The host has several GPUs and the model runs on one of them."""

from __future__ import annotations

from advisor.evidence import StudyEvidence
from advisor.rules.checks import d006_split_beyond_need
from advisor.rules.checks._parallel import copies_change, use_of
from advisor.rules.rule import Effect, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import (
    modelled_gain,
    not_applicable,
    plain,
)

ID = "gpus-idle"


def check(evidence: StudyEvidence) -> list[Finding]:
    use, device = use_of(evidence), evidence.device
    if use is None or device is None:
        missing = "A valid baseline on a host with two GPUs or more"
        return not_applicable(ID, "There is no second GPU", missing)
    item = EvidenceItem(
        text=f"The model ran on {use.where}; the host has {device.count} × {device.name}",
        value=device.count,
        trial_id=use.trial.trial_id,
    )
    if use.idle <= 0:
        return plain(ID, Verdict.PASS, f"The model uses {use.where}", item)
    title = f"{use.idle} of {device.count} GPUs are idle"
    if not use.copies_help:
        return plain(ID, Verdict.INFORMATIVE, title, item)
    if any(f.verdict is Verdict.FAIL for f in d006_split_beyond_need.check(evidence)):
        summary = "Copies on fewer GPUs each are advised, as many as all GPUs of the host hold."
        return plain(ID, Verdict.INFORMATIVE, title, item, summary=summary)
    more, copies = use.more_frac, use.copies
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Run a replica on every GPU: {title}"
            if use.each == 1
            else f"Run more replicas: {title}",
            summary="Copies on GPUs that do nothing share nothing with the first, so they wait for "
            "nothing.",
            evidence=(item,),
            change=copies_change(
                evidence,
                f"Start {copies} replicas behind a load balancer (data parallel size {copies}).",
                copies,
            ),
            effect=Effect(
                metric="output_tok_s",
                change_frac=more,
                low=0.0,
                high=more,
                basis="modelled",
                better=True,
            ),
            confidence="medium",
            confidence_reason="copies scale with load; one stream alone gets no faster",
            gain=modelled_gain(evidence, {"output_tok_s": more}),
        )
    ]


RULE = Rule(
    id=ID,
    code="d003",
    group="parallelism",
    title="Every GPU of the host works",
    failing_title="Run a replica on every GPU",
    why="GPUs that do nothing cost as much as those that work.",
    how_measured="The device that the engine reports, of a server the degrees that it was started "
    "with, against the GPUs of the host.",
    threshold="Fails when a throughput target, or latency at a rate, is not met and GPUs are idle; "
    "told else, and where copies on fewer GPUs each are advised.",
    source="definition of idle",
    when_not="When other services own the other GPUs.",
    needs=("a valid baseline on a host with two GPUs or more",),
    knobs=("data_parallel",),
    check=check,
)
