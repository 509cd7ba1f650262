"""Canonical settings as arguments of a serving engine, and what cannot be carried over. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

from advisor.exports.knob_table import BY_KNOB, NoFlag
from gpuagent.launch import option_words
from gpuagent.wire import EngineSettings, HubModel, ModelRef

ServingEngine = Literal["vllm", "sglang"]
SERVING_ENGINES: Final[tuple[ServingEngine, ...]] = ("vllm", "sglang")
PLACEHOLDER: Final = "YOUR_MODEL"


@dataclass(frozen=True, slots=True)
class Argument:
    """What one knob becomes. words: () where the engine's default does it already."""

    knob: str
    value: str | int | float | bool | None
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NotCarried:
    """A knob that was set and has no flag in this engine, with the reason."""

    knob: str
    value: str | int | float | bool | None
    reason: str


def arguments(
    engine: ServingEngine, settings: EngineSettings
) -> tuple[tuple[Argument, ...], tuple[NotCarried, ...]]:
    """Every knob that differs from the engine's own choice, in the order of `EngineSettings`."""
    carried: list[Argument] = []
    left: list[NotCarried] = []
    for knob, (_, value) in EngineSettings().differences(settings).items():
        plain = (
            value if isinstance(value, str | int | float | bool) or value is None else str(value)
        )
        row = BY_KNOB.get(knob)
        setting = row.of(engine) if row is not None else NoFlag("its flag is not known")
        if isinstance(setting, NoFlag):
            left.append(NotCarried(knob, plain, setting.reason))
        else:
            carried.append(Argument(knob, plain, option_words(setting, plain, settings)))
    return _without_conflicts(engine, carried, left)


def _without_conflicts(
    engine: ServingEngine, carried: list[Argument], left: list[NotCarried]
) -> tuple[tuple[Argument, ...], tuple[NotCarried, ...]]:
    """Two knobs that are one flag in SGLang: without chunking there is no chunk's size."""
    whole = any(a.knob == "chunked_prefill" and a.value is False for a in carried)
    if engine == "sglang" and whole:
        sizes = [a for a in carried if a.knob == "max_batched_tokens"]
        carried = [a for a in carried if a not in sizes]
        reason = "chunked prefill is off, and the size is that of a chunk"
        left = [*left, *(NotCarried(a.knob, a.value, reason) for a in sizes)]
    return tuple(carried), tuple(left)


class ServedModel(BaseModel):
    """A study's model as an engine is told of it: kind and name of the spec, revision of a hub
    model that named one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["hub", "local", "config", "simulated", "imported"]
    name: str
    revision: str | None = None

    @classmethod
    def of(cls, model: ModelRef) -> ServedModel:
        if isinstance(model, HubModel):
            return cls(kind="hub", name=model.id, revision=model.revision)
        return cls(kind=model.kind, name=model.name)

    def words(self, engine: ServingEngine, *, folder: str) -> tuple[str, ...]:
        """As arguments. folder: where local models lie, for example "/models".

        A name that starts with a dash stays one argument and no option.
        """
        name = self.name
        if self.kind == "local":
            name = f"{folder}/{name}"
        elif self.kind != "hub":
            name = PLACEHOLDER
        if engine == "vllm":
            words: tuple[str, ...] = (f"--model={name}",) if name.startswith("-") else (name,)
        else:
            words = (f"--model-path={name}",) if name.startswith("-") else ("--model-path", name)
        return words if self.revision is None else (*words, "--revision", self.revision)

    @property
    def note(self) -> str | None:
        """What the reader must put in, or None."""
        notes = {
            "local": "The model is a folder of the agent: copy or mount it where the path points.",
            "config": "The study built its model from a config alone: put your weights for "
            f"{PLACEHOLDER}.",
            "simulated": f"The study was simulated: put your model for {PLACEHOLDER}.",
        }
        return notes.get(self.kind)


def parallel_degrees(settings: EngineSettings) -> tuple[int, int, int]:
    """(tensor, pipeline, data) parallel degree: 1 where the settings do not name one."""
    values = settings.model_dump()
    tensor, pipeline, data = (
        int(values.get(knob) or 1)
        for knob in ("tensor_parallel", "pipeline_parallel", "data_parallel")
    )
    return tensor, pipeline, data


def start_words(engine: ServingEngine) -> tuple[str, ...]:
    return ("vllm", "serve") if engine == "vllm" else ("python3", "-m", "sglang.launch_server")


def image(engine: ServingEngine, version: str) -> str:
    """The project's own image of this version."""
    return f"vllm/vllm-openai:v{version}" if engine == "vllm" else f"lmsysorg/sglang:v{version}"
