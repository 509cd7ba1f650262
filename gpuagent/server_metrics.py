"""A server's Prometheus page as the few numbers that all engines have in common.

Names of vLLM 0.32 (seen live) and 0.33 and of SGLang 0.5.23 (from its source, served with
--enable-metrics). Read here and not by the Prometheus client's own parser, which gives up the whole
page for one line that is no sample.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

Engine = Literal["vllm", "sglang"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of the page."""

    name: str
    labels: dict[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class ServerMetrics:
    """Gauges now, counters since the server's start; None where the engine does not say.

    engine: None for a page with neither engine's names. kv_frac: used share of the cache, the
    highest of all replicas; prefixes that may be evicted are not counted. prefix_hit_frac: SGLang
    gives the share itself, vLLM counts hits and queries in tokens. steps: of the scheduler.
    started_at_s: Unix time at which the process started.
    """

    engine: Engine | None = None
    running: float | None = None
    waiting: float | None = None
    kv_frac: float | None = None
    preemptions: float | None = None
    requests: float | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None
    prefix_hit_frac: float | None = None
    draft_tokens: float | None = None
    accepted_tokens: float | None = None
    steps: float | None = None
    kv_cache_tokens: float | None = None
    kv_block_tokens: float | None = None
    started_at_s: float | None = None


# field -> names, the newest first: vLLM before 0.10 called its cache's use gpu_cache_usage_perc.
_NAMES: dict[Engine, dict[str, tuple[str, ...]]] = {
    "vllm": {
        "running": ("vllm:num_requests_running",),
        "waiting": ("vllm:num_requests_waiting",),
        "kv_frac": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        "preemptions": ("vllm:num_preemptions_total",),
        "requests": ("vllm:request_success_total",),
        "input_tokens": ("vllm:prompt_tokens_total",),
        "output_tokens": ("vllm:generation_tokens_total",),
        "prefix_queries": ("vllm:prefix_cache_queries_total",),
        "prefix_hits": ("vllm:prefix_cache_hits_total",),
        "draft_tokens": ("vllm:spec_decode_num_draft_tokens_total",),
        "accepted_tokens": ("vllm:spec_decode_num_accepted_tokens_total",),
        "steps": ("vllm:iteration_tokens_total_count",),
    },
    "sglang": {
        "running": ("sglang:num_running_reqs",),
        "waiting": ("sglang:num_queue_reqs",),
        "kv_frac": ("sglang:token_usage",),
        "preemptions": ("sglang:num_retracted_requests_total",),
        "requests": ("sglang:num_requests_total",),
        "input_tokens": ("sglang:prompt_tokens_total",),
        "output_tokens": ("sglang:generation_tokens_total",),
        "prefix_hit_frac": ("sglang:cache_hit_rate",),
        "kv_cache_tokens": ("sglang:max_total_num_tokens",),
    },
}
_HIGHEST = frozenset({"kv_frac", "prefix_hit_frac", "kv_cache_tokens"})
_START = "process_start_time_seconds"
# vLLM counts aborted and failed requests as finished, too.
_ANSWERED = frozenset({None, "stop", "length"})
# Ranks of one replica repeat its numbers.
_RANKS = frozenset({"tp_rank", "pp_rank", "moe_ep_rank"})
_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+\S+)?")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def read_metrics(text: str) -> ServerMetrics | None:
    """As `read_page`; None for a page with neither engine's names."""
    found = read_page(text)
    return found if found.engine is not None else None


def read_page(text: str) -> ServerMetrics:
    """Counters are sums over replicas and label sets, shares the highest of them."""
    samples = read_samples(text)
    engine: Engine | None = next(
        (e for e in _NAMES for s in samples if s.name.startswith(f"{e}:")), None
    )
    fields: dict[str, float | None] = {"started_at_s": _value(samples, (_START,), highest=True)}
    for field, names in _NAMES[engine].items() if engine else ():
        fields[field] = _value(samples, names, highest=field in _HIGHEST)
    cache = next((s.labels for s in samples if s.name == "vllm:cache_config_info"), None)
    if cache is not None:
        fields["kv_cache_tokens"] = _number(cache.get("kv_cache_size_tokens", ""))
        fields["kv_block_tokens"] = _number(cache.get("block_size", ""))
    return ServerMetrics(engine=engine, **fields)


def read_samples(text: str) -> list[Sample]:
    """Finite, non-negative samples; lines that are none are passed over."""
    found = []
    for line in text.splitlines():
        matched = _LINE.fullmatch(line.strip())
        value = _number(matched[3]) if matched else None
        if matched and value is not None:
            labels = dict(_LABEL.findall(matched[2] or ""))
            found.append(Sample(matched[1], labels, value))
    return found


def _value(samples: list[Sample], names: tuple[str, ...], *, highest: bool) -> float | None:
    for name in names:
        replicas: dict[tuple[tuple[str, str], ...], float] = {}
        for sample in samples:
            if sample.name == name and sample.labels.get("finished_reason") in _ANSWERED:
                key = tuple(sorted(x for x in sample.labels.items() if x[0] not in _RANKS))
                replicas[key] = max(replicas.get(key, 0.0), sample.value)
        if replicas:
            return max(replicas.values()) if highest else sum(replicas.values())
    return None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
