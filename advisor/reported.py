"""A target against the sums of another tool: what they say, and that sums prove nothing. Pure.

A sum does not tell which requests shared a batch or when they were sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from advisor.evidence import StudyEvidence
from gpuagent.wire import Quantity, SlaTarget
from gpuagent.wire.imported import ImportedConfig, ImportedMetric, Loop
from gpuagent.wire.trial import ImportedResult

ONLY_SUMS = "the file has only percentiles"
NOT_IN_FILE = "not in the file"
AS_SENT = "as the tool sent it"
LOOPS: dict[Loop, str] = {
    "open": "open loop",
    "closed": "closed loop",
    "unknown": "open or closed loop not known",
}


def source_of(evidence: StudyEvidence) -> str:
    """Where the numbers of an imported study come from."""
    configs = [trial.spec.config for trial in evidence.trials]
    return next((c.source for c in configs if isinstance(c, ImportedConfig)), "imported")


def how_to_prove(evidence: StudyEvidence) -> str:
    """What to run where an imported file holds no single requests; "" for every other study."""
    trial = evidence.current
    result = trial.measured(ImportedResult) if trial is not None else None
    if trial is None or result is None or result.requests:
        return ""
    config = trial.spec.config
    if isinstance(config, ImportedConfig) and config.tool == "vllm bench serve":
        return "Single requests: run the tool again with --save-detailed"
    return "Single requests: run vllm bench serve with --save-detailed, or measure with an agent"


def failed_words(failed: int | None) -> str:
    """How many requests failed, as far as the tool counts them."""
    return "failures not counted" if failed is None else f"{failed:,} failed"


def reported_value(
    target: SlaTarget,
    metrics: Sequence[ImportedMetric],
    output_tok_s: Quantity,
    *,
    answered: int,
) -> tuple[float | None, int | None, str]:
    """(value in SI units, n, why there is none). answered: requests behind a throughput."""
    if target.metric == "output_tok_s":
        return output_tok_s.value, answered, output_tok_s.reason or ""
    metric = next((one for one in metrics if one.metric == target.metric), None)
    if metric is None:
        return None, None, "load tools do not measure it"
    if metric.reason is not None:
        return None, None, metric.reason
    value = metric.value(target.statistic)
    return value, metric.n, f"the file has no {target.statistic} of it"


def side_of(target: SlaTarget, value: float) -> Literal["within", "beyond"]:
    """On which side of the limit a number lies."""
    keeps = value >= target.limit if target.higher_is_better else value <= target.limit
    return "within" if keeps else "beyond"


def reported_reason(
    target: SlaTarget, value: float, *, sent: int, failed: int | None, single_requests: bool
) -> str:
    """Why the tool's own number proves nothing."""
    side = side_of(target, value)
    if single_requests:
        return f"the tool's own number is {side} the limit; its chunks hide single tokens"
    lost = f", and {failed:,} of {sent:,} requests failed" if failed else ""
    return (
        f"the tool's own number is {side} the limit{lost}; the file holds no single requests, so "
        "nothing is proven"
    )
