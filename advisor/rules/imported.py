"""What to run to make a rule speak that says nothing on an imported study. Pure."""

from __future__ import annotations

from advisor.evidence import StudyEvidence
from advisor.reported import how_to_prove
from advisor.rules.rule import Finding, Verdict

OF_REQUESTS = frozenset({"workload-cut-short", "prefill-dominant", "decode-stalls"})
"""Rules that could speak on a file with single requests, and on no file of sums."""

FROM_A_FILE = OF_REQUESTS | {
    "client-bound",
    "requests-failed",
    "target-missed",
    "warm-up-in-window",
}
"""Rules that another file or its targets could make speak; all others need an agent."""


def what_to_run(finding: Finding, evidence: StudyEvidence) -> Finding:
    """The finding as it is read in an imported study; those of others are returned as they are."""
    if evidence.spec.engine != "imported" or finding.verdict is not Verdict.NOT_APPLICABLE:
        return finding
    if finding.rule_id in OF_REQUESTS:
        missing = how_to_prove(evidence)
        if not missing:
            return finding
        title = "The file holds no single requests, only percentiles"
        return finding.model_copy(update={"title": title, "missing": missing})
    missing = finding.missing or ""
    if finding.rule_id in FROM_A_FILE or not missing or "an agent measures" in missing:
        return finding
    told = f"{missing}; only a study that an agent measures can have it"
    return finding.model_copy(update={"missing": told})
