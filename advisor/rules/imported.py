"""What a rule that does not apply asks for, in a study read from another tool's file. Pure.

Such a study cannot be given another trial, so "choose it when submitting the study" helps nobody.
"""

from __future__ import annotations

from advisor.evidence import StudyEvidence
from advisor.rules.rule import Finding, Verdict
from gpuagent.wire.imported import ImportedConfig
from gpuagent.wire.trial import ImportedResult

OF_REQUESTS = frozenset({"workload-cut-short", "prefill-dominant", "decode-stalls"})
"""Rules that could speak on a file with single requests, and on no file of sums."""
_AGENT = "Measure it with an agent."


def what_to_run(finding: Finding, evidence: StudyEvidence) -> Finding:
    """The finding as it is read in an imported study; others are returned as they are."""
    if evidence.spec.engine != "imported" or finding.verdict is not Verdict.NOT_APPLICABLE:
        return finding
    if finding.rule_id in OF_REQUESTS and _only_sums(evidence):
        title = "The file holds no single requests, only percentiles"
        return finding.model_copy(update={"title": title, "missing": _records(evidence)})
    return finding.model_copy(update={"missing": f"{_AGENT} {finding.missing}".strip()})


def _only_sums(evidence: StudyEvidence) -> bool:
    result = evidence.current.measured(ImportedResult) if evidence.current is not None else None
    return result is not None and not result.requests


def _records(evidence: StudyEvidence) -> str:
    config = evidence.current.spec.config if evidence.current is not None else None
    if isinstance(config, ImportedConfig) and config.tool == "vllm bench serve":
        return "Single requests: run the tool again with --save-detailed"
    return "Single requests: run vllm bench serve with --save-detailed, or measure with an agent"
