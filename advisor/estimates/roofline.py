"""Lower bounds from bytes and FLOPs: one decode step, one prefill, and their parts per GPU.

Nothing here is fitted. Every time is a floor at the device's stated bandwidth and dense rate; what
an engine reaches of it is learned in `advisor.estimates.serving`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from advisor.catalog import GpuSpec
from advisor.shapes import ModelShape, QuantScheme
from advisor.shapes.quant import group_bits

# All-reduce between two GPUs without links of their own: geometric mean of two measured cards.
PCIE_ALL_REDUCE_BYTES_S = 26e9


@dataclass(frozen=True, slots=True)
class Placement:
    """Where and how a model runs. `gpus` share one copy of the model."""

    gpu: GpuSpec
    gpus: int = 1
    tp: int = 1
    pp: int = 1
    expert_parallel: bool = False
    attention_dp: bool = False  # attention replicated, sequences split; experts shared
    dtype: str = "auto"
    kv_itemsize: float = 2.0


@dataclass(frozen=True, slots=True)
class StepFloor:
    """Seconds of one step's parts on one GPU; they overlap, so their sum is an upper guess."""

    weights_s: float  # dense weights read
    experts_s: float  # routed experts read
    kv_s: float  # KV cache and state read
    compute_s: float  # matmuls
    attention_s: float  # score and value products
    comm_s: float  # all-reduce or all-to-all traffic

    @property
    def memory_s(self) -> float:
        return self.weights_s + self.experts_s + self.kv_s

    @property
    def bound_s(self) -> float:
        """Memory and arithmetic overlap perfectly, links do not."""
        return max(self.memory_s, self.compute_s + self.attention_s) + self.comm_s

    @property
    def bound_by(self) -> str:
        """What limits the step: memory, compute or links."""
        compute = self.compute_s + self.attention_s
        if self.comm_s > max(self.memory_s, compute):
            return "links"
        return "memory" if self.memory_s >= compute else "compute"


