"""The host has several GPUs and the model runs on one of them."""

from __future__ import annotations

from advisor.evidence import StudyEvidence
from advisor.rules.rule import Change, Effect, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import (
    current_baseline,
    hurts,
    modelled_gain,
    not_applicable,
    plain,
)

ID = "gpus-idle"


def check(evidence: StudyEvidence) -> list[Finding]:
    found, device = current_baseline(evidence), evidence.device
    if found is None or device is None or device.kind != "gpu" or device.count < 2:
        missing = "A valid baseline on a host with two GPUs or more"
        return not_applicable(ID, "There is no second GPU", missing)
    trial, result = found
    used = result.model.device
    item = EvidenceItem(
        text=f"The model ran on {used}; the host has {device.count} × {device.name}",
        value=device.count,
        trial_id=trial.trial_id,
    )
    if not used.startswith("cuda:") or used == "cuda":
        return plain(ID, Verdict.PASS, f"The model uses {used}", item)
    idle = device.count - 1
    title = f"{idle} of {device.count} GPUs are idle"
    targets = {target.metric for target in evidence.spec.targets}
    rate = evidence.spec.workload.request_rate_per_s
    short = hurts(evidence, "output_tok_s", *(("ttft_s", "e2e_s") if rate else ()))
    if not short or not (rate or not targets or "output_tok_s" in targets):
        return plain(ID, Verdict.INFORMATIVE, title, item)
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Run a replica on every GPU: {title}",
            summary="A model that fits one GPU gains most from copies: they share nothing, so they "
            "wait for nothing.",
            evidence=(item,),
            change=Change(
                text=f"Start {device.count} replicas behind a load balancer (data parallel size "
                f"{device.count})."
            ),
            effect=Effect(
                metric="output_tok_s",
                change_frac=float(idle),
                low=0.0,
                high=float(idle),
                basis="modelled",
                better=True,
            ),
            confidence="medium",
            confidence_reason="copies scale with load; one stream alone gets no faster",
            gain=modelled_gain(evidence, {"output_tok_s": float(idle)}),
        )
    ]


RULE = Rule(
    id=ID,
    code="d003",
    group="parallelism",
    title="Every GPU of the host works",
    failing_title="Run a replica on every GPU",
    why="GPUs that do nothing cost as much as those that work.",
    how_measured="The device that the engine reports against the GPUs of the host.",
    threshold="Fails when a throughput target, or latency at a rate, is not met and GPUs are idle; "
    "told else.",
    source="definition of idle",
    when_not="When other services own the other GPUs.",
    needs=("a valid baseline on a host with two GPUs or more",),
    knobs=(),
    check=check,
)
