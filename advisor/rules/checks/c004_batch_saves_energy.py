"""A larger batch makes the same tokens from less energy."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.rules.rule import Change, Effect, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import current_baseline, hurts, modelled_gain, not_applicable, plain
from advisor.thresholds import ENERGY_MIN_SAVING

ID = "batch-saves-energy"


def check(evidence: StudyEvidence) -> list[Finding]:
    found = current_baseline(evidence)
    cells = (
        [c for c in found[1].cells if c.joules_per_token.value is not None]
        if found is not None
        else []
    )
    tokens = min((c.input_tokens for c in cells), default=0)
    cells = sorted((c for c in cells if c.input_tokens == tokens), key=lambda c: c.batch)
    if found is None or len(cells) < 2:
        missing = "A valid baseline with energy at two batch sizes"
        return not_applicable(ID, "Energy of batches is not measured", missing)
    first = cells[0]
    best = min(cells, key=lambda c: c.joules_per_token.value or 0.0)
    base, least = first.joules_per_token.value or 0.0, best.joules_per_token.value or 0.0
    saving = 1 - least / base if base > 0 else 0.0
    items = tuple(
        EvidenceItem(
            text=f"Batch {c.batch}: {units.energy(c.joules_per_token.value)} at {tokens:,} prompt "
            "tokens (measured once)",
            value=c.joules_per_token.value,
            unit="J/token",
            n=1,
            trial_id=found[0].trial_id,
        )
        for c in cells
    )
    if saving <= ENERGY_MIN_SAVING.value:
        return plain(ID, Verdict.PASS, "Larger batches save no energy worth a change", *items)
    title = f"batch {best.batch} takes {units.percent(saving)} less energy per token"
    targets = {target.metric for target in evidence.spec.targets}
    if "joules_per_token" not in targets or not hurts(evidence, "joules_per_token"):
        return plain(ID, Verdict.INFORMATIVE, f"{title[:1].upper()}{title[1:]}", *items)
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Serve requests together: {title}",
            summary="The energy of reading the weights is shared by the sequences of a step.",
            evidence=items,
            change=Change(
                text=f"Use an engine with continuous batching and keep {best.batch} sequences or "
                "more in flight."
            ),
            effect=Effect(
                metric="joules_per_token",
                change_frac=-saving,
                basis="measured",
                better=True,
                from_trial=found[0].trial_id,
                to_trial=found[0].trial_id,
            ),
            confidence="medium",
            confidence_reason="one reading per batch size, in the same trial",
            gain=modelled_gain(evidence, {"joules_per_token": -saving}),
        )
    ]


RULE = Rule(
    id=ID,
    code="c004",
    group="cost and energy",
    title="Batches do not save energy",
    failing_title="Serve requests together to save energy",
    why="Energy per token falls with the batch for the same reason that throughput rises: one read "
    "of the weights serves more tokens.",
    how_measured="The device's energy counter over each cell of the grid, per output token.",
    threshold=f"Fails when a batch saves more than {ENERGY_MIN_SAVING.value:.0%} and an energy "
    "target is not met; told else.",
    source=ENERGY_MIN_SAVING.source,
    when_not="When latency, not energy, is the tight target.",
    needs=("a valid baseline with energy at two batch sizes",),
    knobs=(),
    check=check,
)
