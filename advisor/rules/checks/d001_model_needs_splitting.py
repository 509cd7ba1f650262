"""The model does not fit on one GPU of the host, but on several."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.rules.checks._parallel import hosts_split, smallest_split, split_change, within_layers
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import (
    current_baseline,
    device_spec,
    longest_tokens,
    not_applicable,
    plain,
    predict,
)

ID = "model-needs-splitting"


def check(evidence: StudyEvidence) -> list[Finding]:
    device, spec, shape = evidence.device, device_spec(evidence), evidence.shape
    longest = longest_tokens(evidence.spec.workload)
    alone = predict(evidence, context=longest)
    if device is None or device.kind != "gpu" or spec is None or shape is None or alone is None:
        missing = "A GPU of the catalogue and a readable config"
        return not_applicable(ID, "No GPU to split the model over", missing)
    if alone.memory.fits:
        item = EvidenceItem(
            text=f"One {device.name} needs {units.memory(alone.memory.total)} of "
            f"{units.memory(alone.memory.usable)} (predicted)",
            value=float(alone.memory.total),
            unit="B",
        )
        return plain(ID, Verdict.PASS, f"The model fits one {device.name}", item)
    if current_baseline(evidence) is not None:
        item = EvidenceItem(
            text=f"Predicted for one GPU: {alone.memory.reason}",
            value=float(alone.memory.total),
            unit="B",
        )
        title = "By the formula the model does not fit one GPU, but it runs"
        return plain(ID, Verdict.INFORMATIVE, title, item)
    split = smallest_split(evidence, shape, spec)
    found = predict(evidence, context=longest, tp=split.tp, pp=split.pp) if split else None
    item = EvidenceItem(
        text=f"One GPU: {alone.memory.reason} (predicted)",
        value=float(alone.memory.total),
        unit="B",
    )
    hosts = hosts_split(evidence, shape, spec) if split is None else None
    if hosts is not None:
        title = f"Use {hosts.pp} hosts of {hosts.tp} GPUs: no single one holds the model"
        text = f"Serve with {hosts.text}, a stage on each host, or store the weights in fewer bits."
        return [_failing(title, Change(text=text), item)]
    if split is None or found is None:
        title = f"Use a larger GPU: no group of {spec.gpus_per_node} of these holds the model"
        text = "Store the weights in fewer bits, or choose a GPU with more memory."
        return [_failing(title, Change(text=text), item)]
    size = split.gpus
    each = EvidenceItem(
        text=f"On {size} GPUs each needs {units.memory(found.memory.total)} of "
        f"{units.memory(found.memory.usable)} (predicted)",
        value=float(found.memory.total),
        unit="B",
    )
    if size > device.count:
        title = f"Use {size} GPUs: the model needs them and the host has {device.count}"
        text = f"Choose a host with {size} GPUs, or store the weights in fewer bits."
        return [_failing(title, Change(text=text), item, each)]
    within = within_layers(evidence, shape, spec)
    why = (
        ""
        if split.pp == 1
        else " No tensor parallel size that holds it divides the heads."
        if within is None
        else " The link between the GPUs is too slow to split within the layers."
    )
    return [
        _failing(
            f"Split the model over {size} GPUs: it does not fit on one",
            split_change(evidence, f"Serve with {split.text}.{why}", split),
            item,
            each,
        )
    ]


def _failing(title: str, change: Change, *items: EvidenceItem) -> Finding:
    return Finding(
        rule_id=ID,
        verdict=Verdict.FAIL,
        title=title,
        evidence=items,
        change=change,
        confidence="medium",
        confidence_reason="predicted from the config and the driver's memory",
    )


RULE = Rule(
    id=ID,
    code="d001",
    group="parallelism",
    title="The model fits one GPU",
    failing_title="Split the model over GPUs",
    why="A model that does not fit one GPU can run on several, each with a part of every layer. "
    "The smallest size that holds it communicates least.",
    how_measured="The memory budget of one GPU, of the tensor-parallel sizes that divide the "
    "heads, and of pipelines where none does or the link is too slow.",
    threshold="Fails when one GPU does not hold the weights and the longest request, and none was "
    "measured to do so.",
    source="memory budget (docs/prediction.md)",
    when_not="When fewer bits per weight make it fit: one GPU needs no links.",
    needs=("a GPU of the catalogue", "a readable config"),
    knobs=("tensor_parallel", "pipeline_parallel"),
    check=check,
)
