"""The health check does not answer, answers for a server that is broken, or fails under load."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.rules.checks._robustness import NEEDS, find, items, not_tested
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import plain
from advisor.thresholds import HEALTH_BAD_MAX
from gpuagent.wire.robustness import OverloadSeen

ID = "health-check-lies"


def check(evidence: StudyEvidence) -> list[Finding]:
    found = find(evidence)
    if found is None:
        return not_tested(ID, evidence)
    trial, result = found
    report, seen = result.report, result.report.overload
    health, plain_one, end = map(report.check, ("health", "plain_request", "still_serving"))
    if health is None:
        return plain(ID, Verdict.CANNOT_TELL, "The health check was not asked")
    evidence_items = items((health,), trial)
    if health.verdict == "fail":
        return [
            _failing(
                "Give the server a health check that answers",
                "Without one a broken server stays in rotation, or a working one is restarted.",
                evidence_items,
                "Probe a path that answers 200 only while the engine works, for vLLM and SGLang "
                "/health; where there is none, send a completion of one token.",
            )
        ]
    broken = [c for c in (plain_one, end) if c is not None and c.verdict == "fail"]
    said = report.health_at_end if end in broken else 200
    if broken and said == 200:
        return [
            _failing(
                "Probe the engine itself: the health check answers 200 for a server that does not",
                "Whoever trusts the check sends requests to a server that cannot serve them.",
                (*evidence_items, *items(broken, trial)),
                "Use a completion of one token as the probe (SGLang: /health_generate).",
            )
        ]
    if seen is None or not seen.health_asked:
        return plain(ID, Verdict.PASS, "The health check answers", *evidence_items)
    under = _under_load(seen, trial.trial_id)
    if seen.health_bad > HEALTH_BAD_MAX.value:
        return [
            _failing(
                f"Give the health check more time: {seen.health_bad:,} of {seen.health_asked:,} "
                "failed under load",
                "A server that is merely busy is restarted, and all of its requests are lost.",
                (*evidence_items, under),
                "Raise timeoutSeconds and failureThreshold of the liveness probe, or let only "
                "readiness depend on it.",
            )
        ]
    if seen.health_bad:
        title = "The health check is late at times under load"
        return plain(ID, Verdict.INFORMATIVE, title, *evidence_items, under)
    return plain(ID, Verdict.PASS, "The health check answers, also under load",
                 *evidence_items, under)  # fmt: skip


def _under_load(seen: OverloadSeen, trial_id: str) -> EvidenceItem:
    slowest = (
        f"; the slowest answer took {units.seconds(seen.health_slowest_s)}"
        if seen.health_slowest_s is not None
        else ""
    )
    return EvidenceItem(
        text=f"During the overload {seen.health_bad:,} of {seen.health_asked:,} health checks were "
        f"not answered 200 within a second{slowest}",
        value=seen.health_bad,
        n=seen.health_asked,
        trial_id=trial_id,
    )


def _failing(
    title: str, summary: str, evidence_items: tuple[EvidenceItem, ...], change: str
) -> Finding:
    return Finding(
        rule_id=ID,
        verdict=Verdict.FAIL,
        title=title,
        summary=summary,
        evidence=evidence_items,
        change=Change(text=change),
        confidence="high",
        confidence_reason="the check was asked itself",
    )


RULE = Rule(
    id=ID,
    code="f006",
    group="stability",
    title="The health check tells the truth",
    failing_title="Repair the health check",
    why="Load balancers and Kubernetes act on it: a lie sends users to a broken server, a late "
    "answer restarts a busy one.",
    how_measured="/health before, during and after a robustness test, against real completions.",
    threshold="Fails when it does not answer 200, answers 200 while completions fail, or when more "
    f"than {HEALTH_BAD_MAX.value:g} checks of an overload are not answered within a second.",
    source="vLLM issue 39863 and llama.cpp issue 13281: /health 200 is no proof of an answer; "
    f"{HEALTH_BAD_MAX.source}",
    when_not="Where nothing acts on the check, such as a server of one person.",
    needs=NEEDS,
    knobs=(),
    check=check,
)
