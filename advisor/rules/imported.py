"""Rules that need single requests, in a study read from a file of sums: what to run. Pure."""

from __future__ import annotations

from advisor.evidence import StudyEvidence
from advisor.reported import how_to_prove
from advisor.rules.rule import Finding, Verdict

OF_REQUESTS = frozenset({"workload-cut-short", "prefill-dominant", "decode-stalls"})
"""Rules that could speak on a file with single requests, and on no file of sums."""


def what_to_run(finding: Finding, evidence: StudyEvidence) -> Finding:
    """The finding as it is read in an imported study; others are returned as they are."""
    if finding.rule_id not in OF_REQUESTS or finding.verdict is not Verdict.NOT_APPLICABLE:
        return finding
    missing = how_to_prove(evidence)
    if not missing:
        return finding
    title = "The file holds no single requests, only percentiles"
    return finding.model_copy(update={"title": title, "missing": missing})
