"""A prompt that is too long, or another bad request, ends the server or gets a 5xx."""

from __future__ import annotations

from advisor.evidence import StudyEvidence
from advisor.rules.checks._robustness import NEEDS, find, gone, items, not_tested
from advisor.rules.rule import Change, Finding, Rule, Verdict
from advisor.rules.support import plain

ID = "bad-request-breaks"
BAD = ("long_prompt", "max_tokens", "malformed_request")


def check(evidence: StudyEvidence) -> list[Finding]:
    found = find(evidence)
    if found is None:
        return not_tested(ID, evidence)
    trial, result = found
    lines = [c for name in BAD if (c := result.report.check(name))]
    failed = [c for c in lines if c.verdict == "fail"]
    unknown = [c for c in lines if c.verdict == "cannot_tell"]
    died = gone(result, *BAD)
    if failed or died is not None:
        cut = [c for c in failed if c.value == 200]
        if died is not None:
            title, summary = "Check requests before the server: one of them ends it", died
        elif len(cut) == len(failed):
            title = "Refuse prompts that are too long: they are cut without a word"
            summary = "An answer to a part of the prompt looks like an answer to all of it."
        else:
            title = "Refuse bad requests with a 4xx and a reason"
            summary = (
                "Clients try a 5xx or a silence again, and monitoring counts it as the server's."
            )
        return [
            Finding(
                rule_id=ID,
                verdict=Verdict.FAIL,
                title=title,
                summary=summary,
                evidence=items(failed or lines, trial),
                change=Change(
                    text="Check length, max_tokens and shape of a request at the gateway, answer "
                    "400 there, and update the engine."
                ),
                confidence="high",
                confidence_reason="one request is enough to see it",
            )
        ]
    if unknown or not lines:
        title = "Whether bad requests are refused is not known"
        return plain(ID, Verdict.CANNOT_TELL, title, *items(unknown, trial))
    title = "Bad requests are refused with a 4xx and a reason"
    return plain(ID, Verdict.PASS, title, *items(lines, trial))


RULE = Rule(
    id=ID,
    code="f009",
    group="stability",
    title="Bad requests are refused",
    failing_title="Refuse bad requests with a 4xx and a reason",
    why="A single prompt beyond the context must not take the others down, and a 5xx makes clients "
    "send it again.",
    how_measured="A prompt of 1.25 contexts, max_tokens of ten contexts, broken JSON, words for a "
    "number, no prompt.",
    threshold="Fails when one of them gets no answer, a 5xx, a 4xx without a reason, or 200 for a "
    "prompt that cannot have been read whole.",
    source="HTTP semantics (RFC 9110, 15.5 and 15.6): what the client did wrong is a 4xx",
    when_not="Behind a gateway that checks all of it.",
    needs=NEEDS,
    knobs=(),
    check=check,
)
