"""The power limit slows the GPU: who pays for it, and who does not notice."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import current_baseline, device_spec, hurts, not_applicable, plain

ID = "power-capped"


def check(evidence: StudyEvidence) -> list[Finding]:
    found = current_baseline(evidence)
    trial = found[0] if found is not None else None
    checks = trial.result.validity.checks if trial is not None and trial.result is not None else ()
    line = next((c for c in checks if c.id == "gpu_power_capped"), None)
    if trial is None or trial.result is None or line is None or line.value is None:
        missing = "A valid baseline on a GPU whose telemetry was read"
        return not_applicable(ID, "The power limit was not watched", missing)
    limits = [g.power_limit_w for g in trial.result.environment.gpus if g.power_limit_w is not None]
    spec = device_spec(evidence)
    tdp = spec.tdp_w if spec is not None else None
    set_to = f"; limit {units.number(limits[0])}{units.NBSP}W" if limits else ""
    rated = f", rated {units.number(tdp)}{units.NBSP}W" if tdp is not None and limits else ""
    item = EvidenceItem(
        text=f"{line.message}{set_to}{rated}",
        value=line.value,
        unit="share of samples",
        trial_id=trial.trial_id,
    )
    if line.verdict == "valid":
        return plain(ID, Verdict.PASS, "The power limit does not hold the GPU back", item)
    if tdp is not None and limits and limits[0] >= tdp:
        return plain(
            ID,
            Verdict.INFORMATIVE,
            "The GPU draws all the power that it is rated for",
            item,
            summary="The limit is the rated one, so there is none to raise: fewer or narrower "
            "operations are left.",
        )
    if not hurts(evidence, "ttft_s", "e2e_s", "output_tok_s"):
        return plain(
            ID,
            Verdict.INFORMATIVE,
            "The power limit holds the GPU back, and no target that it slows down is missed",
            item,
            summary="Decode at small batches is bound by memory and hardly notices; keep the "
            "limit, it saves energy.",
        )
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title="Raise the power limit: it holds the GPU back"
            + (" while a target is missed" if evidence.spec.targets else ""),
            summary="Prefill and large batches are bound by arithmetic and slow down with the "
            "clock; decode at small batches is bound by memory and does not.",
            evidence=(item,),
            change=Change(
                text="Raise the limit with nvidia-smi -pl, up to what the GPU is rated for."
            ),
            confidence="medium",
            confidence_reason="that the limit acts is measured; what it costs is not",
        )
    ]


RULE = Rule(
    id=ID,
    code="c003",
    group="cost and energy",
    title="The power limit does not cost a target",
    failing_title="Raise the power limit",
    why="Below its power limit a GPU lowers its clock. Work bound by arithmetic slows down, work "
    "bound by memory does not, so the same limit is a saving for one load and a loss for another.",
    how_measured="Share of busy telemetry samples with the driver's power-cap event, from the "
    "measurement checklist.",
    threshold="Fails when the checklist warns of the cap and a TTFT, end-to-end or throughput "
    "target is not met; told else.",
    source="limits of the measurement checklist; flashinfer pull request 2899",
    when_not="When the limit is the rack's: then move the load instead.",
    needs=("a valid baseline on a GPU",),
    knobs=(),
    check=check,
)
