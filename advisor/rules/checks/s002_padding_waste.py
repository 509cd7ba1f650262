"""Mixed lengths in one batch compute padding; and what a larger batch is worth."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.measures import interval_text, median_s, sample_ratio, times
from advisor.rules.rule import Change, Effect, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import missing_trial, ratio_item
from advisor.thresholds import PADDING_MIN_SAVING
from gpuagent.wire.inside import BatchingResult

ID = "padding-waste"


def check(evidence: StudyEvidence) -> list[Finding]:
    trials = [t for t in evidence.succeeded(BatchingResult) if t.usable]
    result = trials[-1].measured(BatchingResult) if trials else None
    if result is None:
        return [
            Finding(
                rule_id=ID,
                verdict=Verdict.NOT_APPLICABLE,
                title="Batching is not measured",
                missing=missing_trial(evidence, "batching"),
            )
        ]
    return [_padding(trials[-1], result), *_scaling(trials[-1], result)]


def _padding(trial: TrialEvidence, result: BatchingResult) -> Finding:
    by_order = {p.order: p for p in result.padding}
    mixed, sorted_ = by_order.get("as_they_come"), by_order.get("bucketed")
    ratio = sample_ratio(mixed.seconds, sorted_.seconds) if mixed and sorted_ else None
    if mixed is None or sorted_ is None or ratio is None:
        return Finding(
            rule_id=ID, verdict=Verdict.CANNOT_TELL, title="Padding was not timed both ways"
        )
    wasted = 1 - mixed.useful_tokens / mixed.computed_tokens
    left = 1 - sorted_.useful_tokens / sorted_.computed_tokens
    items = (
        EvidenceItem(
            text=f"{units.percent(wasted)} of the computed tokens are padding in batches as they "
            f"come, {units.percent(left)} when sorted by length",
            value=wasted,
            unit="share",
            trial_id=trial.trial_id,
            chart="batch-scaling",
        ),
        ratio_item(
            f"Sorted batches take {times(ratio.value)} the time"
            f"{interval_text(ratio.low, ratio.high)}, n = {ratio.n}",
            ratio,
            trial,
            chart="batch-scaling",
        ),
    )
    if not ratio.below(PADDING_MIN_SAVING.value):
        return Finding(
            rule_id=ID,
            verdict=Verdict.PASS,
            title="Sorting prompts by length saves little",
            evidence=items,
        )
    return Finding(
        rule_id=ID,
        verdict=Verdict.FAIL,
        title=f"Batch prompts of similar length: {units.percent(wasted)} of the computed tokens "
        "are padding",
        summary="A padded batch computes every prompt as long as its longest.",
        evidence=items,
        change=Change(
            text="Sort or bucket prompts by length before batching, or serve with an engine that "
            "packs sequences without padding (continuous batching)."
        ),
        effect=Effect(
            metric="output_tok_s",
            change_frac=1 / ratio.value - 1,
            low=1 / ratio.high - 1 if ratio.high else None,
            high=1 / ratio.low - 1 if ratio.low else None,
            basis="measured",
            better=True,
            from_trial=trial.trial_id,
        ),
        confidence="medium",
        confidence_reason="prefill only, both orders in turn in one process",
    )


def _scaling(trial: TrialEvidence, result: BatchingResult) -> list[Finding]:
    ran = sorted((p for p in result.points if p.decode_step_s.n), key=lambda p: p.batch)
    if len(ran) < 2:
        return []
    first, last = ran[0], ran[-1]
    one, many = median_s(first.decode_step_s), median_s(last.decode_step_s)
    if not one or not many:
        return []
    gain = last.batch / first.batch * one / many
    lacking = next((p for p in result.points if p.reason), None)
    end = f"; batch {lacking.batch} does not fit the memory" if lacking else ""
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.INFORMATIVE,
            title=f"Batch {last.batch} decodes {times(gain)} the tokens per second of batch "
            f"{first.batch}{end}",
            evidence=(
                EvidenceItem(
                    text=f"A step takes {units.seconds(one)} at batch {first.batch} and "
                    f"{units.seconds(many)} at batch {last.batch} (medians, "
                    f"n = {last.decode_step_s.n})",
                    value=gain,
                    unit="×",
                    n=last.decode_step_s.n,
                    trial_id=trial.trial_id,
                    chart="batch-scaling",
                ),
            ),
        )
    ]


RULE = Rule(
    id=ID,
    code="s002",
    group="scheduling",
    title="Batches compute few padding tokens",
    failing_title="Batch prompts of similar length",
    why="Prompts of one batch are padded to the longest. With mixed lengths a large share of the "
    "work is padding that nobody reads.",
    how_measured="The same mix of lengths in batches as they come and sorted by length, in turn; "
    "decode steps over batch sizes; prefill in chunks.",
    threshold=f"Fails when sorting saves more than {PADDING_MIN_SAVING.value:.0%} of the time, "
    "interval included.",
    source=PADDING_MIN_SAVING.source,
    when_not="Engines with continuous batching do not pad; this is about static batches.",
    needs=("a batching trial",),
    knobs=(),
    check=check,
)
