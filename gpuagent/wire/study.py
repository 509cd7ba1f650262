"""What a person or a CI job submits."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from gpuagent.wire.base import WireModel
from gpuagent.wire.model import ModelRef, SimulatedModel
from gpuagent.wire.settings import EngineSettings
from gpuagent.wire.sla import SlaTarget
from gpuagent.wire.units import PositiveSeconds, TypedName
from gpuagent.wire.workload import Workload

Engine = Literal["transformers", "simulated"]
Goal = Literal["optimise", "diagnose"]


class StudySpec(WireModel):
    """Model + workload + targets + hardware + budget.

    agent: slug of the agent that runs the trials; None gives the prediction only.
    current: the settings in use today, the baseline of every comparison.
    goal: `optimise` looks for a better configuration; `diagnose` measures the model and the device
    apart (ceilings, kernels, attention, formats, batching) beside today's settings.
    profile: also record a few steps of the current settings under a profiler.
    """

    name: TypedName
    model: ModelRef
    workload: Workload
    targets: Annotated[tuple[SlaTarget, ...], Field(max_length=12)] = ()
    agent: Annotated[str, Field(max_length=64)] | None = None
    engine: Engine = "transformers"
    current: EngineSettings = EngineSettings()
    profile: bool = False
    goal: Goal = "optimise"
    budget_s: Annotated[PositiveSeconds, Field(le=7 * 86400)] = 3600

    @model_validator(mode="after")
    def _engine_fits(self) -> Self:
        """The simulator knows its own models and the scheduler's knobs; nothing else does."""
        if (self.engine == "simulated") != isinstance(self.model, SimulatedModel):
            raise ValueError("a model of kind simulated and the engine simulated go together")
        set_knobs = self.current.serving_knobs
        if self.engine == "transformers" and set_knobs:
            raise ValueError(f"the engine transformers has no setting {', '.join(set_knobs)}")
        if self.engine == "simulated" and (self.goal == "diagnose" or self.profile):
            raise ValueError("a simulated engine has nothing inside to diagnose or to profile")
        return self

    @model_validator(mode="after")
    def _targets_distinct(self) -> Self:
        keys = [target.key for target in self.targets]
        doubled = sorted({key for key in keys if keys.count(key) > 1})
        if doubled:
            raise ValueError(f"two targets for {', '.join(doubled)}: keep one of them")
        return self
