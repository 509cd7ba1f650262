"""The format in use scores worse on the same text than another one that was measured."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.measures import baseline_of, baselines, dtype_of, perplexity_increase
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import not_applicable, plain
from advisor.thresholds import MAX_PERPLEXITY_INCREASE

ID = "quality-lost"


def check(evidence: StudyEvidence) -> list[Finding]:
    trials = baselines(evidence)
    if not trials or trials[0].role != "current":
        return _absent()
    current = trials[0]
    rises = [
        (other, rise)
        for other in trials[1:]
        if set(current.settings.differences(other.settings)) == {"dtype"}
        and (rise := perplexity_increase(other, current)) is not None
    ]
    if not rises:
        return _absent()
    best, rise = max(rises, key=lambda row: row[1])
    own, other = dtype_of(current), dtype_of(best)
    items = tuple(_item(trial) for trial in (current, *(t for t, _ in rises)))
    if rise <= MAX_PERPLEXITY_INCREASE.value:
        title = f"{own} keeps the quality of every other format measured here"
        return plain(ID, Verdict.PASS, title, *items)
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Compare answers in {other}: {own} raises perplexity by {units.percent(rise)}",
            summary=f"The limit of this product is {units.percent(MAX_PERPLEXITY_INCREASE.value)}: "
            "what is lost here is lost in every answer.",
            evidence=items,
            change=Change(text=f"Load the model in {other}, and score both on your own task."),
            confidence="medium",
            confidence_reason="one text; a task of your own may weigh the difference otherwise",
        )
    ]


def _item(trial: TrialEvidence) -> EvidenceItem:
    found = baseline_of(trial).perplexity
    value = found.value if found is not None else None
    tokens = found.tokens if found is not None else 0
    return EvidenceItem(
        text=f"Perplexity {units.number(value, 4)} in {dtype_of(trial)} over {tokens:,} tokens",
        value=value,
        n=tokens,
        trial_id=trial.trial_id,
    )


def _absent() -> list[Finding]:
    missing = "Baselines in two formats with perplexity on the same text"
    return not_applicable(ID, "Quality of formats is not compared", missing)


RULE = Rule(
    id=ID,
    code="p003",
    group="precision",
    title="The format in use keeps the quality",
    failing_title="Compare answers in a wider format",
    why="Speed that is paid for with wrong answers is no gain, and the loss is silent.",
    how_measured="Perplexity of the current format and of every other baseline on the same text.",
    threshold=f"Fails when the current format is more than {MAX_PERPLEXITY_INCREASE.value:.0%} "
    "above another one.",
    source=MAX_PERPLEXITY_INCREASE.source,
    when_not="When a score on the task itself says that nothing is lost.",
    needs=("baselines in two formats with perplexity",),
    knobs=("dtype",),
    check=check,
)
