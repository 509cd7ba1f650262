"""Whole experts on single GPUs serve less than slices of all experts on all of them."""

from __future__ import annotations

from dataclasses import replace

from advisor import units
from advisor.estimates.rows import RowError
from advisor.estimates.service import Estimate, estimate
from advisor.evidence import StudyEvidence
from advisor.rules.checks._parallel import (
    ENGINES,
    expert_columns,
    is_calibrated,
    parallel_change,
    requests_in_flight,
    split_of,
)
from advisor.rules.rule import Effect, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import (
    current_baseline,
    hurts,
    longest_tokens,
    modelled_gain,
    not_applicable,
    plain,
    request_of,
)
from advisor.shapes import ShapeError
from advisor.thresholds import EXPERT_BLOCK, PLACEMENT_MIN_GAIN

ID = "experts-spread-slow"
_PUBLIC = (
    "in public tables of one host without attention data parallelism it gave 0.56 to 1.04 × the "
    "throughput of slices, less in 32 of 34 pairs (ai-dynamo/aiconfigurator, five models with "
    "experts)"
)


def check(evidence: StudyEvidence) -> list[Finding]:
    now, shape, found = evidence.spec.current, evidence.shape, current_baseline(evidence)
    split, title = split_of(now), "Expert parallelism is not compared with slices"
    ranks = split.tp if evidence.spec.engine in ENGINES else 1
    if shape is None or not shape.is_moe or not now.expert_parallel or ranks < 2 or split.pp > 1:
        missing = "A model with experts, served with expert parallelism over two GPUs or more"
        return not_applicable(ID, title, missing)
    if (now.data_parallel or 1) > 1:
        missing = "Expert parallelism without data parallel attention: with it, only a trial tells"
        return not_applicable(ID, title, missing)
    columns, block = expert_columns(shape), round(EXPERT_BLOCK.value)
    blocks = shape.quant is not None and shape.quant.method == "fp8_block"
    if blocks and (columns is None or columns % (ranks * block)):
        title = "Slices would cut through the blocks of the format, so experts stay whole"
        return plain(ID, Verdict.PASS, title)
    load = requests_in_flight(*found) if found is not None else None
    if found is None or load is None:
        missing = "A valid trial of the current settings: what runs at once decides"
        return not_applicable(ID, title, missing)
    flight, n = load
    whole, sliced = _tok_s(evidence, ranks, flight, True), _tok_s(evidence, ranks, flight, False)
    if not whole or not sliced:
        return not_applicable(ID, title, "A GPU of the catalogue that the predictor was fitted on")
    ratio = sliced / whole
    seen = EvidenceItem(
        text=f"{units.number(flight)} requests were in flight on average over {ranks} GPUs",
        value=flight,
        unit="requests",
        n=n,
        trial_id=found[0].trial_id,
    )
    item = EvidenceItem(
        text=f"Predicted at this load: {units.rate(whole)} with whole experts, "
        f"{units.rate(sliced)} with slices, {ratio:.2f} times as much; {_PUBLIC}",
        value=ratio,
        unit="×",
    )
    if ratio <= 1:
        return plain(ID, Verdict.PASS, "By prediction slices would serve no more", seen, item)
    if ratio < PLACEMENT_MIN_GAIN.value:
        title = "Slices of experts may serve a little more than whole ones, or not"
        return plain(ID, Verdict.CANNOT_TELL, title, seen, item)
    if not hurts(evidence, "itl_s", "e2e_s", "output_tok_s"):
        title = "Slices of experts would serve more, by prediction; the targets are met"
        return plain(ID, Verdict.INFORMATIVE, title, seen, item)
    gain = ratio - 1
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Try slices of experts: by prediction they serve {units.percent(gain)} more",
            summary="A step ends with the GPU whose experts were chosen most often. Slices load "
            "every GPU alike; whole experts pay off with data parallel attention over many GPUs.",
            evidence=(seen, item),
            change=parallel_change(
                evidence, "Run this study without expert parallelism.", expert_parallel=False
            ),
            effect=Effect(
                metric="output_tok_s",
                change_frac=gain,
                low=0.0,
                high=2 * gain,
                basis="modelled",
                better=True,
            ),
            confidence="medium",
            confidence_reason="predicted by a model that was fitted on the public tables",
            gain=modelled_gain(evidence, {"output_tok_s": gain / 2}),
        )
    ]


def _tok_s(evidence: StudyEvidence, tp: int, flight: float, whole: bool) -> float | None:
    """Predicted output tokens per second with whole experts or slices; None where nothing tells."""
    request = request_of(evidence)
    if request is None:
        return None
    try:
        found: Estimate = estimate(
            replace(
                request,
                engine=str(evidence.spec.engine),
                tp=tp,
                expert_parallel=whole,
                kv_dtype=evidence.spec.current.kv_dtype,
                concurrency=max(1, round(flight)),
                context=longest_tokens(evidence.spec.workload),
            )
        )
    except (RowError, ShapeError):
        return None
    rate = found.throughput_tok_s
    return rate.value if rate is not None and is_calibrated(found) else None


RULE = Rule(
    id=ID,
    code="d009",
    group="parallelism",
    title="Experts lie where they serve most",
    failing_title="Try slices of experts",
    why="Expert parallelism keeps the matrices of an expert wide, and leaves GPUs idle whose "
    "experts a batch does not choose. On one host without data parallel attention the second "
    "outweighs the first in nearly all public measurements.",
    how_measured="Requests in flight by the client's clock; calibrated prediction with whole "
    "experts and with slices at that load.",
    threshold=f"Fails when slices are predicted to serve {PLACEMENT_MIN_GAIN.value:g} × as much or "
    "more and an ITL, end-to-end or throughput target is not met; told where they are met.",
    source=f"own count: {_PUBLIC}. {PLACEMENT_MIN_GAIN.source}",
    when_not="With data parallel attention over many GPUs, for which expert parallelism is made.",
    needs=(
        "a valid trial of a vLLM or SGLang server with expert parallelism",
        "a GPU that the predictor was fitted on",
    ),
    knobs=("expert_parallel",),
    check=check,
)
