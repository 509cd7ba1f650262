"""Registry of engines: name -> module:class, imported only when a trial asks for it."""

from __future__ import annotations

from importlib import import_module

from gpuagent.engines.base import Engine, ServingEngine
from gpuagent.errors import AgentError
from gpuagent.wire import FailureReason

ENGINES: dict[str, str] = {
    "transformers": "gpuagent.engines.transformers_engine:TransformersEngine",
}
SERVERS: dict[str, str] = {
    "vllm": "gpuagent.engines.vllm_engine:VllmEngine",
    "sglang": "gpuagent.engines.sglang_engine:SglangEngine",
    "transformers_serve": "gpuagent.engines.transformers_serve_engine:TransformersServeEngine",
}
"""Servers that the agent starts; `openai` is an endpoint and starts nothing."""


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


def create_server(name: str, *, endpoint: str | None = None) -> ServingEngine:
    """A new server, not started. Raises AgentError(config_error) for an unknown name."""
    if name == "openai":
        from gpuagent.engines.endpoint_engine import EndpointEngine

        return EndpointEngine(endpoint)
    if name not in SERVERS:
        known = ", ".join(sorted((*SERVERS, "openai")))
        raise AgentError(FailureReason.CONFIG_ERROR, f"engine: {name} is no server; known: {known}")
    module_name, _, class_name = SERVERS[name].partition(":")
    server: ServingEngine = getattr(import_module(module_name), class_name)()
    return server
