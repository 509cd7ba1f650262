"""Tensor parallelism cuts the experts of a block-wise FP8 checkpoint through its blocks."""

from __future__ import annotations

from advisor.evidence import StudyEvidence
from advisor.rules.checks._parallel import (
    expert_columns,
    parallel_change,
    smallest_split,
    split_needed,
    split_of,
)
from advisor.rules.rule import EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import current_baseline, device_spec, not_applicable, plain
from advisor.thresholds import EXPERT_BLOCK
from gpuagent.wire.settings import PARALLEL_SERVERS

ID = "expert-slices-misaligned"


def check(evidence: StudyEvidence) -> list[Finding]:
    shape, ranks = evidence.shape, _ranks(evidence)
    if shape is None or not shape.is_moe:
        return not_applicable(ID, "There are no experts to slice", "A model with experts")
    if shape.quant is None or shape.quant.method != "fp8_block":
        title = "The experts are not stored in blocks that a slice could cut"
        return plain(ID, Verdict.PASS, title)
    if ranks is None:
        missing = "A tensor parallel size above 1, or a GPU that is too small for the model"
        return not_applicable(ID, "The experts are on one GPU", missing)
    columns = expert_columns(shape)
    if columns is None:
        return not_applicable(ID, "The size of an expert is not known", "A config that states it")
    block = round(EXPERT_BLOCK.value)
    if evidence.spec.current.expert_parallel:
        item = EvidenceItem(text=f"Each GPU holds whole experts of {columns:,} columns (config)")
        return plain(ID, Verdict.PASS, "Experts stay whole on their GPU", item)
    slices = columns / ranks
    item = EvidenceItem(
        text=f"{columns:,} columns of an expert over {ranks} GPUs are {slices:g} each; the scales "
        f"are stored for blocks of {block} (config)",
        value=slices,
        unit="columns",
    )
    if columns % (ranks * block) == 0:
        return plain(ID, Verdict.PASS, f"A slice of an expert is {slices:g} columns", item)
    if current_baseline(evidence) is not None:
        title = "Slices of experts cut through the blocks of their format, and the engine runs"
        return plain(ID, Verdict.INFORMATIVE, title, item)
    sizes = [n for n in range(1, ranks) if columns % (n * block) == 0 and ranks % n == 0]
    others = f" Sizes that cut between blocks: {', '.join(map(str, sizes))}." if sizes else ""
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Keep experts whole: slices of {slices:g} columns cut through blocks of {block}",
            summary=f"Engines end with an error while they load the weights.{others}",
            evidence=(item,),
            change=parallel_change(
                evidence,
                "Switch expert parallelism on (--enable-expert-parallel in vLLM, --ep-size in "
                "SGLang): each GPU then holds some of the experts, each of them whole.",
                expert_parallel=True,
            ),
            confidence="medium",
            confidence_reason="the sizes are exact; an engine that pads such slices starts",
        )
    ]


def _ranks(evidence: StudyEvidence) -> int | None:
    """GPUs that share an expert: today's, else those that the model needs; None for one GPU."""
    now = evidence.spec.current
    # vLLM shares experts among the copies, too; SGLang does not.
    copies = (now.data_parallel or 1) if evidence.spec.engine == "vllm" else 1
    if evidence.spec.engine in PARALLEL_SERVERS and split_of(now).tp * copies > 1:
        return split_of(now).tp * copies
    shape, spec = evidence.shape, device_spec(evidence)
    if shape is None or spec is None or spec.vendor == "CPU" or not split_needed(evidence):
        return None
    found = smallest_split(evidence, shape, spec)
    return found.tp if found is not None and found.tp > 1 else None


RULE = Rule(
    id=ID,
    code="d008",
    group="parallelism",
    title="Slices of experts keep to the blocks of their format",
    failing_title="Keep experts whole on their GPU",
    why="Block-wise FP8 stores one scale for each block of the weights. A slice that ends inside a "
    "block has no scale of its own, and the engine refuses to load it, after minutes.",
    how_measured="Columns of an expert in the config over the GPUs that share it, against the "
    "block.",
    threshold=f"Fails when a slice is no multiple of {EXPERT_BLOCK.value:g} columns and the model "
    "was not measured like this; told when it was.",
    source=EXPERT_BLOCK.source,
    when_not="With an engine that pads the slices, or a checkpoint of another format.",
    needs=("a model with experts in block-wise FP8", "GPUs that it is split over"),
    knobs=("expert_parallel",),
    check=check,
)
