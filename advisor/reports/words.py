"""Status words with their shape: one vocabulary for pages, reports and the command line.

Each entry is (kind, word); the kinds are those of the style sheet: good, warn, bad, run, wait,
info, na.
"""

from __future__ import annotations

from advisor.rules.rule import Verdict
from advisor.targets import TargetVerdict
from advisor.verdict import VerdictStatus, Verification

Word = tuple[str, str]

VERDICTS: dict[VerdictStatus, Word] = {
    "met": ("good", "SLA met"),
    "missed": ("bad", "Target missed"),
    "not_proven": ("warn", "Not proven"),
    "no_verdict": ("wait", "No verdict"),
    "no_targets": ("info", "No targets"),
}

TARGETS: dict[TargetVerdict, Word] = {
    "met": ("good", "Met"),
    "missed": ("bad", "Missed"),
    "not_proven": ("warn", "Not proven"),
    "not_measured": ("na", "Not measured"),
}

FINDINGS: dict[Verdict, Word] = {
    Verdict.FAIL: ("bad", "Failing"),
    Verdict.CANNOT_TELL: ("warn", "Cannot tell"),
    Verdict.INFORMATIVE: ("info", "For information"),
    Verdict.PASS: ("good", "Passing"),
    Verdict.NOT_APPLICABLE: ("na", "Not applicable"),
    Verdict.ERROR: ("bad", "Rule failed"),
}

TRIALS: dict[str, Word] = {
    "queued": ("wait", "Queued"),
    "leased": ("run", "Starting"),
    "running": ("run", "Running"),
    "succeeded": ("good", "Finished"),
    "failed": ("bad", "Failed"),
    "cancelled": ("na", "Cancelled"),
    "lost": ("warn", "Lost"),
    "quarantined": ("bad", "Quarantined"),
}

VERIFICATIONS: dict[Verification, Word] = {
    "verified": ("good", "Verified by A/B"),
    "not_proven": ("warn", "A/B proved no difference"),
    "contradicted": ("bad", "Contradicted by A/B"),
    "measured_once": ("info", "Measured once"),
    "none": ("na", "Nothing to verify"),
}

VALIDITIES: dict[str, Word] = {
    "valid": ("good", "Valid"),
    "warn": ("warn", "Valid with warnings"),
    "invalid": ("bad", "Invalid"),
}
