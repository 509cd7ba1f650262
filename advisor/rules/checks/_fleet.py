"""What the rules on a fleet share: measured start and highest rate, price of the GPU. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.boundaries import OTHER_TARGETS, boundary_for, other_targets
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.rules.support import current_baseline
from advisor.targets import trial_metrics
from gpuagent.wire.serving import RateBoundary
from gpuagent.wire.trial import ServeResult


@dataclass(frozen=True, slots=True)
class Served:
    """The current settings on a server. start_s: to the first token, None with `start_reason`.

    boundary: the highest rate that keeps the targets, None where none was looked for, or under
    other targets.
    no_rate: why there is no such rate although it was looked for.
    """

    trial: TrialEvidence
    start_s: float | None
    start_reason: str | None
    boundary: RateBoundary | None
    no_rate: str | None

    @property
    def capacity_req_s(self) -> float | None:
        return self.boundary.rate_per_s if self.boundary is not None else None

    @property
    def request_s(self) -> float:
        """Mean time from sending to the last token, 0 where no request succeeded."""
        metrics = trial_metrics(self.trial)
        return float(metrics.e2e_s.mean()) if metrics is not None and metrics.succeeded else 0.0


def served(evidence: StudyEvidence) -> Served | None:
    """A valid measurement of the current settings on a server, or None."""
    found = current_baseline(evidence)
    if found is None or not isinstance(found[1], ServeResult):
        return None
    result, ready = found[1], found[1].served.ready_s
    boundary = boundary_for(found[0], evidence.spec)
    why = boundary.reason if boundary is not None else result.boundary_reason
    if other_targets(found[0], evidence.spec):
        why = OTHER_TARGETS
    return Served(found[0], ready.value, ready.reason, boundary, why)
