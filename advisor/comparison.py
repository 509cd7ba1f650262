"""Two to four trials side by side: what differs in settings, and what that changed. Pure.

The first trial is the reference; every other is compared with it. Where an interleaved A/B of the
two settings exists, its runs decide, by the tests of `advisor.verification`. Otherwise the requests
of both trials are averaged in independent blocks and compared by the two-sample test; two trials
one after the other share no clock, so a difference must also exceed `UNVERIFIED_NOISE`, and the
metrics of a pair share the chance of a false alarm. Nothing is claimed across different hardware,
workloads or arrivals, nor from an invalid measurement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from advisor import units
from advisor.comparable import (
    MIN_BLOCKS,
    UNKNOWN_HARDWARE,
    hardware_of,
    request_blocks,
    workload_differences,
)
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.reported import AS_SENT, NOT_IN_FILE
from advisor.targets import (
    OF_TOKENS,
    SINGLE_READING_NOISE_FRAC,
    hides_tokens,
    in_flight,
    measured_at_rate,
    trial_metrics,
)
from advisor.thresholds import UNVERIFIED_NOISE
from advisor.verification import COMPARED, compare_runs, run_values, signed_percent
from gpuagent.request_metrics import RequestMetrics, throughput
from gpuagent.stats import Comparison, compare, noise_floor
from gpuagent.stats.compare import SIGNIFICANCE
from gpuagent.wire import EngineSettings, LengthSpec, Quantity
from gpuagent.wire.trial import BaselineResult, VerifyConfig, VerifyResult

LEAST, MOST = 2, 4

Verdict = Literal["better", "worse", "no_proven_difference", "no_claim"]
Method = Literal["interleaved", "one_after_other", "none"]


@dataclass(frozen=True, slots=True)
class Side:
    """One of the compared trials, with the study it belongs to."""

    evidence: StudyEvidence
    trial: TrialEvidence

    @property
    def settings(self) -> EngineSettings:
        """What it measured: of an A/B the candidate."""
        config = self.trial.spec.config
        return config.candidate if isinstance(config, VerifyConfig) else self.trial.settings


@dataclass(frozen=True, slots=True)
class Delta:
    """One metric of a pair. before, after: means in SI units of the metric.

    change_frac: (after − before) / before with its 95 % interval; None where nothing is claimed or
    nothing was measured, and `reason` says why. noise_frac: what the interval had to leave.
    noise_floor_frac: 95th percentile of what equal halves of the reference's own A/B runs differ
    by; None without an A/B or with fewer than four runs. n: runs, blocks or readings of each side.
    """

    metric: str
    verdict: Verdict
    before: float | None
    after: float | None
    change_frac: float | None
    low_frac: float | None
    high_frac: float | None
    p_value: float | None
    noise_frac: float | None
    noise_floor_frac: float | None
    n: tuple[int, int]
    unit_of_n: Literal["run", "block", "reading"]
    reason: str


@dataclass(frozen=True, slots=True)
class Pair:
    """A trial against the reference. caveat: why nothing may be claimed, or "".

    evidence_trial_id: the A/B trial whose runs decided, else None.
    """

    before: Side
    after: Side
    method: Method
    how: str
    caveat: str
    evidence_trial_id: str | None
    deltas: tuple[Delta, ...]


@dataclass(frozen=True, slots=True)
class DifferingLine:
    """A setting or a fact of the environment with its value in each trial, in their order."""

    name: str
    values: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class TrialComparison:
    """settings, environment: only what differs; *_alike counts the rest."""

    sides: tuple[Side, ...]
    settings: tuple[DifferingLine, ...]
    settings_alike: int
    environment: tuple[DifferingLine, ...]
    environment_alike: int
    pairs: tuple[Pair, ...]


def compare_trials(sides: tuple[Side, ...]) -> TrialComparison:
    """Raises ValueError unless two to four different trials are given."""
    ids = [side.trial.trial_id for side in sides]
    if not LEAST <= len(ids) <= MOST or len(set(ids)) != len(ids):
        raise ValueError(f"{LEAST} to {MOST} different trials can be compared")
    settings, settings_alike = _differing([dict(side.settings.model_dump()) for side in sides])
    if any(side.trial.spec.engine == "imported" for side in sides):
        # What stands in an imported trial are defaults: its file tells no settings.
        settings, settings_alike = (), 0
    environment, environment_alike = _differing([_environment(side) for side in sides])
    return TrialComparison(
        sides=sides,
        settings=settings,
        settings_alike=settings_alike,
        environment=environment,
        environment_alike=environment_alike,
        pairs=tuple(_pair(sides[0], other) for other in sides[1:]),
    )


def _differing(facts: list[dict[str, object]]) -> tuple[tuple[DifferingLine, ...], int]:
    names = list(dict.fromkeys(name for one in facts for name in one))
    lines = [DifferingLine(name, tuple(one.get(name) for one in facts)) for name in names]
    differing = tuple(line for line in lines if any(v != line.values[0] for v in line.values))
    return differing, len(lines) - len(differing)


def _environment(side: Side) -> dict[str, object]:
    """What the numbers of a trial may depend on beside its settings."""
    spec = side.trial.spec
    workload = spec.workload
    facts: dict[str, object] = {
        "Model": spec.model.label,
        "Engine": spec.engine,
        "Experiment": spec.experiment,
        "Input tokens": _length(workload.input_tokens),
        "Output tokens": _length(workload.output_tokens),
        "Request rate": (AS_SENT if spec.engine == "imported" else _closed_loop(side.trial))
        if workload.request_rate_per_s is None
        else f"{units.number(workload.request_rate_per_s)} req/s",
    }
    if side.trial.result is None:
        return facts
    found = side.trial.result.environment
    facts |= {
        "Hardware": ", ".join(hardware_of(found)),
        "Host": found.host.hostname if found.host is not None else units.DASH,
        "System": found.host.os if found.host is not None else units.DASH,
        "Driver": found.driver_version or units.DASH,
        "Threads": str(found.threads) if found.threads is not None else units.DASH,
    }
    return facts | dict(found.versions)


def _closed_loop(trial: TrialEvidence) -> str:
    streams = in_flight(trial)
    return f"{streams} requests in flight" if streams > 1 else "one at a time"


def _length(length: LengthSpec) -> str:
    told = length.kind != "unknown"
    return f"{length.kind}, mean {length.text}" if told else NOT_IN_FILE


# --- one pair -----------------------------------------------------------------------------------


def _pair(before: Side, after: Side) -> Pair:
    caveat = _caveat(before, after)
    if caveat:
        return Pair(before, after, "none", "", caveat, None, _unclaimed(before, after, caveat))
    trial = _interleaved(before, after)
    result = trial.measured(VerifyResult) if trial is not None else None
    if trial is not None and result is not None:
        found = compare_runs(result, trial.spec.workload)
        n = next(iter(found.values())).n_a if found else 0
        how = f"{n} A/B pairs, interleaved in trial {trial.ordinal}"
        deltas = [_of_runs(result, name, one) for name, one in found.items()]
        deltas += _readings(before, after)
        return Pair(before, after, "interleaved", how, "", trial.trial_id, tuple(deltas))
    how = "measured one after the other, not interleaved: slow drift of the device is not excluded"
    deltas = [*_of_blocks(before, after), *_readings(before, after)]
    return Pair(before, after, "one_after_other", how, "", None, tuple(deltas))


def _caveat(before: Side, after: Side) -> str:
    """Why no difference may be claimed, or ""."""
    for side in (before, after):
        trial = side.trial
        if trial.result is None:
            return f"trial {trial.ordinal} has no result"
        if not trial.usable:
            return (
                f"the measurement of trial {trial.ordinal} is invalid: "
                f"{trial.result.validity.reasons[0]}"
            )
        if trial_metrics(trial) is None:
            return f"trial {trial.ordinal} sent no requests of the workload"
    first, second = before.trial, after.trial
    if first.result is None or second.result is None:
        return ""
    then, now = hardware_of(first.result.environment), hardware_of(second.result.environment)
    if then != now:
        return f"the hardware differs ({', '.join(then)} and {', '.join(now)})"
    engines = {first.spec.engine, second.spec.engine}
    if len(engines) == 2 and engines & {"simulated", "imported"}:
        simulated = "simulated" in engines
        return "one of the two is simulated" if simulated else "one of the two is imported"
    if UNKNOWN_HARDWARE in then:
        return "the imported files do not tell the hardware: name it when keeping them"
    for trial in (first, second):
        metrics = trial_metrics(trial)
        if metrics is None or metrics.sent == 0:
            return f"trial {trial.ordinal} holds no single requests, only sums"
    different = workload_differences(first.spec.workload, second.spec.workload)
    if different:
        return f"the workload differs in {', '.join(different)}"
    if _interleaved(before, after) is None and _open_loop(first) != _open_loop(second):
        return "the requests arrive differently (on a schedule, and one after the other)"
    return ""


def _open_loop(trial: TrialEvidence) -> bool:
    result = trial.measured(BaselineResult)
    return result is not None and result.arrivals == "poisson"


def _interleaved(before: Side, after: Side) -> TrialEvidence | None:
    """The newest usable A/B of exactly these two settings in their study."""
    if before.evidence.study_id != after.evidence.study_id:
        return None
    for trial in reversed(before.evidence.trials):
        result = trial.measured(VerifyResult)
        if (
            result is not None
            and trial.usable
            and trial.settings == before.settings
            and result.candidate == after.settings
        ):
            return trial
    return None


def _of_runs(result: VerifyResult, metric: str, found: Comparison) -> Delta:
    a, b = run_values(result, metric)
    return _delta(
        metric,
        found.verdict,
        (float(np.mean(a)), float(np.mean(b))),
        found,
        noise_frac=found.noise_frac,
        floor=noise_floor(a),
        unit="run",
        reason=found.reason,
    )


def _told(before: Side, after: Side) -> tuple[str, ...]:
    """Metrics that the requests of both tell: chunks of several tokens hide gaps and counts."""
    hidden = any(hides_tokens(side.trial) for side in (before, after))
    return tuple(name for name in COMPARED if not hidden or name not in OF_TOKENS)


def _of_blocks(before: Side, after: Side) -> list[Delta]:
    old, new = trial_metrics(before.trial), trial_metrics(after.trial)
    if old is None or new is None:
        return []
    # At a rate of its own, throughput is that rate, however fast the answers are.
    at_rate = any(measured_at_rate(side.trial) for side in (before, after))
    skipped = at_rate or old.overlapping or new.overlapping
    names = [name for name in _told(before, after) if name != "output_tok_s" or not skipped]
    return [_blocks_delta(name, old, new, len(names)) for name in names]


def _blocks_delta(name: str, old: RequestMetrics, new: RequestMetrics, shared_by: int) -> Delta:
    a, b = request_blocks(old, name), request_blocks(new, name)
    values = (_mean(old, name), _mean(new, name))
    if min(a.size, b.size) < MIN_BLOCKS or min(a.min(), b.min()) <= 0:
        reason = f"{a.size} and {b.size} independent blocks; a comparison needs {MIN_BLOCKS} each"
        return _none(name, "no_proven_difference", values, (a.size, b.size), "block", reason)
    found = compare(a, b, lower_is_better=name != "output_tok_s")
    verdict, reason = found.verdict, found.reason
    limit = UNVERIFIED_NOISE.value
    if verdict != "no_proven_difference":
        if found.p_value * shared_by > SIGNIFICANCE:
            verdict = "no_proven_difference"
            reason = f"p = {found.p_value:.3f} is not enough for {shared_by} metrics at once"
        elif not (found.high < 1 - limit or found.low > 1 + limit):
            verdict = "no_proven_difference"
            allowed = units.percent(limit)
            reason = f"two trials one after the other differ by up to {allowed} anyway"
    noise = max(found.noise_frac, limit)
    return _delta(name, verdict, values, found, noise_frac=noise, unit="block", reason=reason)


def _readings(before: Side, after: Side) -> list[Delta]:
    """Memory and energy: one reading a trial, so the interval is what one reading may be off by."""
    first, second = (side.trial.measured(BaselineResult) for side in (before, after))
    if first is None or second is None:
        return []
    deltas = []
    if first.memory_kind == second.memory_kind:
        values = (first.peak_memory_bytes, second.peak_memory_bytes)
        deltas.append(_reading("memory_bytes", values, 0.0))
    values = (first.joules_per_token, second.joules_per_token)
    if any(value.value is not None for value in values):
        deltas.append(_reading("joules_per_token", values, SINGLE_READING_NOISE_FRAC))
    return deltas


def _reading(name: str, quantities: tuple[Quantity, Quantity], noise: float) -> Delta:
    a, b = (quantity.value for quantity in quantities)
    if a is None or b is None or a <= 0:
        absent = quantities[0] if a is None else quantities[1]
        reason = absent.reason or "not measured"
        return _none(
            name, "no_claim", (a, b), (int(a is not None), int(b is not None)), "reading", reason
        )
    ratio = b / a
    low, high = ratio * (1 - noise) / (1 + noise), ratio * (1 + noise) / (1 - noise)
    limit = UNVERIFIED_NOISE.value
    verdict: Verdict = "no_proven_difference"
    reason = f"two trials one after the other differ by up to {units.percent(limit)} anyway"
    if high < 1 - limit:
        verdict, reason = "better", ""
    elif low > 1 + limit:
        verdict, reason = "worse", ""
    return Delta(
        metric=name,
        verdict=verdict,
        before=a,
        after=b,
        change_frac=ratio - 1,
        low_frac=low - 1 if noise else None,
        high_frac=high - 1 if noise else None,
        p_value=None,
        noise_frac=limit,
        noise_floor_frac=None,
        n=(1, 1),
        unit_of_n="reading",
        reason=reason,
    )


def _unclaimed(before: Side, after: Side, caveat: str) -> tuple[Delta, ...]:
    """The means where both have them, without any change: the reader sees what was measured."""
    old, new = trial_metrics(before.trial), trial_metrics(after.trial)
    if old is None or new is None:
        return ()
    values = [(name, _mean(old, name), _mean(new, name)) for name in _told(before, after)]
    return tuple(
        _none(name, "no_claim", (a, b), (old.succeeded, new.succeeded), "reading", caveat)
        for name, a, b in values
        if a is not None or b is not None
    )


def _mean(metrics: RequestMetrics, name: str) -> float | None:
    if name == "output_tok_s":
        return throughput(metrics).value_tok_s
    values = {"ttft_s": metrics.ttft_s, "itl_s": metrics.itl_s, "e2e_s": metrics.e2e_s}[name]
    return float(values.mean()) if values.size else None


def _delta(
    metric: str,
    verdict: Verdict,
    values: tuple[float | None, float | None],
    found: Comparison,
    *,
    noise_frac: float,
    unit: Literal["run", "block"],
    reason: str,
    floor: float | None = None,
) -> Delta:
    return Delta(
        metric=metric,
        verdict=verdict,
        before=values[0],
        after=values[1],
        change_frac=found.ratio - 1,
        low_frac=found.low - 1,
        high_frac=found.high - 1,
        p_value=found.p_value,
        noise_frac=noise_frac,
        noise_floor_frac=floor,
        n=(found.n_a, found.n_b),
        unit_of_n=unit,
        reason=reason,
    )


def _none(
    metric: str,
    verdict: Verdict,
    values: tuple[float | None, float | None],
    n: tuple[int, int],
    unit: Literal["run", "block", "reading"],
    reason: str,
) -> Delta:
    return Delta(
        metric, verdict, values[0], values[1], None, None, None, None, None, None, n, unit, reason
    )


# --- words --------------------------------------------------------------------------------------


def sentence(pair: Pair, before: str, after: str) -> str:
    """One pair in a sentence, the proven changes first; before, after: names of the two trials."""
    if pair.caveat:
        return f"No claim about {after} against {before}: {pair.caveat}"
    found = {v: [d for d in pair.deltas if d.verdict == v] for v in ("better", "worse")}
    if not any(found.values()):
        return f"No proven difference between {before} and {after}"
    parts = []
    for verdict, deltas in found.items():
        if deltas:
            text = ", ".join(
                f"{_inside(units.METRIC_NAMES[d.metric])} {signed_percent(d.change_frac or 0.0)}"
                for d in deltas
            )
            parts.append(f"{verdict} in {text}")
    return f"{after[:1].upper()}{after[1:]} against {before}: {'; '.join(parts)}"


def _inside(name: str) -> str:
    """A metric's name inside a sentence; abbreviations keep their capitals."""
    return name if name[1:2].isupper() else name[:1].lower() + name[1:]
