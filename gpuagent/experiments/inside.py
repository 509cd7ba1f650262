"""What the experiments on the model itself share: its torch module, and how its parts are found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpuagent.engines.base import InProcessEngine
from gpuagent.errors import AgentError
from gpuagent.experiments.base import LoadedEngine, RunContext
from gpuagent.wire import EngineSettings, FailureReason


@dataclass(frozen=True, slots=True)
class Inside:
    """An opened engine with its module and torch device."""

    loaded: LoadedEngine
    engine: InProcessEngine

    @property
    def module(self) -> Any:
        return self.engine.module

    @property
    def device(self) -> Any:
        return self.engine.device


def open_inside(context: RunContext, settings: EngineSettings | None = None) -> Inside:
    """Load the spec's model (with other settings where given).

    Raises AgentError(config_error) for an engine that runs its model elsewhere.
    """
    loaded = context.open_engine(settings or context.spec.settings)
    engine = loaded.engine
    if not isinstance(engine, InProcessEngine):
        message = f"engine: {engine.name} does not run its model in the agent's process"
        raise AgentError(FailureReason.CONFIG_ERROR, message)
    return Inside(loaded, engine)


@dataclass(frozen=True, slots=True)
class HeadShape:
    """Attention of a plain decoder, from its config."""

    heads: int
    kv_heads: int
    head_size: int
    layers: int


def head_shape(module: Any) -> HeadShape:
    """Raises AgentError(model_unsupported) where the config names no attention heads."""
    config = module.config.get_text_config()
    heads = getattr(config, "num_attention_heads", None)
    hidden = getattr(config, "hidden_size", None)
    layers = getattr(config, "num_hidden_layers", None)
    if not (isinstance(heads, int) and isinstance(hidden, int) and isinstance(layers, int)):
        message = "the config names no attention heads, hidden size or layers"
        raise AgentError(FailureReason.MODEL_UNSUPPORTED, message)
    kv_heads = getattr(config, "num_key_value_heads", None)
    size = getattr(config, "head_dim", None)
    return HeadShape(
        heads=heads,
        kv_heads=kv_heads if isinstance(kv_heads, int) else heads,
        head_size=size if isinstance(size, int) else hidden // heads,
        layers=layers,
    )
