"""Evidence: the typed, measured facts of one study, and the only input of rules, charts, reports.

Built from rows by `advisor.studies.evidence`; knows neither Django nor the database. Raw samples
stay inside the wire results, so that every number shown is computed once, by `gpuagent.stats`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeVar

from advisor.shapes import ModelShape
from gpuagent.wire import EngineSettings, Failure, StudySpec, TrialResult, TrialSpec
from gpuagent.wire.ceilings import Ceilings
from gpuagent.wire.inside import (
    AttentionResult,
    BatchingResult,
    CalibrateResult,
    KernelsResult,
    QuantisationResult,
)
from gpuagent.wire.parallel import TensorParallelResult
from gpuagent.wire.robustness import RobustnessResult
from gpuagent.wire.trial import (
    BaselineResult,
    ImportedResult,
    KvCacheResult,
    ProfileResult,
    ServeResult,
    VerifyResult,
)

Basis = Literal["measured", "calibrated", "predicted", "exact", "simulated", "imported"]
Role = Literal["current", "variant", "diagnosis", "verification"]
TrialState = Literal[
    "queued", "leased", "running", "succeeded", "failed", "cancelled", "lost", "quarantined"
]

Measurement = TypeVar(
    "Measurement",
    BaselineResult,
    KvCacheResult,
    ProfileResult,
    VerifyResult,
    CalibrateResult,
    KernelsResult,
    AttentionResult,
    QuantisationResult,
    BatchingResult,
    TensorParallelResult,
    ServeResult,
    RobustnessResult,
    ImportedResult,
)


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """The hardware of the study's agent. `kind` is "cpu" where it has no usable GPU.

    ceilings: what its last calibration measured; ceilings_before: the one before that.
    experiments: what the agent can run; None where that is not known.
    """

    agent: str
    kind: Literal["cpu", "gpu"]
    name: str
    count: int
    memory_bytes: int | None
    ceilings: Ceilings | None = None
    ceilings_before: Ceilings | None = None
    experiments: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class TrialEvidence:
    """One trial as the rules see it: what was asked, how it ended, what was measured."""

    trial_id: str
    ordinal: int
    role: Role
    title: str
    reason: str
    spec: TrialSpec
    state: TrialState
    result: TrialResult | None
    failure: Failure | None
    attempts: int
    started_at: datetime | None
    finished_at: datetime | None
    memo: dict[object, Any] = field(
        init=False, default_factory=dict, compare=False, repr=False, hash=False
    )
    """What was computed from this trial and is asked for by several charts, rules and tables."""

    @property
    def settings(self) -> EngineSettings:
        return self.spec.settings

    def measured(self, kind: type[Measurement]) -> Measurement | None:
        """The measurements, where the trial succeeded with this kind of experiment."""
        if self.result is None or not isinstance(self.result.measurements, kind):
            return None
        return self.result.measurements

    def measures_as(self, other: TrialEvidence) -> bool:
        """Whether both ask for the same measurement of the same settings."""
        return (self.role, self.settings, self.spec.config) == (
            other.role,
            other.settings,
            other.spec.config,
        )

    @property
    def usable(self) -> bool:
        """Whether advice may rest on it: finished, and the measurement is not invalid."""
        return self.result is not None and self.result.validity.verdict != "invalid"


@dataclass(frozen=True, slots=True)
class StudyEvidence:
    """Everything known about one study at one moment.

    shape is None where the config could not be read yet (a hub model before its first trial).
    finished: no further trial will come. prices: the organisation's own, USD per GPU and hour.
    """

    study_id: str
    number: int
    name: str
    spec: StudySpec
    shape: ModelShape | None
    device: DeviceFacts | None
    trials: tuple[TrialEvidence, ...]
    finished: bool
    cancelled: bool
    prices: Mapping[str, float] = field(default_factory=dict)

    @property
    def current(self) -> TrialEvidence | None:
        """The trial of the settings in use today: of several, the latest that may be used."""
        found = [t for t in self.trials if t.role == "current"]
        usable = [t for t in found if t.usable]
        return next(reversed(usable or found), None)

    def repeat_of(self, trial: TrialEvidence) -> TrialEvidence | None:
        """The later trial that measures the same once more, or None."""
        return next(
            (t for t in self.trials if t.ordinal > trial.ordinal and t.measures_as(trial)), None
        )

    def succeeded(self, kind: type[Measurement]) -> tuple[TrialEvidence, ...]:
        """Finished trials with this kind of measurement, in order, valid or not."""
        return tuple(t for t in self.trials if t.measured(kind) is not None)
