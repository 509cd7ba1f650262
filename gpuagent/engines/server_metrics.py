"""A server's Prometheus page as the few numbers that all engines have in common.

Names of vLLM 0.32 (seen live) and 0.33 and of SGLang 0.5.23 (from its source). Counters are sums
over all label sets; shares are the highest over data-parallel ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True, slots=True)
class ServerMetrics:
    """Gauges now, counters since the server's start; None where the engine does not say.

    kv_frac: used share of the cache. prefix_hit_frac: SGLang gives the share itself, vLLM counts
    hits and queries in tokens. steps: of the engine's scheduler.
    """

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


def read_metrics(text: str) -> ServerMetrics | None:
    """None where the page is not Prometheus text or holds neither engine's names."""
    try:
        samples = list(_samples(text))
    except ValueError:
        return None
    names = {name for name, _, _ in samples}
    if any(name.startswith("vllm:") for name in names):
        return _vllm(samples)
    if any(name.startswith("sglang:") for name in names):
        return _sglang(samples)
    return None


_Sample = tuple[str, dict[str, str], float]


def _samples(text: str) -> Iterator[_Sample]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


def _total(samples: list[_Sample], name: str, **labels: str) -> float | None:
    values = [
        value
        for found, has, value in samples
        if found == name and all(has.get(key) == wanted for key, wanted in labels.items())
    ]
    return sum(values) if values else None


def _highest(samples: list[_Sample], name: str) -> float | None:
    return max((value for found, _, value in samples if found == name), default=None)


def _vllm(samples: list[_Sample]) -> ServerMetrics:
    finished = [
        _total(samples, "vllm:request_success_total", finished_reason=reason)
        for reason in ("stop", "length")
    ]
    done = [value for value in finished if value is not None]
    cache = next((labels for n, labels, _ in samples if n == "vllm:cache_config_info"), {})
    return ServerMetrics(
        running=_total(samples, "vllm:num_requests_running"),
        waiting=_total(samples, "vllm:num_requests_waiting"),
        kv_frac=_highest(samples, "vllm:kv_cache_usage_perc"),
        preemptions=_total(samples, "vllm:num_preemptions_total"),
        requests=sum(done) if done else None,
        input_tokens=_total(samples, "vllm:prompt_tokens_total"),
        output_tokens=_total(samples, "vllm:generation_tokens_total"),
        prefix_queries=_total(samples, "vllm:prefix_cache_queries_total"),
        prefix_hits=_total(samples, "vllm:prefix_cache_hits_total"),
        draft_tokens=_total(samples, "vllm:spec_decode_num_draft_tokens_total"),
        accepted_tokens=_total(samples, "vllm:spec_decode_num_accepted_tokens_total"),
        steps=_total(samples, "vllm:iteration_tokens_total_count"),
        kv_cache_tokens=_number(cache.get("kv_cache_size_tokens")),
        kv_block_tokens=_number(cache.get("block_size")),
    )


def _sglang(samples: list[_Sample]) -> ServerMetrics:
    # Scheduler metrics come once per tensor-parallel rank, with the same values.
    rank0 = [s for s in samples if s[1].get("tp_rank", "0") == "0"]
    return ServerMetrics(
        running=_total(rank0, "sglang:num_running_reqs"),
        waiting=_total(rank0, "sglang:num_queue_reqs"),
        kv_frac=_highest(rank0, "sglang:token_usage"),
        preemptions=_total(rank0, "sglang:num_retracted_requests_total"),
        requests=_total(rank0, "sglang:num_requests_total"),
        input_tokens=_total(rank0, "sglang:prompt_tokens_total"),
        output_tokens=_total(rank0, "sglang:generation_tokens_total"),
        prefix_hit_frac=_highest(rank0, "sglang:cache_hit_rate"),
        kv_cache_tokens=_highest(rank0, "sglang:max_total_num_tokens"),
    )


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None
