"""What another load tool measured, as it travels and is stored: its own sums, with definitions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gpuagent.wire.base import WireModel
from gpuagent.wire.units import Name

Tool = Literal["vllm bench serve", "guidellm", "aiperf", "locust"]
MetricName = Literal["ttft_s", "itl_s", "tpot_s", "e2e_s"]
Loop = Literal["open", "closed", "unknown"]
NAMES: dict[MetricName, str] = {"ttft_s": "TTFT", "itl_s": "ITL", "tpot_s": "TPOT", "e2e_s": "E2E"}
_STATISTICS = frozenset({"mean", "p50", "p90", "p95", "p99"})


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


class ImportedConfig(WireModel):
    """Where a result was read from: a file by its hash, and which benchmark of it, from 0."""

    experiment: Literal["imported"] = "imported"
    tool: Tool
    tool_version: Name | None = None
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    benchmark: Annotated[int, Field(ge=0)] = 0

    @property
    def source(self) -> str:
        """Where its numbers come from, for whoever shows them."""
        return f"imported: {self.tool} {self.tool_version or '(version not in the file)'}"
