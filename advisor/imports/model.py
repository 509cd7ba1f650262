"""What an imported file becomes: one trial for each benchmark in it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gpuagent.wire.base import WireModel
from gpuagent.wire.measure import Quantity, RequestRecord

Tool = Literal["vllm bench serve", "guidellm", "aiperf", "locust"]
MetricName = Literal["ttft_s", "itl_s", "tpot_s", "e2e_s"]
NAMES: dict[MetricName, str] = {"ttft_s": "TTFT", "itl_s": "ITL", "tpot_s": "TPOT", "e2e_s": "E2E"}


class ImportedMetric(WireModel):
    """One latency as the tool summed it up, in seconds. None: not in the file.

    n: requests, or gaps, behind it. definition: how the tool defines it, where that differs from
    ours (TTFT and E2E from the intended send; ITL every gap between tokens). reason: why there is
    no number at all.
    """

    metric: MetricName
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    n: int | None = None
    definition: str = ""
    reason: str | None = None

    @property
    def name(self) -> str:
        """As people write it."""
        return NAMES[self.metric]

    def value(self, statistic: str) -> float | None:
        """The number of `mean` or a percentile."""
        found = getattr(self, statistic, None) if statistic in _STATISTICS else None
        return found if isinstance(found, float) else None


_STATISTICS = frozenset({"mean", "p50", "p90", "p95", "p99"})


class ImportedTrial(WireModel):
    """One benchmark of another tool.

    loop: open where requests left at times of their own, closed where each waited for an answer.
    asked_rate_per_s: None for a closed loop or "as fast as possible". requests: sent and judged by
    the tool, failed ones among them. records: the single requests, empty where the file has only
    sums; then nothing about percentiles can be proven. notes: what to doubt, in sentences.
    """

    tool: Tool
    tool_version: str | None
    label: str = Field(max_length=200)
    model: str | None = None
    loop: Literal["open", "closed", "unknown"]
    asked_rate_per_s: float | None = None
    concurrency: int | None = None
    requests: int
    failed: int
    duration_s: Quantity
    requests_per_s: Quantity
    output_tok_s: Quantity
    metrics: tuple[ImportedMetric, ...]
    records: tuple[RequestRecord, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def basis(self) -> str:
        """Where its numbers come from, for whoever shows them."""
        return f"imported: {self.tool} {self.tool_version or '(version not in the file)'}"

    def metric(self, name: str) -> ImportedMetric | None:
        """The latency of this name."""
        return next((one for one in self.metrics if one.metric == name), None)
