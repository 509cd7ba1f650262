"""Latency of a trial for charts: the same numbers as its targets, and the samples behind them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.evidence import TrialEvidence
from advisor.targets import TargetStatus, target_status, trial_metrics
from gpuagent.wire import SlaTarget
from gpuagent.wire.sla import LatencyMetric, Statistic

_ANY_LIMIT_S = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class LatencySamples:
    """values: ascending, of the requests that succeeded. n: with the failed ones."""

    metric: LatencyMetric
    values: NDArray[np.float64]
    n: int
    failed: int


def latency_samples(trial: TrialEvidence, metric: LatencyMetric) -> LatencySamples | None:
    """Samples of "ttft_s", "itl_s" or "e2e_s"; None where the trial measured none.

    A failed request counts as over any limit: for ITL with as many gaps as the others had.
    """
    metrics = trial_metrics(trial)
    if metrics is None:
        return None
    arrays = {"ttft_s": metrics.ttft_s, "itl_s": metrics.itl_s, "e2e_s": metrics.e2e_s}
    values = np.sort(arrays[metric])
    if values.size == 0:
        return None
    each = max(1, round(values.size / max(1, metrics.succeeded)))
    return LatencySamples(metric, values, int(values.size) + metrics.failed * each, metrics.failed)


def latency_at(
    trial: TrialEvidence, metric: LatencyMetric, statistic: Statistic, limit_s: float | None = None
) -> TargetStatus:
    """A statistic of the trial's latency with its interval, computed as for a target."""
    target = SlaTarget(metric=metric, statistic=statistic, limit=limit_s or _ANY_LIMIT_S)
    return target_status(trial, target, trial.spec.workload)
