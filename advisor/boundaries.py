"""Whether a highest rate that a trial found holds for the targets of a study. Pure."""

from __future__ import annotations

from advisor.evidence import TrialEvidence
from gpuagent.wire import StudySpec
from gpuagent.wire.serving import RateBoundary, ServeConfig
from gpuagent.wire.trial import ServeResult

OTHER_TARGETS = "the one that was found is for other targets"


def boundary_for(trial: TrialEvidence, spec: StudySpec) -> RateBoundary | None:
    """The trial's boundary; None where it has none, or where it keeps other targets."""
    result = trial.measured(ServeResult)
    return result.boundary if result is not None and not other_targets(trial, spec) else None


def other_targets(trial: TrialEvidence, spec: StudySpec) -> bool:
    """Whether the trial found a highest rate, but under other latency targets than the study's."""
    config, result = trial.spec.config, trial.measured(ServeResult)
    if result is None or result.boundary is None or not isinstance(config, ServeConfig):
        return False
    kept = {t for t in config.targets if t.percentile is not None}
    return kept != {t for t in spec.targets if t.percentile is not None}
