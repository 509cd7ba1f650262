"""A trial whose numbers must not be used, or only with care: why, and what to do about it."""

from __future__ import annotations

from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from gpuagent.wire.measure import ValidityCheck

ID = "measurement-invalid"

# What to do about each line of the agent's checklist (`gpuagent.validity`).
REMEDIES: dict[str, str] = {
    "times_positive": "Check the host's clock, then run it again.",
    "repeats_cov": "Stop what disturbs the device, or add repeats, then run it again.",
    "warmup": "Run it again on an idle device; times had not settled.",
    "token_order": "Check the host's clock, then run it again.",
    "requests_completed": "Read the log for the requests that failed; where time ran out, raise "
    "the budget or send fewer.",
    "sample_count": "Send more requests: 36 for a p90, 72 for a p95, 368 for a p99.",
    "steady_state": "Run it again on an idle device; where it drifts again, send more requests.",
    "send_lag": "Lower the rate, or free the processor for the client.",
    "rate_sustained": "Lower the rate: the queue grows without end at this one.",
    "other_cpu_load": "Stop other work on the host, then run it again.",
    "cpu_steal": "Use a host that is not shared, then run it again.",
    "foreign_gpu_processes": "Stop other work on the GPU, then run it again.",
    "gpu_throttled": "Cool the GPU or fix its clocks, then run it again.",
    "gpu_power_capped": "Raise the power limit, or keep it and compare under this limit only.",
    "sm_clock_cov": "Fix the GPU's clocks, then run it again.",
    "simulated": "Measure on a device before acting: the simulator shows directions, not times.",
    "imported": "Send the same load from an agent before acting on it: a study watches the client.",
    "provenance": "Update the agent, so that results say what they were measured with.",
}
FALLBACK = "Remove the cause, then run the trial again."


def check(evidence: StudyEvidence) -> list[Finding]:
    measured = [trial for trial in evidence.trials if trial.result is not None]
    if not measured:
        return [
            Finding(
                rule_id=ID,
                verdict=Verdict.NOT_APPLICABLE,
                title="Nothing has been measured yet",
                missing="A finished trial",
            )
        ]
    findings = [f for trial in measured if (f := _finding(evidence, trial)) is not None]
    if evidence.spec.engine == "simulated":
        # Each trial warns of the same; once is enough.
        findings = [f for f in findings if f.verdict is Verdict.FAIL] + [
            f for f in findings if f.verdict is not Verdict.FAIL
        ][:1]
    if findings:
        return findings
    count = len(measured)
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.PASS,
            title="All measurements are valid"
            if count > 1
            else f"The measurement of trial {measured[0].ordinal} is valid",
            evidence=(
                EvidenceItem(
                    text=f"{count} {'trials' if count > 1 else 'trial'} passed every line of the "
                    "measurement checklist",
                    n=count,
                ),
            ),
        )
    ]


def _finding(evidence: StudyEvidence, trial: TrialEvidence) -> Finding | None:
    if trial.result is None:
        return None
    validity = trial.result.validity
    if validity.verdict == "valid":
        return None
    lines = [c for c in validity.checks if c.verdict in ("invalid", "warn")]
    lines.sort(key=lambda c: c.verdict != "invalid")
    items = tuple(_item(trial, line) for line in lines)
    name = f"trial {trial.ordinal} ({trial.title})"
    again = evidence.repeat_of(trial)
    if validity.verdict == "invalid" and again is not None:
        return Finding(
            rule_id=ID,
            verdict=Verdict.INFORMATIVE,
            title=f"{name[:1].upper()}{name[1:]} was invalid and is measured again as trial "
            f"{again.ordinal}: {_lower(lines[0].message)}",
            evidence=items,
        )
    if validity.verdict == "invalid":
        return Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Measure {name} again: {_lower(lines[0].message)}",
            summary="Its numbers are kept but neither advice nor a verdict rests on them.",
            evidence=items,
            change=Change(text=remedy(lines[0].id)),
            confidence="high",
            confidence_reason="the checklist is applied before any number is shown",
        )
    return Finding(
        rule_id=ID,
        verdict=Verdict.INFORMATIVE,
        title=f"Read {name} with care: {_lower(lines[0].message)}",
        evidence=items,
        change=Change(text=remedy(lines[0].id)),
    )


def remedy(check_id: str) -> str:
    """What to do about a line of the checklist."""
    return REMEDIES.get(check_id, FALLBACK)


def _item(trial: TrialEvidence, line: ValidityCheck) -> EvidenceItem:
    word = "invalid" if line.verdict == "invalid" else "warning"
    limit = f" (limit {line.limit:g})" if line.limit is not None else ""
    return EvidenceItem(
        text=f"{word}: {_lower(line.message)}{limit}",
        value=line.value,
        trial_id=trial.trial_id,
    )


def _lower(message: str) -> str:
    """Sentence start to mid-sentence, unless the first word is an abbreviation (GPU, CPU)."""
    head = message.split(" ", 1)[0]
    return message if head[1:2].isupper() else message[:1].lower() + message[1:]


RULE = Rule(
    id=ID,
    code="v001",
    group="measurement",
    title="Every measurement is valid",
    failing_title="Measure again",
    why="A number from a throttled, shared or unsettled device leads to wrong settings. Each trial "
    "gets its verdict before any of its numbers is used.",
    how_measured="A checklist of window, repeats, steady state, clocks, temperature, foreign "
    "processes, errors and token counts, judged by the agent that measured.",
    threshold="Fails when any line is invalid; a warning is told but does not withdraw numbers.",
    source="measurement checklist, 20 rows",
    when_not="Never: an invalid number may be looked at but not acted on.",
    needs=("a finished trial",),
    knobs=(),
    check=check,
    sees_invalid=True,
)