class Roofline:
    """Floors of one model in one placement; everything per step is closed form."""

    def __init__(self, shape: ModelShape, place: Placement) -> None:
        self.shape = shape
        self.place = place
        self.scheme: QuantScheme | None = shape.scheme(place.dtype)
        base = shape.base_bits(place.dtype)
        self._bytes = {
            part: group_bits(self.scheme, part, base) / 8 for part in shape.params_by_group()
        }
        n = place.gpus
        self.shard = 1.0 / n
        self.attention_shard = 1.0 if place.attention_dp else 1.0 / n

    @cached_property
    def weight_bytes(self) -> int:
        """Bytes of all weights over all GPUs, one copy each."""
        return self.shape.weight_bytes(self.place.dtype)

    @cached_property
    def compute_dtype(self) -> str:
        """Arithmetic of quantised matmuls; weight-only formats and old chips compute in bf16."""
        wanted = self.scheme.compute if self.scheme is not None else "bf16"
        if self.scheme is None and self.place.dtype in ("fp32", "float32"):
            return "fp32"
        return wanted if self.place.gpu.supports(wanted) else "bf16"

    @cached_property
    def peak_flops(self) -> float:
        return self.place.gpu.dense_flops(self.compute_dtype)

    @cached_property
    def peak_bf16(self) -> float:
        return self.place.gpu.dense_flops("bf16")

    @cached_property
    def bandwidth(self) -> float:
        return self.place.gpu.bandwidth_bytes_s

    @cached_property
    def link(self) -> float:
        """Bytes per second and direction between GPUs of one model copy.

        Without links of their own GPUs meet over PCIe, and an all-reduce falls with their number:
        18 and 38 GB/s on two L40S and RTX PRO 6000, 1 and 9 GB/s on eight (vLLM 0.24 kernels).
        """
        if self.place.gpu.link_bytes_s is not None:
            return self.place.gpu.link_bytes_s / 2
        return PCIE_ALL_REDUCE_BYTES_S * float((2.0 / max(self.place.gpus, 2)) ** 1.5)

    @cached_property
    def dense_weight_bytes(self) -> float:
        """Bytes of non-expert weights one GPU reads per decode step; lookup tables excluded."""
        parts = self.shape.params_by_group()
        attention = parts["attention"] * self._bytes["attention"] * self.attention_shard
        rest = sum(
            parts[part] * self._bytes[part]
            for part in ("mlp", "shared_experts", "router", "other", "head")
        )
        if self.shape.tied:
            rest += self.shape.vocab_size * self.shape.hidden_size * self._bytes["head"]
        return attention + rest * self.shard

    @cached_property
    def attention_bytes(self) -> float:
        """Bytes of all attention and state-space projections."""
        return self.shape.params_by_group()["attention"] * self._bytes["attention"]

    @cached_property
    def moe_groups(self) -> tuple[tuple[int, int, int, float], ...]:
        """(layers, experts, chosen per token, bytes of one expert)."""
        return tuple(
            (
                count,
                layer.experts,
                layer.experts_per_token,
                layer.expert_params * self._bytes["experts"],
            )
            for count, layer in self.shape.groups
            if layer.experts
        )

    def expert_bytes(self, tokens: float) -> float:
        """Expert bytes one GPU reads: a batch touches E × (1 - (1 - k/E)^tokens) experts."""
        total = 0.0
        for layers, experts, chosen, size in self.moe_groups:
            touched = experts * (1.0 - (1.0 - chosen / experts) ** max(tokens, 0.0))
            total += layers * touched * size
        return total * self.shard

    @cached_property
    def matmul_flops_per_token(self) -> float:
        """2 × active weights in matmuls, without lookups and without the output matrix."""
        shape = self.shape
        idle = shape.params_embedding + shape.params_head + shape.params_vision
        return 2.0 * (shape.params_active - idle)

    @cached_property
    def head_flops(self) -> float:
        """The output matrix: once per generated token, and once per prompt."""
        return 2.0 * self.shape.vocab_size * self.shape.hidden_size

    def attention_flops(self, queries: float, context: float, *, decode: bool) -> float:
        """Score and value products of `queries` tokens against `context` tokens each."""
        total = 0.0
        for count, layer in self.shape.groups:
            if not layer.has_cache:
                continue
            reach = context
            if layer.window is not None:
                reach = min(
                    context,
                    layer.window + context / layer.compression * (layer.kind == "compressed"),
                )
            if self.shape.sparse_topk:
                reach = min(reach, self.shape.sparse_topk)
            # Decode of MLA works on the latent itself: wider products, no expansion.
            width = layer.qk_dim + layer.v_dim
            if layer.kind == "mla" and decode:
                width = 2 * layer.kv_elements
            total += count * 2.0 * layer.heads * width * reach * queries
        return total

    def kv_shard(self) -> float:
        """Share of the cache that one GPU reads: split by KV heads, replicated beyond them."""
        if self.place.attention_dp:
            return 1.0 / self.place.gpus
        tp = max(1, self.place.gpus // max(self.place.pp, 1))
        heads = max(self.shape.kv_heads, 1)
        return max(1.0 / tp, 1.0 / heads) / max(self.place.pp, 1)

    def kv_read_bytes(self, context: float) -> float:
        """Bytes of cache and state that one sequence of `context` tokens makes a step read."""
        item = self.place.kv_itemsize
        total = 0.0
        for count, layer in self.shape.groups:
            if layer.state_elements:
                total += count * layer.state_elements * 2 * 2.0  # read and written
            if not layer.has_cache:
                continue
            reach = context
            if layer.kind == "compressed":
                reach = min(context, layer.window or 0) + context / layer.compression
            elif layer.window is not None:
                reach = min(context, layer.window)
            if self.shape.sparse_topk:
                # The selector itself scans 128 one-byte keys per token.
                total += count * 132.0 * context
                reach = min(reach, self.shape.sparse_topk)
            total += count * layer.kv_elements * reach * item
        return total

    def comm_bytes(self, tokens: float) -> float:
        """Bytes one GPU sends per step: two all-reduces per layer, ring factor 2(n-1)/n."""
        n = self.place.gpus
        if n <= 1:
            return 0.0
        return 2 * self.shape.layers * tokens * self.shape.hidden_size * 2 * 2 * (n - 1) / n

    def decode(self, batch: float, context: float) -> StepFloor:
        """One decode step of `batch` sequences that hold `context` tokens each."""
        n = self.place.gpus
        flops = (self.matmul_flops_per_token + self.head_flops) * batch
        attention = self.attention_flops(batch, context, decode=True)
        return StepFloor(
            weights_s=self.dense_weight_bytes / self.bandwidth,
            experts_s=self.expert_bytes(batch) / self.bandwidth,
            kv_s=self.kv_read_bytes(context) * batch * self.kv_shard() / self.bandwidth,
            compute_s=flops / n / self.peak_flops,
            attention_s=attention / n / self.peak_bf16,
            comm_s=self.comm_bytes(batch) / self.link,
        )

    def prefill(self, tokens: float, prompts: float = 1.0) -> StepFloor:
        """Prefill of `prompts` prompts of `tokens` tokens each in one go; causal half counted."""
        n = self.place.gpus
        flops = self.matmul_flops_per_token * tokens * prompts + self.head_flops * prompts
        attention = self.attention_flops(tokens * prompts, tokens / 2, decode=False)
        return StepFloor(
            weights_s=self.dense_weight_bytes / self.bandwidth,
            experts_s=self.expert_bytes(tokens * prompts) / self.bandwidth,
            kv_s=0.0,
            compute_s=flops / n / self.peak_flops,
            attention_s=attention / n / self.peak_bf16,
            comm_s=self.comm_bytes(tokens * prompts) / self.link,
        )
