"""The knobs of a serving engine's scheduler that the simulator understands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class ServingKnobs:
    """Defaults are those of vLLM 0.33 on a device of 70 GiB or more.

    max_running: requests in a batch (`--max-num-seqs`). max_batched_tokens: prefill and decode
    tokens of one step (`--max-num-batched-tokens`). memory_share_frac: share of device memory the
    engine may use (`--gpu-memory-utilization`). cuda_graphs: off is `--enforce-eager`.
    graph_max_batch: largest captured batch (`--max-cudagraph-capture-size`).
    """

    max_running: int = 1024
    max_batched_tokens: int = 8192
    chunked_prefill: bool = True
    memory_share_frac: float = 0.92
    kv_dtype: Literal["auto", "fp8"] = "auto"
    cuda_graphs: bool = True
    graph_max_batch: int = 512
