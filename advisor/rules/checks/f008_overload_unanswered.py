"""More requests than the server holds: it fails, does not recover, or queues them without end."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.rules.checks._robustness import NEEDS, find, gone, items, not_tested
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import plain
from advisor.thresholds import OVERLOAD_MAX_WAIT
from gpuagent.wire.robustness import OverloadSeen

ID = "overload-unanswered"
_LIMIT = (
    "Limit what may wait, so that the rest is refused at once and can go elsewhere: "
    "--max-num-queued-reqs in vLLM, --max-queued-requests in SGLang, or a limit at the gateway "
    "that answers 429 with Retry-After."
)


def check(evidence: StudyEvidence) -> list[Finding]:
    found = find(evidence)
    if found is None:
        return not_tested(ID, evidence)
    trial, result = found
    report, seen = result.report, result.report.overload
    lines = [report.check(name) for name in ("overload", "recovery", "still_serving")]
    failed = [c for c in lines if c is not None and c.verdict == "fail"]
    if seen is None:
        title = "The server was not overloaded"
        return plain(ID, Verdict.CANNOT_TELL, title, *items(lines, trial))
    waited = _item(seen, trial.trial_id)
    died = gone(result, "overload", "recovery")
    if failed:
        what = "does not come back from" if failed[0].name != "overload" else "fails under"
        return [
            Finding(
                rule_id=ID,
                verdict=Verdict.FAIL,
                title="Keep the server alive: it ends under an overload"
                if died is not None
                else f"Refuse what is too much: the server {what} an overload",
                summary=died
                or "A burst is normal traffic. What cannot be served is owed a 429 or 503, and "
                "afterwards the server should be as quick as before.",
                evidence=(*items(failed, trial), waited),
                change=Change(text=_LIMIT),
                confidence="high",
                confidence_reason="seen by the client that sent it",
            )
        ]
    if seen.refused:
        title = "An overload is refused with 429 or 503, and the server recovers"
        return plain(ID, Verdict.PASS, title, *items(lines, trial), waited)
    if not seen.waiting_peak:
        told = "/metrics does not say whether any waited"
        if seen.waiting_peak == 0:
            told = "no request waited, so more of them at once would be needed"
        title = f"{seen.sent:,} requests at once were no overload that can be judged: {told}"
        return plain(ID, Verdict.CANNOT_TELL, title, waited)
    if (seen.slowest_s or 0.0) > OVERLOAD_MAX_WAIT.value:
        return [
            Finding(
                rule_id=ID,
                verdict=Verdict.FAIL,
                title="Limit the queue: the last of a burst waited "
                f"{units.seconds(seen.slowest_s)}, and none was refused",
                summary="Clients and proxies give up earlier, and the server then computes answers "
                "for nobody while those that still wait get later and later.",
                evidence=(waited,),
                change=Change(text=_LIMIT),
                confidence="high",
                confidence_reason="seen by the client that sent it",
            )
        ]
    title = "An overload is queued; no limit was reached"
    summary = "All were answered in time here. A larger burst waits longer; a limit refuses it."
    return plain(ID, Verdict.INFORMATIVE, title, *items(lines, trial), waited, summary=summary)


def _item(seen: OverloadSeen, trial_id: str) -> EvidenceItem:
    peak = "" if seen.waiting_peak is None else f"; at most {seen.waiting_peak:,} waited at a time"
    slowest = (
        f", the slowest after {units.seconds(seen.slowest_s)}" if seen.slowest_s is not None else ""
    )
    return EvidenceItem(
        text=f"Of {seen.sent:,} requests at once {seen.answered:,} were answered{slowest}, "
        f"{seen.refused:,} refused with 429 or 503, {seen.failed:,} failed{peak}",
        value=seen.slowest_s,
        unit="s",
        n=seen.sent,
        trial_id=trial_id,
    )


RULE = Rule(
    id=ID,
    code="f008",
    group="stability",
    title="An overload is refused and survived",
    failing_title="Refuse what is too much",
    why="Without a limit a burst becomes a queue in which every request waits beyond its client's "
    "patience, and retries keep it full. Throughput looks fine while nobody is served.",
    how_measured="Twice as many requests as run at once, sent together: answers, refusals, "
    "failures, the queue in /metrics, and short requests before and after.",
    threshold="Fails when a request ends otherwise than answered or refused, when short requests "
    "do not get as quick as before within 10 s, or when none is refused and the last waits more "
    f"than {OVERLOAD_MAX_WAIT.value:g} s.",
    source=OVERLOAD_MAX_WAIT.source,
    when_not="Batch work whose clients wait as long as it takes.",
    needs=NEEDS,
    knobs=(),
    check=check,
)
