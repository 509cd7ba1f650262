"""A trial whose numbers must not be used, or only with care: why, and what to do about it."""

from __future__ import annotations

from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from gpuagent.wire.measure import ValidityCheck

ID = "measurement-invalid"

# What to do, by a word of the check's id; the first that fits.
REMEDIES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("foreign", "exclusive", "process"), "Stop other work on the device, then run it again."),
    (
        ("load", "cpu_busy", "contention", "steal"),
        "Stop other work on the host, then run it again.",
    ),
    (
        ("throttl", "clock", "thermal", "temperature", "power"),
        "Let the device cool, raise its power limit or fix its clocks, then run it again.",
    ),
    (("error", "failed"), "Read the log for the requests that failed, then run it again."),
    (("steady", "drift", "warm"), "Lengthen the warm-up or the window, then run it again."),
    (
        ("client", "lag", "saturat", "send"),
        "Lower the rate or move the client to a machine of its own, then run it again.",
    ),
    (("cov", "noise", "spread", "repeat"), "Add repeats, or stop what disturbs the device."),
    (("window", "duration", "short"), "Raise the number of requests or the budget."),
    (("cache", "prefix", "seed"), "Use fresh prompts and reset the cache between trials."),
    (("token", "length", "output"), "Check that the model does not stop early; fix the lengths."),
    (("gap", "suspend", "lease"), "Keep the host awake and its network up, then run it again."),
    (("ecc", "xid", "pcie", "health"), "Take the device out of service and have it checked."),
)
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
    findings = [f for trial in measured if (f := _finding(trial)) is not None]
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


def _finding(trial: TrialEvidence) -> Finding | None:
    if trial.result is None:
        return None
    validity = trial.result.validity
    if validity.verdict == "valid":
        return None
    lines = [c for c in validity.checks if c.verdict in ("invalid", "warn")]
    lines.sort(key=lambda c: c.verdict != "invalid")
    items = tuple(_item(trial, line) for line in lines)
    name = f"trial {trial.ordinal} ({trial.title})"
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
    lowered = check_id.lower()
    return next(
        (text for words, text in REMEDIES if any(word in lowered for word in words)), FALLBACK
    )


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
