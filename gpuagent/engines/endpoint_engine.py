"""A server that somebody else runs, reached by the name that this agent's owner gave it."""

from __future__ import annotations

import time
from collections.abc import Sequence

import httpx

from gpuagent.endpoints import read_endpoints
from gpuagent.engines.base import ServerMemoryKind, ServerReport, Tick
from gpuagent.engines.scrape import scrape
from gpuagent.errors import AgentError
from gpuagent.models import ResolvedModel
from gpuagent.server_metrics import ServerMetrics
from gpuagent.wire import EngineSettings, FailureReason
from gpuagent.wire.loaded import LoadedModel
from gpuagent.wire.serving import EngineFacts


class EndpointEngine:
    """See `gpuagent.engines.base.ServingEngine`. Starts and stops nothing."""

    name = "openai"
    token_prompts = False
    ignores_eos = False
    memory_kind: ServerMemoryKind = "unknown"

    def __init__(self, endpoint: str | None) -> None:
        known = read_endpoints()
        if endpoint is None or endpoint not in known:
            names = ", ".join(sorted(known)) or "none"
            raise AgentError(
                FailureReason.CONFIG_ERROR,
                f"endpoint: this agent has no endpoint {endpoint}; its endpoints: {names}",
            )
        self._named = known[endpoint]
        self.url, self.key = self._named.url, self._named.key
        self.served_name = self._named.model or ""
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        self._http = httpx.Client(timeout=10.0, headers=headers, trust_env=False)

    def start(
        self, model: ResolvedModel | None, settings: EngineSettings, *, seed: int, tick: Tick
    ) -> ServerReport:
        if EngineSettings().differences(settings):
            raise AgentError(
                FailureReason.CONFIG_ERROR,
                "settings: the settings of an endpoint are its owner's and cannot be changed here",
            )
        tick()
        if not self.served_name:
            self.served_name = self._first_model()
        began = time.perf_counter()
        asked = {"model": self.served_name, "prompt": "Hello", "max_tokens": 1}
        self._ask("POST", "/v1/completions", json=asked)
        first_s = time.perf_counter() - began
        config = (model.config if model else None) or {}
        architecture = str((config.get("architectures") or ["unknown"])[0])[:200]
        return ServerReport(
            model=LoadedModel(
                architecture=architecture,
                dtype="unknown",
                attention="unknown",
                device=f"endpoint {self._named.name}",
                params=None,
                stored_weight_bytes=None,
                random_weights=False,
            ),
            facts=EngineFacts(),
            version=None,
            command=(),
            ready_s=None,
            first_request_s=first_s,
            max_context=None,
        )

    def encode(self, text: str) -> list[int] | None:
        return None

    def decode(self, tokens: Sequence[int]) -> str | None:
        return None

    def failure(self) -> AgentError | None:
        return None

    def metrics(self) -> ServerMetrics | None:
        return scrape(self._http, self.url)

    def memory_bytes(self) -> int | None:
        return None

    def negative_log_likelihood(self, tokens: Sequence[int]) -> float | None:
        return None

    def versions(self) -> dict[str, str]:
        return {}

    def close(self) -> None:
        self._http.close()

    def _first_model(self) -> str:
        listed = self._ask("GET", "/v1/models").get("data") or [{}]
        name = listed[0].get("id")
        if not isinstance(name, str):
            raise AgentError(
                FailureReason.ENGINE_ERROR, f"endpoint {self._named.name} lists no model"
            )
        return name

    def _ask(self, method: str, path: str, **more: object) -> dict[str, list[dict[str, object]]]:
        name = self._named.name
        try:
            answer = self._http.request(method, f"{self.url}{path}", **more)  # type: ignore[arg-type]
        except httpx.HTTPError as error:
            raise AgentError(
                FailureReason.ENGINE_ERROR,
                f"endpoint {name} does not answer ({type(error).__name__})",
            ) from error
        if answer.status_code != 200:
            # The body may repeat the key; the status says enough.
            raise AgentError(
                FailureReason.CONFIG_ERROR
                if answer.status_code < 500
                else FailureReason.ENGINE_ERROR,
                f"endpoint {name} answered {path} with HTTP {answer.status_code}",
            )
        try:
            data = answer.json()
        except ValueError:
            data = None
        if not isinstance(data, dict):
            raise AgentError(FailureReason.ENGINE_ERROR, f"endpoint {name} did not answer in JSON")
        return data
