"""vLLM's own server. On a CPU the cache's size is an environment variable, in whole GiB."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import httpx

from gpuagent.engines.managed import SERVED_NAME, ManagedServer, kv_cache_tokens, logged_number
from gpuagent.errors import AgentError
from gpuagent.server_metrics import ServerMetrics
from gpuagent.wire import EngineSettings, FailureReason
from gpuagent.wire.serving import EngineFacts

_CPU_CACHE_GIB = "2"
# vLLM 0.32 and 0.33 log these lines at every start.
_KV_TOKENS = re.compile(r"KV cache size: ([\d,]+) tokens")
_GRAPHS = re.compile(r"cudagraph_capture_sizes[\"']?[:=]\s*\[([\d, ]+)\]")
_CONTEXT = re.compile(r"max_seq_len=(\d+)")
_BATCHED = re.compile(r"max_num_batched_tokens=(\d+)")
_BACKEND = re.compile(r"Using (\w+) (?:attention )?backend", re.IGNORECASE)


class VllmEngine(ManagedServer):
    """`python -m vllm.entrypoints.openai.api_server` with the settings' options."""

    name = "vllm"
    package = "vllm"
    python_variable = "GPUAGENT_VLLM_PYTHON"
    module = ("vllm.entrypoints.openai.api_server", "--model")
    always = ("--served-model-name", SERVED_NAME)
    seed_option = "--seed"

    def environment(self, settings: EngineSettings) -> dict[str, str]:
        if self._on_gpu:
            return {}
        given = os.environ.get("VLLM_CPU_KVCACHE_SPACE", _CPU_CACHE_GIB)
        return {"VLLM_CPU_KVCACHE_SPACE": given}

    def facts(self, log: str, metrics: ServerMetrics | None) -> EngineFacts:
        block = metrics.kv_block_tokens if metrics is not None else None
        graphs = _GRAPHS.search(log)
        backend = _BACKEND.search(log)
        sizes = [int(part) for part in graphs.group(1).split(",") if part.strip()] if graphs else []
        return EngineFacts(
            kv_cache_tokens=kv_cache_tokens(_KV_TOKENS, log, metrics),
            kv_block_tokens=int(block) if block else None,
            max_context=logged_number(_CONTEXT, log),
            max_batched_tokens=logged_number(_BATCHED, log),
            attention=backend.group(1) if backend else None,
            graph_sizes=tuple(sorted(sizes)[:200]),
        )

    def negative_log_likelihood(self, tokens: Sequence[int]) -> float | None:
        try:
            answer = self._http.post(
                f"{self.url}/v1/completions",
                json={
                    "model": self.served_name,
                    "prompt": list(tokens),
                    "max_tokens": 1,
                    "temperature": 0,
                    "prompt_logprobs": 0,
                },
                timeout=120.0,
            )
            choice = answer.json()["choices"][0]
            scored = choice["prompt_logprobs"][1:]
            return -sum(
                float(each[str(token)]["logprob"])
                for each, token in zip(scored, tokens[1:], strict=True)
            )
        except (httpx.HTTPError, KeyError, ValueError, TypeError, IndexError) as error:
            raise AgentError(
                FailureReason.ENGINE_ERROR, f"vllm did not score the text: {error!r}"[:500]
            ) from error
