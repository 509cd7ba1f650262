"""What splitting the model over the host's GPUs was measured to give."""

from __future__ import annotations

from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.measures import Ratio, interval_text, sample_ratio, times
from advisor.rules.checks._parallel import use_of
from advisor.rules.rule import Change, Effect, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import (
    hurts,
    missing_trial,
    modelled_gain,
    not_applicable,
    plain,
    ratio_item,
)
from gpuagent.wire.parallel import TensorParallelConfig, TensorParallelPoint, TensorParallelResult

ID = "split-unused"


def check(evidence: StudyEvidence) -> list[Finding]:
    for trial in reversed(evidence.succeeded(TensorParallelResult)):
        result = trial.measured(TensorParallelResult)
        if result is not None and trial.usable and result.backend == "nccl":
            return _judge(evidence, trial, result)
    missing = missing_trial(evidence, "tensor_parallel")
    return not_applicable(
        ID, "Splitting the model is not measured", f"{missing}, on a host with two GPUs or more"
    )


def _judge(
    evidence: StudyEvidence, trial: TrialEvidence, result: TensorParallelResult
) -> list[Finding]:
    ran = [point for point in result.points if point.decode_step_s.n]
    one = next((point for point in ran if point.size == 1), None)
    if one is None:
        sizes = " and ".join(str(point.size) for point in ran)
        title = f"The model ran split over {sizes} GPUs; one alone is no reference"
        return plain(ID, Verdict.INFORMATIVE, title)
    config = trial.spec.config
    groups = config.repeats if isinstance(config, TensorParallelConfig) else 0
    compared = [
        (point, ratio)
        for point in ran
        if point.size > 1
        and (ratio := sample_ratio(one.decode_step_s, point.decode_step_s, groups=groups))
    ]
    if not compared:
        reasons = "; ".join(f"{p.size} GPUs: {p.reason}" for p in result.points if p.reason)
        return [
            Finding(
                rule_id=ID,
                verdict=Verdict.CANNOT_TELL,
                title="No split of the model ran",
                summary=reasons,
            )
        ]
    items = tuple(_item(trial, point, ratio) for point, ratio in compared)
    best, ratio = min(compared, key=lambda pair: pair[1].value)
    if ratio.low is None or ratio.high is None:
        title = "Whether a split shortens a decode step is not known"
        return plain(ID, Verdict.CANNOT_TELL, title, *items)
    if ratio.high >= 1:
        title = f"One GPU decodes as fast as {best.size}: links cost what the split saves"
        return plain(ID, Verdict.PASS, title, *items)
    gain = f"{best.size} GPUs take {times(ratio.value)} the time of a decode step"
    if not hurts(evidence, "itl_s", "e2e_s") or not evidence.spec.targets:
        return plain(
            ID,
            Verdict.INFORMATIVE,
            gain[:1].upper() + gain[1:],
            *items,
            summary=f"{best.size} copies of the model would give up to {best.size} times the "
            "tokens; a split pays where one answer has to be faster.",
        )
    use = use_of(evidence)
    if use is not None and use.copies_help:
        return plain(
            ID,
            Verdict.INFORMATIVE,
            gain[:1].upper() + gain[1:],
            *items,
            summary="Copies on the idle GPUs are advised: they bring more throughput. A split "
            "takes the same GPUs and pays where one answer has to be faster first of all.",
        )
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Split the model over {best.size} GPUs: {gain}",
            summary="Each GPU reads a part of the weights, so one answer comes sooner; as many "
            "copies of the model would serve more answers at today's pace.",
            evidence=items,
            change=Change(text=f"Serve with a tensor parallel size of {best.size}."),
            effect=Effect(
                metric="itl_s",
                change_frac=ratio.value - 1,
                low=ratio.low - 1,
                high=ratio.high - 1,
                basis="measured",
                better=True,
                from_trial=trial.trial_id,
            ),
            confidence="medium",
            confidence_reason="measured with transformers at one sequence; an engine with fused "
            "all-reduce gains more",
            gain=modelled_gain(evidence, {"itl_s": ratio.value - 1, "e2e_s": ratio.value - 1}),
        )
    ]


def _item(trial: TrialEvidence, point: TensorParallelPoint, ratio: Ratio) -> EvidenceItem:
    same = (
        ""
        if point.same_tokens in (None, point.answer_tokens)
        else f"; {point.same_tokens} of {point.answer_tokens} answer tokens are the same"
    )
    return ratio_item(
        f"A decode step over {point.size} GPUs takes {times(ratio.value)} that of one"
        f"{interval_text(ratio.low, ratio.high)}, n = {ratio.n}{same}",
        ratio,
        trial,
        chart="tensor-parallel",
    )


RULE = Rule(
    id=ID,
    code="d010",
    group="parallelism",
    title="Splitting the model over this host's GPUs would not make answers faster",
    failing_title="Split the model over more GPUs",
    why="A split halves what each GPU reads and adds two all-reduces a layer. Which of the two "
    "weighs more depends on the links, and is only known by trying.",
    how_measured="Decode steps of one sequence in groups of one process per GPU by transformers' "
    "tensor-parallel plan, against one GPU.",
    threshold="Fails when the 95 % interval of the ratio lies below 1 and a target on latency per "
    "token or whole answers is not met; told where copies on idle GPUs are advised.",
    source="interval of the measured ratio",
    when_not="When throughput is short and latency is not: copies share nothing and scale better.",
    needs=("a tensor_parallel trial",),
    knobs=("tensor_parallel",),
    check=check,
)
