"""From some batch size on a decode step is longer than the gap between tokens may be."""

from __future__ import annotations

from itertools import takewhile

import numpy as np

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import current_baseline, latest, not_applicable, plain
from advisor.targets import target_label
from gpuagent.wire import Samples
from gpuagent.wire.inside import BatchingResult

ID = "batch-breaks-latency"


def check(evidence: StudyEvidence) -> list[Finding]:
    target = next((t for t in evidence.spec.targets if t.metric == "itl_s"), None)
    points, trial_id = _points(evidence)
    if target is None or len(points) < 2:
        missing = "An ITL target, and decode steps at two batch sizes or more"
        return not_applicable(ID, "No batch size is limited by latency", missing)
    q = target.percentile
    steps = {
        batch: float(np.mean(s.values) if q is None else np.quantile(s.values, q))
        for batch, s in points.items()
    }
    # A larger batch that keeps the limit by luck proves nothing for those below it that do not.
    kept = [b for b, _ in takewhile(lambda row: row[1] <= target.limit, sorted(steps.items()))]
    items = tuple(
        EvidenceItem(
            text=f"Batch {batch}: a decode step takes {units.seconds(step_s)} "
            f"({target.statistic} of n = {points[batch].n})",
            value=step_s,
            unit="s",
            n=points[batch].n,
            trial_id=trial_id,
        )
        for batch, step_s in sorted(steps.items())
    )
    label = target_label(target)
    largest = max(steps)
    if largest in kept:
        title = f"Every batch measured, up to {largest}, keeps {label} in its decode steps"
        return plain(ID, Verdict.PASS, title, *items)
    if not kept:
        title = f"No batch size keeps {label}, not even {min(steps)}"
        return plain(ID, Verdict.INFORMATIVE, title, *items)
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.INFORMATIVE,
            title=f"Batches above {max(kept)} break {label}",
            summary="Steps alone are compared; prefill of other requests comes on top.",
            evidence=items,
            change=Change(text=f"Allow at most {max(kept)} sequences at once."),
            confidence="medium",
            confidence_reason="the largest batch that was measured below the limit",
        )
    ]


def _points(evidence: StudyEvidence) -> tuple[dict[int, Samples], str | None]:
    """Decode steps by batch: from a batching trial, else from the baseline's shortest prompt."""
    swept = latest(evidence, BatchingResult)
    if swept is not None:
        found = {p.batch: p.decode_step_s for p in swept[1].points if p.decode_step_s.n}
        return found, swept[0].trial_id
    baseline = current_baseline(evidence)
    if baseline is None or not baseline[1].cells:
        return {}, None
    shortest = min(cell.input_tokens for cell in baseline[1].cells)
    cells = [c for c in baseline[1].cells if c.input_tokens == shortest and c.decode_step_s.n]
    return {c.batch: c.decode_step_s for c in cells}, baseline[0].trial_id


RULE = Rule(
    id=ID,
    code="s006",
    group="scheduling",
    title="The batch keeps the gap between tokens",
    failing_title="Limit the batch to what latency allows",
    why="Throughput grows with the batch and so does every step. The ITL target says where to "
    "stop, and the limit on sequences is the setting that enforces it.",
    how_measured="The target's own statistic of decode steps at each batch size, prompt length "
    "fixed.",
    threshold="Told when a measured batch is beyond the limit; the largest one within is named.",
    source="the study's own ITL target",
    when_not="Without chunked prefill stalls of new prompts break the limit first.",
    needs=("an ITL target", "decode steps at two batch sizes"),
    knobs=(),
    check=check,
)
