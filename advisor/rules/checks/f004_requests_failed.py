"""Some requests ended in an error."""

from __future__ import annotations

from dataclasses import dataclass

from advisor import units
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import current_baseline, not_applicable, plain
from advisor.targets import trial_metrics
from gpuagent.wire.trial import BaselineResult, ImportedResult

ID = "requests-failed"
_OTHER_FILE = "A result that counts them: newer versions of the tool do"


def check(evidence: StudyEvidence) -> list[Finding]:
    found = current_baseline(evidence)
    counts = _counts(*found) if found is not None else None
    if found is None or counts is None or counts.sent == 0:
        missing = "A valid baseline with requests"
        return not_applicable(ID, "No requests were sent", missing)
    if counts.failed is None:
        return not_applicable(ID, "The file does not count failed requests", _OTHER_FILE)
    trial_id = found[0].trial_id
    sent, failed = counts.sent, counts.failed
    if failed == 0:
        # None of n failed: the exact 95 % upper bound of the share.
        bound = 1 - 0.05 ** (1 / sent)
        item = EvidenceItem(
            text=f"0 of {sent:,} requests failed: at most {units.percent(bound)} with "
            f"95{units.NBSP}% confidence",
            value=0.0,
            high=bound,
            unit="share",
            n=sent,
            trial_id=trial_id,
        )
        return plain(ID, Verdict.PASS, "Every request was answered", item)
    share = failed / sent
    item = EvidenceItem(
        text=f"{failed:,} of {sent:,} requests failed ({units.percent(share)}): "
        f"{'; '.join(counts.errors[:3])}",
        value=share,
        unit="share",
        n=sent,
        trial_id=trial_id,
    )
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Find why {failed:,} of {sent:,} requests failed",
            summary="Failed requests count as beyond every latency limit, and they make the "
            "others faster.",
            evidence=(item,),
            change=Change(
                text="Read the engine's log at the time of the errors; limit what it accepts at "
                "once and let clients try again later (429 with Retry-After)."
            ),
            confidence="high",
            confidence_reason="counted",
        )
    ]


@dataclass(frozen=True, slots=True)
class _Counts:
    """failed: None where nobody counted. errors: distinct messages, first those most frequent."""

    sent: int
    failed: int | None
    errors: tuple[str, ...]


def _counts(trial: TrialEvidence, result: BaselineResult) -> _Counts | None:
    """Of single requests, else what the file of another tool counts."""
    metrics = trial_metrics(trial)
    if metrics is not None and metrics.sent > 0:
        return _Counts(metrics.sent, metrics.failed, tuple(metrics.errors))
    if isinstance(result, ImportedResult):
        return _Counts(result.sent, result.failed, ("the file does not say why",))
    return None


RULE = Rule(
    id=ID,
    code="f004",
    group="stability",
    title="Every request is answered",
    failing_title="Find why requests failed",
    why="A server that refuses or drops requests under load looks fast to those it serves.",
    how_measured="Requests of the current settings that ended in an error or without a token.",
    threshold="Fails from one failed request on; above 1 % the measurement itself is invalid.",
    source="MLPerf Inference: at most 1 % of a run",
    when_not="Requests that the test itself made invalid on purpose.",
    needs=("a valid baseline with requests",),
    knobs=(),
    check=check,
)
