"""Client and server did not count the same requests or tokens."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import not_applicable, plain
from advisor.thresholds import COUNT_TOLERANCE
from gpuagent.wire.serving import CountCheck
from gpuagent.wire.trial import ServeResult

ID = "counts-disagree"
WORDS = {"requests": "requests", "output_tokens": "output tokens", "input_tokens": "input tokens"}


def check(evidence: StudyEvidence) -> list[Finding]:
    trial = evidence.current
    result = trial.measured(ServeResult) if trial is not None else None
    if trial is None or result is None or not result.served.counts:
        missing = "A server under load, with counters of its own"
        return not_applicable(ID, "Nothing was counted on both sides", missing)
    both = [c for c in result.served.counts if c.server is not None]
    if not both:
        reason = next((c.reason for c in result.served.counts if c.reason), "")
        title = "Only the client counted"
        return plain(ID, Verdict.CANNOT_TELL, title, summary=f"{reason}.".capitalize())
    items = {count.what: _item(count, trial.trial_id) for count in both}
    wrong = [count for count in both if _off(count) > _allowed(count)]
    if not wrong:
        return plain(ID, Verdict.PASS, "Client and server counted the same", *items.values())
    first = wrong[0]
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Find why client and server count different {WORDS[first.what]}",
            summary="One of the two did not see what was measured, so throughput, cost and energy "
            "per token are off by as much.",
            evidence=tuple(items[count.what] for count in wrong),
            change=Change(text=_cause(first)),
            confidence="high",
            confidence_reason="counted on both sides of the wire",
        )
    ]


def _off(count: CountCheck) -> float:
    return abs(count.client - (count.server or 0)) / max(1, count.server or 0)


def _allowed(count: CountCheck) -> float:
    return 0.0 if count.what == "requests" else COUNT_TOLERANCE.value


def _item(count: CountCheck, trial_id: str) -> EvidenceItem:
    return EvidenceItem(
        text=f"The client counted {count.client:,} {WORDS[count.what]}, the server "
        f"{count.server:,} ({units.percent(_off(count))} apart)",
        value=_off(count),
        unit="share",
        trial_id=trial_id,
    )


def _cause(count: CountCheck) -> str:
    more = (count.server or 0) > count.client
    if count.what == "requests" and more:
        return "Look for other traffic at the server, or for a proxy that sends requests again."
    if count.what == "requests":
        return (
            "Look for a proxy or a second replica that answered instead: its counters are not "
            "among those that were read."
        )
    if more:
        return (
            "Take the server's usage as the count: chunks of a stream may carry several tokens, "
            "and a chat template adds tokens that the client does not see."
        )
    return (
        "Count with the model's own tokenizer and without special tokens: text that is tokenized "
        "again gives another number."
    )


RULE = Rule(
    id=ID,
    code="v008",
    group="measurement",
    title="Client and server count the same",
    failing_title="Find why client and server count differently",
    why="A rate is only as good as its count. A cache, a proxy or other users between the two make "
    "a server look faster or slower than it is.",
    how_measured="Requests and tokens over the same window, by the client's records and by the "
    "server's own counters.",
    threshold="Fails with any request that only one side counted, or tokens more than "
    f"{COUNT_TOLERANCE.value:.0%} apart.",
    source=COUNT_TOLERANCE.source,
    when_not="Servers that other people use at the same time count more by nature.",
    needs=("a server under load, with counters of its own",),
    knobs=(),
    check=check,
    sees_invalid=True,
)
