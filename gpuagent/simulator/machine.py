"""What a model costs on a device, per step and in memory, and what refuses to start.

Step time = launches + max(reading the weights, computing the tokens) + reading the cache, the
roofline of one forward pass. The figures follow public measurements (aiconfigurator's silicon
tables, vLLM): the least-squares line of time per output token over batch and context, and the time
to first token at the smallest batch. Costs of launching without graphs, of graph memory and of
activations are our own choice of the right order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpuagent.simulator.knobs import ServingKnobs

KV_BLOCK_TOKENS = 16


class StartRefused(Exception):
    """The engine does not start or dies with these knobs.

    kind: config_error, out_of_memory, or cache_too_small for one request of full length.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind, self.message = kind, message


@dataclass(frozen=True, slots=True)
class Machine:
    """Bytes are of one device; with several, weights and cache are already divided.

    base_s: a decode step at batch 1 with graphs. prefill_token_s: one prompt token.
    sequence_s: one more sequence in a decode step. context_token_s: one token of cache read.
    eager_s: more per step without a graph. other_bytes: what does not belong to the engine.
    """

    name: str
    source: str
    base_s: float
    prefill_token_s: float
    sequence_s: float
    context_token_s: float
    eager_s: float
    memory_bytes: float
    other_bytes: float
    weight_bytes: float
    kv_bytes_per_token: float
    activation_bytes_per_token: float
    max_context: int
    noise_cov: float = 0.02

    def step_s(self, *, prefill: int, sequences: int, context: int, graph: bool) -> float:
        """Seconds of a step over `prefill` prompt tokens and `sequences` decoding ones, whose
        contexts sum to `context` tokens."""
        launches = 0.0 if graph else self.eager_s
        compute = prefill * self.prefill_token_s + sequences * self.sequence_s
        # Prefill hides behind the read of the weights only until it is bound by arithmetic.
        weights = self.base_s + sequences * self.sequence_s
        return launches + max(weights, compute) + context * self.context_token_s

    def graph_bytes(self, knobs: ServingKnobs) -> float:
        if not knobs.cuda_graphs:
            return 0.0
        return 0.4e9 + min(knobs.graph_max_batch, 2 * knobs.max_running) * 2.5e6

    def kv_blocks(self, knobs: ServingKnobs) -> int:
        """Blocks of the cache. Raises StartRefused where the engine would not start or would die.

        As vLLM: max_running <= max_batched_tokens; without chunks a whole context fits one step;
        one request of full length fits the cache.
        """
        if knobs.max_running < 1 or knobs.max_batched_tokens < knobs.max_running:
            raise StartRefused(
                "config_error", "max_batched_tokens must be at least max_running, and both above 0"
            )
        if not knobs.chunked_prefill and knobs.max_batched_tokens < self.max_context:
            raise StartRefused(
                "config_error",
                f"without chunked prefill max_batched_tokens must hold a context of "
                f"{self.max_context:,} tokens",
            )
        if not 0 < knobs.memory_share_frac <= 1:
            raise StartRefused("config_error", "memory_share_frac must lie between 0 and 1")
        activations = knobs.max_batched_tokens * self.activation_bytes_per_token
        share = knobs.memory_share_frac * self.memory_bytes
        if share + self.other_bytes + self.graph_bytes(knobs) > self.memory_bytes:
            raise StartRefused(
                "out_of_memory",
                f"{knobs.memory_share_frac:.0%} of device memory and the graphs outside it leave "
                "no room for what else is on the device",
            )
        kv_bytes = share - self.weight_bytes - activations
        per_token = self.kv_bytes_per_token / (2 if knobs.kv_dtype == "fp8" else 1)
        blocks = math.floor(kv_bytes / (per_token * KV_BLOCK_TOKENS))
        if blocks * KV_BLOCK_TOKENS < self.max_context:
            raise StartRefused(
                "cache_too_small",
                f"the cache holds {max(0, blocks * KV_BLOCK_TOKENS):,} tokens, fewer than one "
                f"request of {self.max_context:,}",
            )
        return blocks


_TABLES = "public serving measurements of ai-dynamo/aiconfigurator, vLLM"

MACHINES: dict[str, Machine] = {
    machine.name: machine
    for machine in (
        Machine(
            name="qwen3-32b-2xh100",
            source=f"{_TABLES} 0.12.0, Qwen3-32B bf16 on 2 H100 SXM: 15.5 ms + 0.08 to 0.28 ms per "
            "sequence; 154 ms to first token at 1,024 tokens and batch 8",
            base_s=15.5e-3,
            prefill_token_s=9.0e-5,
            sequence_s=8.0e-5,
            context_token_s=6.3e-8,
            eager_s=9.0e-3,
            memory_bytes=79.6e9,
            other_bytes=2.2e9,
            weight_bytes=32.8e9,
            kv_bytes_per_token=131_072,
            activation_bytes_per_token=4.0e5,
            max_context=8192,
        ),
        Machine(
            name="gpt-oss-120b-h200",
            source=f"{_TABLES} 0.18.0, gpt-oss-120b fp4 on 1 H200: 5.5 ms + 0.24 ms per sequence; "
            "408 ms to first token at 8,192 tokens and batch 4",
            base_s=5.5e-3,
            prefill_token_s=4.5e-5,
            sequence_s=2.4e-4,
            context_token_s=2.7e-8,
            eager_s=7.0e-3,
            memory_bytes=141.0e9,
            other_bytes=3.0e9,
            weight_bytes=66.0e9,
            kv_bytes_per_token=73_728,
            activation_bytes_per_token=6.0e5,
            max_context=16384,
        ),
        Machine(
            name="gpt-oss-120b-b200",
            source=f"{_TABLES} 0.15.1, gpt-oss-120b fp4 on 1 B200: 3.6 ms + 0.061 ms per sequence "
            "+ 6.6 ns per token of context; 116 ms to first token at 8,192 tokens and batch 4",
            base_s=3.6e-3,
            prefill_token_s=1.35e-5,
            sequence_s=6.1e-5,
            context_token_s=6.6e-9,
            eager_s=7.0e-3,
            memory_bytes=180.0e9,
            other_bytes=3.5e9,
            weight_bytes=66.0e9,
            kv_bytes_per_token=73_728,
            activation_bytes_per_token=6.0e5,
            max_context=16384,
        ),
    )
}
