"""Numbers that rules, verdict and planner all compare trials by. Pure.

Two trials run one after the other share no clock and no weather, so every ratio here is "measured
once" until a verification interleaves the two; `UNVERIFIED_NOISE` is what it must exceed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor import units
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.shapes import ModelShape
from advisor.targets import TargetStatus, target_statuses, trial_metrics
from gpuagent.request_metrics import Floats, RequestMetrics, throughput
from gpuagent.stats.distributions import t_quantile
from gpuagent.stats.quantiles import nearest_rank
from gpuagent.wire import EngineSettings, Samples, SlaTarget
from gpuagent.wire.trial import BaselineConfig, BaselineResult, GridCell

BASELINE_ROLES = ("current", "variant")
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class Ratio:
    """b / a with its 95 % interval from repeats within the trials; n pairs of samples or cells."""

    value: float
    low: float | None
    high: float | None
    n: int

    def below(self, noise_frac: float) -> bool:
        """Whether b is smaller by more than the noise; without an interval, by value alone."""
        return (self.high if self.high is not None else self.value) < 1 - noise_frac

    def above(self, noise_frac: float) -> bool:
        return (self.low if self.low is not None else self.value) > 1 + noise_frac

    @property
    def inverse(self) -> Ratio:
        low = 1 / self.high if self.high else None
        high = 1 / self.low if self.low else None
        return Ratio(1 / self.value, low, high, self.n)


def baselines(evidence: StudyEvidence) -> tuple[TrialEvidence, ...]:
    """Usable baseline trials, the current settings first; of repeats the last."""
    found = [
        t
        for t in evidence.trials
        if t.role in BASELINE_ROLES and t.usable and t.measured(BaselineResult) is not None
    ]
    found = [t for t in found if not any(o.ordinal > t.ordinal and o.measures_as(t) for o in found)]
    return tuple(sorted(found, key=lambda t: (t.role != "current", t.ordinal)))


def baseline_of(trial: TrialEvidence) -> BaselineResult:
    """The baseline measurements of a trial from `baselines`."""
    result = trial.measured(BaselineResult)
    if result is None:
        raise ValueError(f"trial {trial.ordinal} has no baseline")
    return result


def dtype_of(trial: TrialEvidence) -> str:
    """The dtype that was really loaded; `auto` in the settings says nothing."""
    return baseline_of(trial).model.dtype


def resolved_dtype(settings: EngineSettings, shape: ModelShape | None) -> str:
    """The dtype that will be loaded: for `auto` the config's own, bfloat16 where it has none."""
    if settings.dtype != "auto":
        return settings.dtype
    own = shape.torch_dtype.removeprefix("torch.") if shape is not None else ""
    return own if own in DTYPE_BYTES else "bfloat16"


def cell_at(result: BaselineResult, *, batch: int = 1) -> GridCell | None:
    """The cell of this batch size with the shortest prompt."""
    cells = [cell for cell in result.cells if cell.batch == batch]
    return min(cells, key=lambda cell: cell.input_tokens, default=None)


def median_s(samples: Samples) -> float | None:
    return float(np.median(samples.values)) if samples.n else None


def sample_ratio(a: Samples, b: Samples, *, groups: int = 0) -> Ratio | None:
    """Geometric mean of b over that of a. groups: repeats whose samples belong together."""
    logs_a, logs_b = _group_logs(a, groups), _group_logs(b, groups)
    if logs_a is None or logs_b is None:
        return None
    return _ratio([(logs_a, logs_b)])


def decode_ratio(a: TrialEvidence, b: TrialEvidence) -> Ratio | None:
    """Decode step of b over a, paired by grid cell and averaged over the cells both measured."""
    return _cells_ratio(a, b, "decode_step_s")


def prefill_ratio(a: TrialEvidence, b: TrialEvidence) -> Ratio | None:
    return _cells_ratio(a, b, "prefill_s")


def answer_ratio(a: TrialEvidence, b: TrialEvidence) -> Ratio | None:
    """End-to-end latency of the workload's requests, b over a; None below five on a side."""
    first, second = trial_metrics(a), trial_metrics(b)
    if first is None or second is None or min(first.succeeded, second.succeeded) < 5:
        return None
    return _ratio([(np.log(first.e2e_s), np.log(second.e2e_s))])


def perplexity_increase(a: TrialEvidence, b: TrialEvidence) -> float | None:
    """Relative increase from a to b on the same text, or None where either has none."""
    first, second = baseline_of(a).perplexity, baseline_of(b).perplexity
    if first is None or second is None or first.text_sha256 != second.text_sha256:
        return None
    return second.value / first.value - 1


