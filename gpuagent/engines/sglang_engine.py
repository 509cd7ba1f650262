"""SGLang's server. Its options are those of 0.5.23; it needs a GPU to start."""

from __future__ import annotations

import re

from gpuagent.engines.managed import SERVED_NAME, ManagedServer, kv_cache_tokens, logged_number
from gpuagent.server_metrics import ServerMetrics
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
    module = ("sglang.launch_server", "--model-path")
    always = ("--served-model-name", SERVED_NAME, "--enable-metrics")
    seed_option = "--random-seed"

    def facts(self, log: str, metrics: ServerMetrics | None) -> EngineFacts:
        return EngineFacts(
            kv_cache_tokens=kv_cache_tokens(_TOKENS, log, metrics),
            max_running=logged_number(_RUNNING, log),
            max_batched_tokens=logged_number(_CHUNK, log),
            max_context=logged_number(_CONTEXT, log),
        )
