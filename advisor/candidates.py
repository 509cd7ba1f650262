"""Which measured configuration answers the study best, and whether it may be recommended. Pure.

Order: most targets met, fewest missed, then the smallest worst distance to a limit; without targets
the shortest answers. A configuration replaces the current one only when it wins by more than the
noise between two trials, keeps its quality, and no A/B trial said otherwise. Where the study asks
for the highest rate, that rate decides, whatever the targets say about the workload's own: per GPU,
since further GPUs would take further requests as copies, too. Nor does a configuration on more GPUs
replace one that meets every target.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from advisor.boundaries import boundary_for
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.measures import (
    answer_ratio,
    baselines,
    decode_ratio,
    distances,
    perplexity_increase,
)
from advisor.targets import TargetStatus, target_statuses
from advisor.thresholds import MAX_PERPLEXITY_INCREASE, UNVERIFIED_NOISE
from advisor.verification import verification_of
from gpuagent.wire import EngineSettings


@dataclass(frozen=True, slots=True)
class Candidate:
    """A baseline trial with its standing. excluded: why it may not be recommended, or None.

    boundary_per_s: highest rate within the targets, where the study asks for it and it was found
    under these targets.
    """

    trial: TrialEvidence
    statuses: tuple[TargetStatus, ...]
    worst_distance: float
    excluded: str | None
    boundary_per_s: float | None = None

    @property
    def met(self) -> int:
        return sum(s.verdict == "met" for s in self.statuses)

    @property
    def missed(self) -> int:
        return sum(s.verdict == "missed" for s in self.statuses)


def candidates(evidence: StudyEvidence) -> tuple[Candidate, ...]:
    """Every usable baseline, the current settings first."""
    trials = baselines(evidence)
    current = trials[0] if trials and trials[0].role == "current" else None
    return tuple(_candidate(evidence, current, trial) for trial in trials)


def best_of(found: tuple[Candidate, ...]) -> Candidate | None:
    """The best candidate that may be recommended; the current one unless another clearly wins."""
    current = next((c for c in found if c.trial.role == "current"), None)
    others = [c for c in found if c.trial.role != "current" and c.excluded is None]
    best = current
    for other in others:
        if best is None or _beats(other, best):
            best = other
    return best


def best_candidate(evidence: StudyEvidence) -> Candidate | None:
    return best_of(candidates(evidence))


def recommended_settings(evidence: StudyEvidence, best: Candidate | None) -> EngineSettings | None:
    """The best other settings; none where the current ones were measured, but not validly."""
    current = evidence.current
    if best is None or best.trial.role == "current":
        return None
    if current is not None and current.result is not None and not current.usable:
        return None
    return best.trial.settings


def _candidate(
    evidence: StudyEvidence, current: TrialEvidence | None, trial: TrialEvidence
) -> Candidate:
    known = [d for d in distances(evidence, trial) if not math.isnan(d)]
    return Candidate(
        trial=trial,
        statuses=target_statuses(trial, evidence.spec),
        worst_distance=max(known, default=math.inf),
        excluded=_excluded(evidence, current, trial),
        boundary_per_s=_boundary(evidence, trial),
    )


def _boundary(evidence: StudyEvidence, trial: TrialEvidence) -> float | None:
    found = boundary_for(trial, evidence.spec) if evidence.spec.boundary else None
    return found.rate_per_s if found is not None else None


def _excluded(
    evidence: StudyEvidence, current: TrialEvidence | None, trial: TrialEvidence
) -> str | None:
    if current is None or trial is current:
        return None
    rise = perplexity_increase(current, trial)
    if rise is not None and rise > MAX_PERPLEXITY_INCREASE.value:
        return "perplexity rises beyond the allowed share"
    outcome = verification_of(evidence, trial.settings)
    if outcome is not None and outcome.status != "verified":
        return outcome.sentence
    return None


def _beats(other: Candidate, best: Candidate) -> bool:
    gpus, other_gpus = best.trial.settings.gpus, other.trial.settings.gpus
    if other.boundary_per_s is not None and best.boundary_per_s is not None:
        per_gpu, other_per_gpu = best.boundary_per_s / gpus, other.boundary_per_s / other_gpus
        return other_per_gpu > per_gpu * (1 + UNVERIFIED_NOISE.value)
    if best.statuses and best.met == len(best.statuses) and other_gpus > gpus:
        return False
    if (other.met, -other.missed) != (best.met, -best.missed):
        return (other.met, -other.missed) > (best.met, -best.missed)
    noise = UNVERIFIED_NOISE.value
    ratio = answer_ratio(best.trial, other.trial) or decode_ratio(best.trial, other.trial)
    if math.isinf(best.worst_distance) or math.isinf(other.worst_distance):
        return ratio is not None and ratio.below(noise)
    # (1 + distance) is value / limit: a relative difference, whatever the limit.
    closer = (1 + other.worst_distance) < (1 + best.worst_distance) * (1 - noise)
    slower = ratio is not None and ratio.above(noise)
    return closer and not (slower and best.missed == 0)
