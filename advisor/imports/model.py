"""What an imported file becomes: one trial for each benchmark in it."""

from __future__ import annotations

from pydantic import Field

from gpuagent.wire.base import WireModel
from gpuagent.wire.imported import ImportedMetric as ImportedMetric
from gpuagent.wire.imported import Loop, Tool
from gpuagent.wire.imported import MetricName as MetricName
from gpuagent.wire.measure import Quantity, RequestRecord


class ImportedTrial(WireModel):
    """One benchmark of another tool.

    loop: open where requests left at times of their own, closed where each waited for an answer.
    asked_rate_per_s: None for a closed loop or "as fast as possible". requests: sent and judged by
    the tool, failed ones among them; failed: None where the file does not count them. records: the
    single requests, empty where the file has only sums; then nothing about percentiles can be
    proven. mean_input_tokens, mean_output_tokens: of a request that was answered, None where the
    file does not tell. notes: sentences of doubt.
    """

    tool: Tool
    tool_version: str | None
    label: str = Field(max_length=200)
    model: str | None = None
    loop: Loop
    asked_rate_per_s: float | None = None
    concurrency: int | None = None
    requests: int
    failed: int | None
    duration_s: Quantity
    requests_per_s: Quantity
    output_tok_s: Quantity
    metrics: tuple[ImportedMetric, ...]
    records: tuple[RequestRecord, ...] = ()
    mean_input_tokens: float | None = None
    mean_output_tokens: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def basis(self) -> str:
        """Where its numbers come from, for whoever shows them."""
        return f"imported: {self.tool} {self.tool_version or '(version not in the file)'}"

    def metric(self, name: str) -> ImportedMetric | None:
        """The latency of this name."""
        return next((one for one in self.metrics if one.metric == name), None)
