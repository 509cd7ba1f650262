"""SGLang's server. Its options are those of 0.5.23; it needs a GPU to start."""

from __future__ import annotations

import re
from pathlib import Path

from gpuagent.engines.managed import HOST, SERVED_NAME, ManagedServer
from gpuagent.engines.server_metrics import ServerMetrics
from gpuagent.wire import EngineSettings
from gpuagent.wire.serving import EngineFacts

_TOKENS = re.compile(r"max_total_num_tokens=(\d+)")
_RUNNING = re.compile(r"max_running_requests=(\d+)")
_CHUNK = re.compile(r"chunked_prefill_size=(\d+)")
_CONTEXT = re.compile(r"context_len=(\d+)")


class SglangEngine(ManagedServer):
    """`python -m sglang.launch_server` with the settings' options and metrics switched on."""

    name = "sglang"
    package = "sglang"
    python_variable = "GPUAGENT_SGLANG_PYTHON"

    def command(self, model: Path, settings: EngineSettings, *, port: int, seed: int) -> list[str]:
        return [
            self._python or "python",
            "-m",
            "sglang.launch_server",
            "--model-path",
            str(model),
            "--served-model-name",
            SERVED_NAME,
            "--host",
            HOST,
            "--port",
            str(port),
            "--random-seed",
            str(seed),
            "--enable-metrics",
            *self.options(settings),
        ]

    def facts(self, log: str, metrics: ServerMetrics | None) -> EngineFacts:
        def number(pattern: re.Pattern[str]) -> int | None:
            found = pattern.search(log)
            return int(found.group(1)) if found else None

        tokens = number(_TOKENS)
        if tokens is None and metrics is not None and metrics.kv_cache_tokens is not None:
            tokens = int(metrics.kv_cache_tokens)
        return EngineFacts(
            kv_cache_tokens=tokens,
            max_running=number(_RUNNING),
            max_batched_tokens=number(_CHUNK),
            max_context=number(_CONTEXT),
        )
