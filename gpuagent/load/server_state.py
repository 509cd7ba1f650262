"""What a server says of itself in /metrics: requests running and waiting, share of KV memory used.

Names of vLLM and SGLang, Prometheus text format 0.0.4. SGLang serves them with --enable-metrics.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

# name: (engine, field). vLLM before 0.10 called its KV usage gpu_cache_usage_perc.
_NAMES: dict[str, tuple[Literal["vllm", "sglang"], str]] = {
    "vllm:num_requests_running": ("vllm", "running"),
    "vllm:num_requests_waiting": ("vllm", "waiting"),
    "vllm:kv_cache_usage_perc": ("vllm", "kv_used_frac"),
    "vllm:gpu_cache_usage_perc": ("vllm", "kv_used_frac"),
    "sglang:num_running_reqs": ("sglang", "running"),
    "sglang:num_queue_reqs": ("sglang", "waiting"),
    "sglang:token_usage": ("sglang", "kv_used_frac"),
}
_START = "process_start_time_seconds"
_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+\S+)?")
_REPLICA = re.compile(r'\b(?:dp_rank|engine|model_name)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class ServerState:
    """None: the server does not say. kv_used_frac: 0 to 1, cached prefixes that may be evicted not
    counted. started_at_s: Unix time at which its process started."""

    engine: Literal["vllm", "sglang"] | None = None
    running: int | None = None
    waiting: int | None = None
    kv_used_frac: float | None = None
    started_at_s: float | None = None

    @property
    def open_requests(self) -> int | None:
        if self.running is None:
            return None
        return self.running + (self.waiting or 0)


def read_state(text: str) -> ServerState:
    """The state in a /metrics body; lines that are no samples are passed over.

    Ranks of one replica repeat its numbers; replicas add up (of their KV usage: the highest).
    """
    found: dict[str, dict[tuple[str, ...], float]] = {}
    engine: Literal["vllm", "sglang"] | None = None
    started_at_s: float | None = None
    for line in text.splitlines():
        sample = _LINE.fullmatch(line.strip())
        if sample is None:
            continue
        name, labels, number = sample.groups()
        value = _number(number)
        if value is None:
            continue
        if name == _START:
            started_at_s = value
        elif name in _NAMES:
            engine, field = _NAMES[name]
            series = found.setdefault(field, {})
            replica = tuple(_REPLICA.findall(labels or ""))
            series[replica] = max(series.get(replica, 0.0), value)
    running, waiting, used = (found.get(f) for f in ("running", "waiting", "kv_used_frac"))
    return ServerState(
        engine=engine,
        running=round(sum(running.values())) if running else None,
        waiting=round(sum(waiting.values())) if waiting else None,
        kv_used_frac=max(used.values()) if used else None,
        started_at_s=started_at_s,
    )


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
