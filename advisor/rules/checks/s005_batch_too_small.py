"""A decode step hardly grows with the batch, so requests served alone waste the device."""

from __future__ import annotations

from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.measures import interval_text, sample_ratio, times
from advisor.rules.rule import Change, Effect, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import current_baseline, hurts, modelled_gain, not_applicable, plain
from advisor.thresholds import BATCH_MIN_GAIN
from gpuagent.wire.trial import BaselineConfig, BaselineResult, GridCell

ID = "batch-too-small"


def check(evidence: StudyEvidence) -> list[Finding]:
    found = current_baseline(evidence)
    cells = _ends(found[1]) if found is not None else None
    if found is None or cells is None:
        missing = "A valid baseline with two batch sizes at one prompt length"
        return not_applicable(ID, "The worth of batching is not measured", missing)
    trial, _ = found
    first, last = cells
    ratio = sample_ratio(first.decode_step_s, last.decode_step_s, groups=_repeats(trial))
    if ratio is None:
        return plain(ID, Verdict.CANNOT_TELL, "Decode steps of both batches were not timed")
    factor = last.batch / first.batch
    value = factor / ratio.value
    low = factor / ratio.high if ratio.high else None
    high = factor / ratio.low if ratio.low else None
    item = EvidenceItem(
        text=f"A step at batch {last.batch} takes {times(ratio.value)} that at batch {first.batch}"
        f"{interval_text(ratio.low, ratio.high)}, n = {ratio.n}: {times(value)} the tokens per "
        "second",
        value=value,
        low=low,
        high=high,
        unit="×",
        n=ratio.n,
        trial_id=trial.trial_id,
        chart="decode-grid",
    )
    bar = BATCH_MIN_GAIN.value
    if value < bar:
        title = f"Batch {last.batch} gives only {times(value)} the tokens per second"
        return plain(ID, Verdict.PASS, title, item)
    if low is not None and low < bar:
        title = f"Batch {last.batch} may pay: {times(value)} the tokens per second"
        return plain(ID, Verdict.CANNOT_TELL, title, item)
    title = (
        f"batch {last.batch} decodes {times(value)} the tokens per second of batch {first.batch}"
    )
    if not _wanted(evidence):
        return plain(ID, Verdict.INFORMATIVE, f"{title[:1].upper()}{title[1:]}", item)
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Serve requests together: {title}",
            summary="A step reads all weights whether it makes one token or many. Each sequence "
            f"then takes {times(ratio.value)} as long per token.",
            evidence=(item,),
            change=Change(
                text=f"Use an engine with continuous batching and allow {last.batch} sequences or "
                "more."
            ),
            effect=Effect(
                metric="output_tok_s",
                change_frac=value - 1,
                low=low - 1 if low is not None else None,
                high=high - 1 if high is not None else None,
                basis="measured",
                better=True,
                from_trial=trial.trial_id,
                to_trial=trial.trial_id,
            ),
            confidence="medium",
            confidence_reason="decode alone, in one process; prefill of others will interrupt it",
            gain=modelled_gain(evidence, {"output_tok_s": value - 1}),
        )
    ]


def _ends(result: BaselineResult) -> tuple[GridCell, GridCell] | None:
    """Smallest and largest batch at the shortest prompt that has two."""
    for tokens in sorted({cell.input_tokens for cell in result.cells}):
        cells = sorted(
            (c for c in result.cells if c.input_tokens == tokens), key=lambda cell: cell.batch
        )
        if len(cells) > 1:
            return cells[0], cells[-1]
    return None


def _repeats(trial: TrialEvidence) -> int:
    config = trial.spec.config
    return config.repeats if isinstance(config, BaselineConfig) else 0


def _wanted(evidence: StudyEvidence) -> bool:
    """Whether more tokens per second serve the study: a missed target, or a batch job."""
    targets = {target.metric for target in evidence.spec.targets}
    if "output_tok_s" in targets:
        return hurts(evidence, "output_tok_s")
    return evidence.spec.workload.preset == "batch"


RULE = Rule(
    id=ID,
    code="s005",
    group="scheduling",
    title="Requests share their steps",
    failing_title="Serve requests together",
    why="Decode is bound by reading the weights, once per step for all sequences of the batch. "
    "Until arithmetic becomes the limit, more sequences are nearly free.",
    how_measured="Decode steps of the smallest and the largest batch of the grid at one prompt "
    "length, interleaved over the repeats.",
    threshold=f"Fails from {BATCH_MIN_GAIN.value} × the tokens per second on, interval included, "
    "when a throughput target is not met or the workload is a batch job; told else.",
    source=BATCH_MIN_GAIN.source,
    when_not="One user at a time: there is nothing to batch.",
    needs=("a valid baseline with two batch sizes",),
    knobs=(),
    check=check,
)
