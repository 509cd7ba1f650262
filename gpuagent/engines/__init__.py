"""Registry of engines: name -> module:class, imported only when a trial asks for it."""

from __future__ import annotations

from importlib import import_module

from gpuagent.engines.base import Engine
from gpuagent.errors import AgentError
from gpuagent.wire import FailureReason

ENGINES: dict[str, str] = {
    "transformers": "gpuagent.engines.transformers_engine:TransformersEngine",
}


def create_engine(name: str) -> Engine:
    """A new, unloaded engine. Raises AgentError(agent_error) where its packages are missing."""
    if name not in ENGINES:
        known = ", ".join(sorted(ENGINES))
        raise AgentError(FailureReason.CONFIG_ERROR, f"engine: {name} is unknown; known: {known}")
    module_name, _, class_name = ENGINES[name].partition(":")
    try:
        module = import_module(module_name)
    except ImportError as error:
        raise AgentError(
            FailureReason.AGENT_ERROR,
            f"the {name} engine is not installed on this agent ({error.name or error} is missing)",
            detail=str(error),
        ) from error
    engine: Engine = getattr(module, class_name)()
    return engine
