"""The host has several GPUs and the model runs on one of them."""

from __future__ import annotations

from advisor.evidence import StudyEvidence
from advisor.rules.checks._parallel import copies_change, split_of
from advisor.rules.rule import Effect, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import (
    current_baseline,
    hurts,
    modelled_gain,
    not_applicable,
    plain,
)
from gpuagent.wire.settings import MANAGED_SERVERS

ID = "gpus-idle"


def check(evidence: StudyEvidence) -> list[Finding]:
    found, device = current_baseline(evidence), evidence.device
    if found is None or device is None or device.kind != "gpu" or device.count < 2:
        missing = "A valid baseline on a host with two GPUs or more"
        return not_applicable(ID, "There is no second GPU", missing)
    trial, result = found
    where = result.model.device
    if evidence.spec.engine in MANAGED_SERVERS:
        # A server tells no devices: it takes as many as its degrees say.
        used, each = trial.settings.gpus, split_of(trial.settings).gpus
        where = "one GPU" if used == 1 else f"{used} GPUs"
    elif where.startswith("cuda:"):
        used = each = 1
    else:
        used = each = device.count
    item = EvidenceItem(
        text=f"The model ran on {where}; the host has {device.count} × {device.name}",
        value=device.count,
        trial_id=trial.trial_id,
    )
    idle, copies = device.count - used, device.count // each
    if idle <= 0:
        return plain(ID, Verdict.PASS, f"The model uses {where}", item)
    title = f"{idle} of {device.count} GPUs are idle"
    targets = {target.metric for target in evidence.spec.targets}
    rate = evidence.spec.workload.request_rate_per_s
    short = hurts(evidence, "output_tok_s", *(("ttft_s", "e2e_s") if rate else ()))
    more = copies * each / used - 1
    if more <= 0 or not short or not (rate or not targets or "output_tok_s" in targets):
        return plain(ID, Verdict.INFORMATIVE, title, item)
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Run a replica on every GPU: {title}"
            if each == 1
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
    "told else.",
    source="definition of idle",
    when_not="When other services own the other GPUs.",
    needs=("a valid baseline on a host with two GPUs or more",),
    knobs=("data_parallel",),
    check=check,
)
