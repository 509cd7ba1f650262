"""A trial before it exists: what the planner hands to the services. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.evidence import Role
from gpuagent.wire import EngineSettings
from gpuagent.wire.trial import ExperimentConfig


@dataclass(frozen=True, slots=True)
class PlannedTrial:
    """A trial to come. `estimate_s` is rough; `reason` is what the user reads."""

    role: Role
    title: str
    reason: str
    settings: EngineSettings
    config: ExperimentConfig
    estimate_s: float