def point_value(target: SlaTarget, metrics: RequestMetrics | None, status: TargetStatus) -> float:
    """A number to rank by where a percentile has too few samples to be shown; NaN without any."""
    if status.value is not None:
        return status.value
    if metrics is None or metrics.succeeded == 0:
        return math.nan
    if target.metric == "output_tok_s":
        return throughput(metrics).value_tok_s or math.nan
    arrays = {"ttft_s": metrics.ttft_s, "itl_s": metrics.itl_s, "e2e_s": metrics.e2e_s}
    values = np.sort(arrays.get(target.metric, np.empty(0)))
    if values.size == 0:
        return math.nan
    if target.percentile is None:
        return float(values.mean())
    return float(values[nearest_rank(values.size, target.percentile)])


def distances(evidence: StudyEvidence, trial: TrialEvidence) -> tuple[float, ...]:
    """How far each target is from being kept, as a share of the limit: 0 at the limit, -0.2 with
    20 % of room, NaN where nothing was measured."""
    metrics = trial_metrics(trial)
    found = []
    for status in target_statuses(trial, evidence.spec):
        target = status.target
        value = point_value(target, metrics, status)
        if target.higher_is_better:
            found.append(target.limit / value - 1 if value > 0 else math.nan)
        else:
            found.append(value / target.limit - 1)
    return tuple(found)


def gain(evidence: StudyEvidence, current: TrialEvidence, other: TrialEvidence) -> float:
    """Share of the distance to the unmet targets that `other` closes, 0..1; 0 when all are met.

    A target that only `other` misses counts against it.
    """
    pairs = list(zip(distances(evidence, current), distances(evidence, other), strict=True))
    closed = [
        (now - max(then, 0.0)) / now for now, then in pairs if now > 0 and not math.isnan(then)
    ]
    broken = sum(1 for now, then in pairs if now <= 0 < then)
    if not closed:
        return 0.0
    return max(0.0, (sum(closed) - broken) / len(closed))


def times(ratio: float) -> str:
    """ "1.9 ×"."""
    return f"{units.number(ratio, 2)}{units.NBSP}×"


def interval_text(low: float | None, high: float | None) -> str:
    """ ", 95 % interval 1.8 to 2.0", or ", measured once" without one.

    Two digits, more where the ends would read the same.
    """
    if low is None or high is None:
        return ", measured once"
    digits = 2
    while digits < 4 and units.number(low, digits) == units.number(high, digits):
        digits += 1
    ends = f"{units.number(low, digits)} to {units.number(high, digits)}"
    return f", 95{units.NBSP}% interval {ends}"


def _cells_ratio(a: TrialEvidence, b: TrialEvidence, field: str) -> Ratio | None:
    first, second = a.measured(BaselineResult), b.measured(BaselineResult)
    if first is None or second is None:
        return None
    cells_b = {(c.batch, c.input_tokens): c for c in second.cells}
    pairs = []
    for cell in first.cells:
        other = cells_b.get((cell.batch, cell.input_tokens))
        if other is None:
            continue
        logs_a = _group_logs(getattr(cell, field), _repeats(a))
        logs_b = _group_logs(getattr(other, field), _repeats(b))
        if logs_a is not None and logs_b is not None:
            pairs.append((logs_a, logs_b))
    return _ratio(pairs) if pairs else None


def _repeats(trial: TrialEvidence) -> int:
    config = trial.spec.config
    return config.repeats if isinstance(config, BaselineConfig) else 0


def _group_logs(samples: Samples, groups: int) -> Floats | None:
    """log of the mean of each repeat: steps of one repeat are not independent."""
    values = np.asarray(samples.values, dtype=np.float64)
    if values.size == 0 or float(values.min()) <= 0:
        return None
    if groups >= 2 and values.size % groups == 0 and values.size > groups:
        values = values.reshape(groups, -1).mean(axis=1)
    return np.asarray(np.log(values), dtype=np.float64)


def _ratio(pairs: Sequence[tuple[Floats, Floats]]) -> Ratio:
    """exp of the mean difference of logs over the pairs; t interval with the least df of any."""
    centre = float(np.mean([b.mean() - a.mean() for a, b in pairs]))
    sizes = [min(a.size, b.size) for a, b in pairs]
    if min(sizes) < 2:
        return Ratio(math.exp(centre), None, None, len(pairs))
    variance = sum(a.var(ddof=1) / a.size + b.var(ddof=1) / b.size for a, b in pairs)
    half = t_quantile(0.975, min(sizes) - 1) * math.sqrt(float(variance)) / len(pairs)
    n = sum(sizes)
    return Ratio(math.exp(centre), math.exp(centre - half), math.exp(centre + half), n)
