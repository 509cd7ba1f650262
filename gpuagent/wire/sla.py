"""Service-level targets. The definition of each metric is stated once, here.

TTFT = first output token - intended send time. ITL = every gap between output tokens.
E2E = last token - intended send. Throughput = output tokens / (last token - first intended send).
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator

from gpuagent.wire.base import WireModel

LatencyMetric = Literal["ttft_s", "itl_s", "e2e_s"]
Metric = Literal["ttft_s", "itl_s", "e2e_s", "output_tok_s", "memory_bytes", "joules_per_token"]
Statistic = Literal["p50", "p90", "p95", "p99", "mean", "peak"]

PERCENTILES: dict[str, float] = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}

STATISTICS: dict[str, tuple[str, ...]] = {
    "ttft_s": ("p50", "p90", "p95", "p99", "mean"),
    "itl_s": ("p50", "p90", "p95", "p99", "mean"),
    "e2e_s": ("p50", "p90", "p95", "p99", "mean"),
    "output_tok_s": ("mean",),
    "memory_bytes": ("peak",),
    "joules_per_token": ("mean",),
}
"""Which statistics make sense for which metric."""

HIGHER_IS_BETTER = frozenset({"output_tok_s"})


_WRITTEN = re.compile(r"([a-z0-9_]+):([a-z0-9]+)(<=|>=)([0-9.eE+-]+)")


class SlaTarget(WireModel):
    """One limit, in SI units of the metric: at most `limit`, or at least for throughput."""

    metric: Metric
    statistic: Statistic
    limit: Annotated[float, Field(gt=0, le=1e15)]

    @model_validator(mode="after")
    def _statistic_fits(self) -> Self:
        allowed = STATISTICS[self.metric]
        if self.statistic not in allowed:
            raise ValueError(f"{self.metric} is judged by {', '.join(allowed)}")
        return self

    @property
    def key(self) -> str:
        return f"{self.metric}:{self.statistic}"

    @property
    def higher_is_better(self) -> bool:
        return self.metric in HIGHER_IS_BETTER

    @property
    def percentile(self) -> float | None:
        """The percentile as a fraction, or None for a mean or a peak."""
        return PERCENTILES.get(self.statistic)


def parse_target(text: str) -> SlaTarget:
    """`ttft_s:p99<=0.2` or `output_tok_s:mean>=100`. Raises ValueError with the accepted form."""
    found = _WRITTEN.fullmatch("".join(text.split()))
    if found is not None:
        metric, statistic, sign, limit = found.groups()
        try:
            target = SlaTarget.model_validate(
                {"metric": metric, "statistic": statistic, "limit": limit}
            )
        except ValidationError:
            target = None
        if target is not None and target.higher_is_better == (sign == ">="):
            return target
    forms = "; ".join(f"{metric}: {', '.join(names)}" for metric, names in STATISTICS.items())
    raise ValueError(
        f"target {text!r}: give METRIC:STATISTIC<=LIMIT in SI units, such as ttft_s:p99<=0.2, or "
        f"output_tok_s:mean>=LIMIT ({forms})"
    )
