"""Whole experts on single GPUs of one host, where slices of all experts serve more."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.rules.checks._parallel import (
    expert_columns,
    parallel_change,
    requests_in_flight,
    split_of,
)
from advisor.rules.rule import Effect, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import (
    current_baseline,
    hurts,
    modelled_gain,
    not_applicable,
    plain,
)
from advisor.thresholds import EXPERT_BLOCK, EXPERT_SLICES_GAIN, EXPERT_SLICES_GAIN_HIGH
from gpuagent.wire.settings import PARALLEL_SERVERS

ID = "experts-spread-slow"


def check(evidence: StudyEvidence) -> list[Finding]:
    now, shape, found = evidence.spec.current, evidence.shape, current_baseline(evidence)
    split, title = split_of(now), "Whole experts are not compared with slices"
    ranks = split.tp if evidence.spec.engine in PARALLEL_SERVERS else 1
    if shape is None or not shape.is_moe or not now.expert_parallel or ranks < 2:
        missing = "A model with experts, served with expert parallelism over two GPUs or more"
        return not_applicable(ID, title, missing)
    if split.pp > 1 or (now.data_parallel or 1) > 1:
        missing = "One host without pipeline and data parallelism: with them only a trial tells"
        return not_applicable(ID, title, missing)
    columns, block = expert_columns(shape), round(EXPERT_BLOCK.value)
    in_blocks = shape.quant is not None and shape.quant.method == "fp8_block"
    if in_blocks and (columns is None or columns % (ranks * block)):
        title = "Slices would cut through the blocks of the format, so experts stay whole"
        return plain(ID, Verdict.PASS, title)
    load = requests_in_flight(*found) if found is not None else None
    if found is None or load is None:
        return not_applicable(ID, title, "A valid trial of the current settings")
    flight, n = load
    seen = EvidenceItem(
        text=f"{units.number(flight)} requests were in flight on average over {ranks} GPUs, each "
        f"with whole experts of {shape.experts}",
        value=flight,
        unit="requests",
        n=n,
        trial_id=found[0].trial_id,
    )
    item = EvidenceItem(
        text=f"Slices served {units.percent(EXPERT_SLICES_GAIN.value)} more in the median of 34 "
        f"public pairs on one host, up to {units.percent(EXPERT_SLICES_GAIN_HIGH.value)} more in "
        "nine of ten (of other models, not of this study)",
        value=EXPERT_SLICES_GAIN.value,
        low=0.0,
        high=EXPERT_SLICES_GAIN_HIGH.value,
        unit="share of the throughput",
        n=34,
    )
    if not hurts(evidence, "itl_s", "e2e_s", "output_tok_s"):
        title = "Experts stay whole on their GPU, within the targets"
        return plain(ID, Verdict.INFORMATIVE, title, seen, item)
    gain = EXPERT_SLICES_GAIN.value
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title="Try slices of experts: on one host they serve more as a rule",
            summary="A step ends with the GPU whose experts were chosen most often. Slices load "
            "every GPU alike; whole experts are made for data parallel attention over many GPUs.",
            evidence=(seen, item),
            change=parallel_change(
                evidence, "Run this study without expert parallelism.", expert_parallel=False
            ),
            effect=Effect(
                metric="output_tok_s",
                change_frac=gain,
                low=0.0,
                high=EXPERT_SLICES_GAIN_HIGH.value,
                basis="modelled",
                better=True,
            ),
            confidence="low",
            confidence_reason="other models showed it, this one was not measured both ways",
            gain=modelled_gain(evidence, {"output_tok_s": gain / 2}),
        )
    ]


RULE = Rule(
    id=ID,
    code="d009",
    group="parallelism",
    title="Experts lie where they serve most",
    failing_title="Try slices of experts",
    why="Expert parallelism keeps the matrices of an expert wide, and leaves GPUs idle whose "
    "experts a batch does not choose. On one host without data parallel attention the second "
    "outweighs the first in nearly all public measurements.",
    how_measured="Settings and config for how experts lie; the targets that the trial misses; the "
    "difference is that of public pairs, since no trial of the study measures it.",
    threshold="Fails when whole experts are served on one host, slices would not cut through the "
    "format's blocks, and an ITL, end-to-end or throughput target is not met; told else.",
    source=EXPERT_SLICES_GAIN.source,
    when_not="With data parallel attention over many GPUs, for which expert parallelism is made.",
    needs=("a valid trial of a vLLM or SGLang server with expert parallelism",),
    knobs=("expert_parallel",),
    check=check,
)
