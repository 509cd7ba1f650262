"""Prompts or answers were longer or shorter than the workload asks for."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.rules.rule import EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import MIN_REQUESTS, current_baseline, not_applicable, plain
from advisor.targets import trial_metrics
from advisor.thresholds import LENGTH_TOLERANCE
from gpuagent.stats import summarise

ID = "lengths-differ"


def check(evidence: StudyEvidence) -> list[Finding]:
    found = current_baseline(evidence)
    metrics = trial_metrics(found[0]) if found is not None else None
    if found is None or metrics is None or metrics.succeeded < MIN_REQUESTS:
        missing = "A valid baseline with requests"
        return not_applicable(ID, "No lengths were measured", missing)
    trial, _ = found
    workload = trial.spec.workload
    if {workload.input_tokens.kind, workload.output_tokens.kind} & {"measured", "unknown"}:
        missing = "Lengths that were asked for: the file tells what was sent"
        return not_applicable(ID, "No lengths were asked for", missing)
    rows = (
        _row("Prompts", metrics.input_tokens, workload.input_tokens.mean, trial.trial_id),
        _row("Answers", metrics.output_tokens, workload.output_tokens.mean, trial.trial_id),
    )
    items = tuple(item for item, _ in rows)
    differing = [(item, gap) for item, gap in rows if gap is not None]
    if not differing:
        return plain(ID, Verdict.PASS, "Lengths are those of the workload", *items)
    gap = max((g for _, g in differing), key=abs)
    word = "longer" if gap > 0 else "shorter"
    return plain(
        ID,
        Verdict.INFORMATIVE,
        f"Real lengths are {units.percent(abs(gap))} {word} than asked",
        *items,
        summary="Every figure here is computed from the real counts. Compare with other runs by "
        "those, not by the lengths asked for.",
    )


def _row(name: str, counts: object, asked: int, trial_id: str) -> tuple[EvidenceItem, float | None]:
    """The item, and the relative gap where it is proven beyond the tolerance."""
    spread = summarise(counts)  # type: ignore[arg-type]
    gap = spread.mean / asked - 1
    low = (spread.mean_low if spread.mean_low is not None else spread.mean) / asked - 1
    high = (spread.mean_high if spread.mean_high is not None else spread.mean) / asked - 1
    tolerance = LENGTH_TOLERANCE.value
    item = EvidenceItem(
        text=f"{name}: {spread.mean:,.0f} tokens on average of {asked:,} asked, n = {spread.n:,}",
        value=spread.mean,
        unit="tokens",
        n=spread.n,
        trial_id=trial_id,
    )
    return item, gap if low > tolerance or high < -tolerance else None


RULE = Rule(
    id=ID,
    code="v007",
    group="measurement",
    title="Lengths are those of the workload",
    failing_title="Compare by the real lengths",
    why="A tenth fewer tokens makes latency, throughput and cost look a tenth better.",
    how_measured="Mean token counts of the requests that were answered against the asked means.",
    threshold=f"Told when a mean is proven to differ by more than {LENGTH_TOLERANCE.value:.0%}.",
    source=LENGTH_TOLERANCE.source,
    when_not="Answers that may end early are shorter by nature.",
    needs=("a valid baseline with requests",),
    knobs=(),
    check=check,
)
