"""What a person or a CI job submits."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from gpuagent.wire.base import WireModel
from gpuagent.wire.model import ConfigModel, ImportedModel, ModelRef, SimulatedModel
from gpuagent.wire.settings import (
    MANAGED_SERVERS,
    SERVER_KNOBS,
    SERVERS,
    SERVING_KNOBS,
    EngineSettings,
)
from gpuagent.wire.settings import Engine as Engine
from gpuagent.wire.sla import SlaTarget
from gpuagent.wire.units import PositiveSeconds, TypedName
from gpuagent.wire.workload import Workload

Goal = Literal["optimise", "diagnose"]
_REAL_SERVERS_ONLY = frozenset(SERVER_KNOBS) - frozenset(SERVING_KNOBS)


class StudySpec(WireModel):
    """Model + workload + targets + hardware + budget.

    agent: slug of the agent that runs the trials; None gives the prediction only.
    current: the settings in use today, the baseline of every comparison.
    goal: `optimise` looks for a better configuration; `diagnose` measures the model and the device
    apart (ceilings, kernels, attention, formats, batching) beside today's settings.
    profile: also record a few steps of the current settings under a profiler.
    endpoint: name of one of the agent's endpoints, for the engine `openai`.
    boundary: also find the highest rate that keeps the latency targets, for each configuration.
    robustness: also misuse the server on purpose, at the end. None: where the agent starts it; an
    endpoint is somebody else's and is tested only where that is asked for.
    day_req_s: request rate of each equal slice of 24 hours, for the number of replicas through a
    day; no trial is sent at these rates.
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
    endpoint: TypedName | None = None
    boundary: bool = False
    robustness: bool | None = None
    day_req_s: (
        Annotated[
            tuple[Annotated[float, Field(ge=0, le=100_000)], ...],
            Field(min_length=2, max_length=288),
        ]
        | None
    ) = None
    budget_s: Annotated[PositiveSeconds, Field(le=7 * 86400)] = 3600

    @model_validator(mode="after")
    def _engine_fits(self) -> Self:
        """The simulator knows its own models and the scheduler's knobs; nothing else does."""
        if (self.engine == "simulated") != isinstance(self.model, SimulatedModel):
            raise ValueError("a model of kind simulated and the engine simulated go together")
        if (self.engine == "imported") != isinstance(self.model, ImportedModel):
            raise ValueError("a model of kind imported and the engine imported go together")
        if self.engine != "transformers" and (self.goal == "diagnose" or self.profile):
            raise ValueError(
                f"the engine {self.engine} runs outside of the agent's process: there is nothing"
                " inside to diagnose or to profile; use transformers for that"
            )
        if self.engine in MANAGED_SERVERS and isinstance(self.model, ConfigModel):
            raise ValueError(
                f"the engine {self.engine} serves a folder or a hub model, not a bare config;"
                " transformers runs a config with random weights"
            )
        if (self.engine == "openai") != (self.endpoint is not None):
            raise ValueError("the engine openai and the name of an endpoint go together")
        return self

    @model_validator(mode="after")
    def _settings_fit(self) -> Self:
        allowed: dict[Engine, tuple[str, ...]] = {
            "transformers": ("dtype", "kv_cache", "attention", "threads"),
            "simulated": (*set(EngineSettings.model_fields) - _REAL_SERVERS_ONLY,),
            "vllm": ("dtype", "threads", *SERVER_KNOBS),
            "sglang": ("dtype", *SERVER_KNOBS),
            "transformers_serve": (
                *("dtype", "attention", "threads"),
                *("max_batched_tokens", "memory_share_frac", "cuda_graphs"),
            ),
            "openai": (),
            "imported": (),
        }
        plain = EngineSettings()
        wrong = [
            knob
            for knob in EngineSettings.model_fields
            if getattr(self.current, knob) != getattr(plain, knob)
            and knob not in allowed[self.engine]
        ]
        if wrong:
            raise ValueError(f"the engine {self.engine} has no setting {', '.join(wrong)}")
        return self

    @model_validator(mode="after")
    def _boundary_fits(self) -> Self:
        if not self.boundary:
            return self
        if self.engine not in (*SERVERS, "simulated"):
            raise ValueError(f"a boundary needs a server, and {self.engine} is none")
        if not any(target.percentile is not None for target in self.targets):
            raise ValueError("a boundary needs a latency target at a percentile")
        return self

    @property
    def tests_robustness(self) -> bool:
        """Whether the study ends with a robustness test."""
        return self.engine in MANAGED_SERVERS if self.robustness is None else self.robustness

    @model_validator(mode="after")
    def _lengths_fit(self) -> Self:
        kinds = {self.workload.input_tokens.kind, self.workload.output_tokens.kind}
        if kinds & {"measured", "unknown"} and self.engine != "imported":
            raise ValueError("a length is fixed or lognormal: others cannot be sent")
        return self

    @model_validator(mode="after")
    def _day_fits(self) -> Self:
        if self.day_req_s is not None and self.engine not in SERVERS:
            raise ValueError(f"day_req_s is the load of a server, and {self.engine} is none")
        if self.day_req_s is not None and max(self.day_req_s) <= 0:
            raise ValueError("day_req_s needs at least one rate above 0")
        return self

    @model_validator(mode="after")
    def _prefix_fits(self) -> Self:
        if self.workload.shared_prefix_frac and self.engine not in SERVERS:
            raise ValueError(f"requests share a beginning at servers alone, not in {self.engine}")
        return self

    @model_validator(mode="after")
    def _robustness_fits(self) -> Self:
        if self.robustness and self.engine not in SERVERS:
            raise ValueError(f"a robustness test needs a server, and {self.engine} is none")
        return self

    @model_validator(mode="after")
    def _targets_distinct(self) -> Self:
        keys = [target.key for target in self.targets]
        doubled = sorted({key for key in keys if keys.count(key) > 1})
        if doubled:
            raise ValueError(f"two targets for {', '.join(doubled)}: keep one of them")
        return self
