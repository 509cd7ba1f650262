"""The robustness test of a study as a table: pages and reports print the same lines. Pure."""

from __future__ import annotations

from collections import Counter

from pydantic import BaseModel, ConfigDict

from advisor import units
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.reports.words import Word
from gpuagent.wire.robustness import RobustnessReport, RobustnessResult, RobustnessVerdict

NAMES = {
    "health": "Health check",
    "plain_request": "Plain request",
    "client_timeout": "Client that gives up",
    "cancelled_streams": "Cancelled streams",
    "long_prompt": "Prompt beyond the context",
    "max_tokens": "Far too many output tokens",
    "malformed_request": "Malformed requests",
    "overload": "Overload",
    "recovery": "Recovery",
    "kv_released": "KV memory free again",
    "still_serving": "Serves at the end",
}
WORDS: dict[RobustnessVerdict, Word] = {
    "pass": ("good", "Passed"),
    "fail": ("bad", "Failed"),
    "cannot_tell": ("warn", "Cannot tell"),
}


class RobustnessLine(BaseModel):
    """One misuse and how the server took it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    verdict: RobustnessVerdict
    sentence: str


class RobustnessPart(BaseModel):
    """A whole test. trial: its ordinal."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    trial: int
    trial_id: str
    title: str
    summary: str
    lines: tuple[RobustnessLine, ...]
    notes: tuple[str, ...]


def robustness_of(trial: TrialEvidence) -> RobustnessPart | None:
    """None for a trial of another experiment, or without a result."""
    found = trial.measured(RobustnessResult)
    if found is None:
        return None
    return RobustnessPart(
        trial=trial.ordinal,
        trial_id=trial.trial_id,
        title=trial.title,
        summary=summary(found.report),
        lines=tuple(
            RobustnessLine(
                name=NAMES.get(check.name, check.name.replace("_", " ").capitalize()),
                verdict=check.verdict,
                sentence=check.sentence,
            )
            for check in found.report.checks
        ),
        notes=_notes(found),
    )


def study_robustness(evidence: StudyEvidence) -> RobustnessPart | None:
    """The latest test that may be used."""
    usable = (robustness_of(trial) for trial in reversed(evidence.trials) if trial.usable)
    return next((part for part in usable if part is not None), None)


def summary(report: RobustnessReport) -> str:
    """ "9 checks passed, 1 failed, 1 cannot be told"."""
    counts = Counter(check.verdict for check in report.checks)
    parts = [f"{counts['pass']} of {len(report.checks)} checks passed"]
    if counts["fail"]:
        parts.append(f"{counts['fail']} failed")
    if counts["cannot_tell"]:
        parts.append(f"{counts['cannot_tell']} cannot be told")
    return ", ".join(parts)


def _notes(found: RobustnessResult) -> tuple[str, ...]:
    notes = []
    if found.died_after is not None:
        name = NAMES.get(found.died_after, found.died_after)
        notes.append(f"The server was gone after “{name}”: {found.died_why}.")
    seen = found.report.overload
    if seen is not None and seen.waiting_peak is not None:
        running = "" if seen.running_peak is None else f"{seen.running_peak:,} ran and "
        notes.append(
            f"At the peak of the overload {running}{seen.waiting_peak:,} of {seen.sent:,} waited."
        )
    if seen is not None and seen.health_asked:
        slowest = (
            f", the slowest after {units.seconds(seen.health_slowest_s)}"
            if seen.health_slowest_s is not None
            else ""
        )
        notes.append(
            f"Meanwhile {seen.health_asked - seen.health_bad:,} of {seen.health_asked:,} health "
            f"checks were answered within a second{slowest}."
        )
    before, after = found.memory_before_bytes, found.memory_after_bytes
    notes.append(
        f"Memory of the server: {units.memory(before.value)} before, "
        f"{units.memory(after.value)} after."
        if before.value is not None and after.value is not None
        else f"Memory of the server is not measured: {after.reason or before.reason}."
    )
    return tuple(notes)
