"""The metric definitions of `gpuagent.request_metrics`, which the agent's load tool shares."""

from gpuagent.request_metrics import (
    Floats,
    Labels,
    RequestMetrics,
    Throughput,
    dependence_labels,
    request_metrics,
    throughput,
)

__all__ = [
    "Floats",
    "Labels",
    "RequestMetrics",
    "Throughput",
    "dependence_labels",
    "request_metrics",
    "throughput",
]
