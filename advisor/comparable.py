"""What must be alike to compare two trials, and the independent blocks they are compared by.

Shared by the gate and by comparisons of trials. Pure.
"""

from __future__ import annotations

import numpy as np

from advisor import units
from gpuagent.request_metrics import Floats, RequestMetrics, dependence_labels
from gpuagent.stats.summary import cluster_sums
from gpuagent.wire import EnvironmentSnapshot, Workload

MAX_BLOCKS = 20
UNKNOWN_HARDWARE = "hardware not in the file"
"""Device of an imported result whose hardware nobody named."""
# Fewer blocks carry no interval worth the name.
MIN_BLOCKS = 5


def hardware_of(environment: EnvironmentSnapshot) -> tuple[str, ...]:
    """What must be alike for two numbers to be comparable, in words."""
    host = environment.host
    if host is None or environment.device.startswith("simulated "):
        # Another tool measured, and who kept its file named the hardware or nobody did; or the
        # host only computed what its simulated device would do.
        return (environment.device,)
    found = [f"{host.cpu} × {host.logical_cores}"]
    if environment.device != "cpu":
        found += [
            f"{gpu.name}{' MIG' if gpu.mig else ''} {units.memory(gpu.memory_bytes)}"
            for gpu in environment.gpus
        ]
    return tuple(found)


def workload_differences(a: Workload, b: Workload) -> list[str]:
    """Fields that change what a request costs; the number of requests does not."""
    names = ("input_tokens", "output_tokens", "request_rate_per_s")
    words = {
        "input_tokens": "input length",
        "output_tokens": "output length",
        "request_rate_per_s": "request rate",
    }
    return [words[name] for name in names if getattr(a, name) != getattr(b, name)]


def request_blocks(metrics: RequestMetrics, name: str) -> Floats:
    """Means of `name` over blocks of requests that can be taken for independent: [blocks]."""
    n = metrics.succeeded
    labels = dependence_labels(metrics)
    if labels is None:
        labels = np.arange(n, dtype=np.int64) * min(n, MAX_BLOCKS) // max(n, 1)
    if n == 0 or (name == "itl_s" and metrics.itl_s.size == 0):
        return np.empty(0, dtype=np.float64)
    if name == "output_tok_s":
        tokens, _ = cluster_sums(metrics.output_tokens.astype(np.float64), labels)
        spent_s, _ = cluster_sums(metrics.e2e_s, labels)
        return tokens / spent_s
    values, of = metrics.e2e_s, labels
    if name == "ttft_s":
        values = metrics.ttft_s
    elif name == "itl_s":
        values, of = metrics.itl_s, labels[metrics.itl_request]
    sums, counts = cluster_sums(values, of)
    return sums / counts
