"""The server works on for clients that left, or keeps the memory of their requests."""

from __future__ import annotations

from advisor.evidence import StudyEvidence
from advisor.rules.checks._robustness import NEEDS, find, gone, items, not_tested
from advisor.rules.rule import Change, Finding, Rule, Verdict
from advisor.rules.support import plain

ID = "abandoned-work"
LEAVING = ("client_timeout", "cancelled_streams")


def check(evidence: StudyEvidence) -> list[Finding]:
    found = find(evidence)
    if found is None:
        return not_tested(ID, evidence)
    trial, result = found
    lines = [c for name in (*LEAVING, "kv_released") if (c := result.report.check(name))]
    failed = [c for c in lines if c.verdict == "fail"]
    unknown = [c for c in lines if c.verdict == "cannot_tell"]
    if failed:
        died = gone(result, *LEAVING)
        return [
            Finding(
                rule_id=ID,
                verdict=Verdict.FAIL,
                title=_title({c.name for c in failed}, died=died is not None),
                summary=died
                or "Clients that give up and try again then load the server twice, and every "
                "retry makes it slower.",
                evidence=items(failed, trial),
                change=Change(
                    text="Let the gateway close its connection to the server as soon as the "
                    "client's is closed, cap the tokens of an answer, and update the engine where "
                    "it goes on nevertheless."
                ),
                confidence="high",
                confidence_reason="seen in the server's own metrics",
            )
        ]
    if unknown or not lines:
        return plain(
            ID,
            Verdict.CANNOT_TELL,
            "Whether the server stops for clients that left is not known",
            *items(unknown, trial),
        )
    title = "Requests that are left end, and their memory is free again"
    return plain(ID, Verdict.PASS, title, *items(lines, trial))


def _title(failed: set[str], *, died: bool) -> str:
    if died:
        return "Replace this version: the server ends when clients leave"
    if failed == {"kv_released"}:
        return "Find what keeps the cache: its memory is not free again after the load"
    return "Stop work that nobody waits for: the server goes on for clients that left"


RULE = Rule(
    id=ID,
    code="f007",
    group="stability",
    title="Work ends when its client leaves",
    failing_title="Stop work that nobody waits for",
    why="Time-outs and closed tabs are a normal part of traffic. A server that computes their "
    "answers to the end loses places in the batch and memory to nobody.",
    how_measured="A request whose client gives up and streams that are closed half-way: running "
    "requests and use of the cache in the server's own metrics before and after.",
    threshold="Fails when more requests are open than before after 10 s, or more than 0.5 % of the "
    "cache stays used.",
    source="own measurement: vLLM 0.32 stops within 0.1 s and frees the cache (docs/load.md)",
    when_not="Behind a gateway that keeps answers for its clients on purpose.",
    needs=NEEDS,
    knobs=(),
    check=check,
)
