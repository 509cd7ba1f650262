"""The measurement checklist: one function per line, each from facts to a verdict with its number.

The verdict comes before any number of the result. Limits are in `limits.py`; what a check cannot
judge on this platform is `not_checked` with the reason, never passed in silence.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from gpuagent.experiments.base import Facts
from gpuagent.validity.lag import send_lag
from gpuagent.validity.limits import (
    LIMITS,
    POWER_CAP_NAMES,
    THROTTLE_NAMES,
)
from gpuagent.validity.window import Observed
from gpuagent.wire import EnvironmentSnapshot, GpuSample
from gpuagent.wire.inside import InsideResult, samples_of
from gpuagent.wire.measure import RequestRecord, Validity, ValidityCheck
from gpuagent.wire.parallel import TensorParallelResult
from gpuagent.wire.robustness import RobustnessResult
from gpuagent.wire.trial import (
    BaselineResult,
    KvCacheResult,
    Measurements,
    ProfileResult,
    VerifyResult,
)


def assess(
    result: Measurements, *, facts: Facts, observed: Observed, environment: EnvironmentSnapshot
) -> Validity:
    """All checks that apply to this kind of result."""
    # A robustness test judges what a server does, and times it by no repeats.
    behaviour = isinstance(result, RobustnessResult)
    checks = [] if behaviour else [_times_positive(result), _repeats(facts), _warmup(facts)]
    requests = _requests_of(result)
    if requests is not None:
        checks += [
            _token_order(requests),
            _completed(requests, facts),
            _sample_count(requests),
        ]
    if isinstance(result, BaselineResult):
        checks.append(_steady(result.requests))
        if result.arrivals == "poisson":
            checks += [_send_lag(result.requests), _saturated(result.requests)]
    host = [_other_load(observed), _steal(observed), *_gpu(observed)]
    checks += [_doubted(check) for check in host] if behaviour else host
    checks += facts.checks
    checks.append(_provenance(environment))
    checks += [_note(index, note) for index, note in enumerate(facts.notes, start=1)]
    return Validity(checks=tuple(checks))


def _doubted(check: ValidityCheck) -> ValidityCheck:
    """What a busy host makes of a behaviour: it may look slower, not other than it is."""
    return check.model_copy(update={"verdict": "warn"}) if check.verdict == "invalid" else check


def beyond(
    check_id: str, value: float, message: str, *, ok: str, limit_id: str | None = None
) -> ValidityCheck:
    """A check with a "higher is worse" limit from the table."""
    limit = LIMITS[limit_id or check_id]
    if limit.invalid is not None and value > limit.invalid:
        return ValidityCheck(
            id=check_id, verdict="invalid", message=message, value=value, limit=limit.invalid
        )
    if limit.warn is not None and value > limit.warn:
        return ValidityCheck(
            id=check_id, verdict="warn", message=message, value=value, limit=limit.warn
        )
    shown = limit.warn if limit.warn is not None else limit.invalid
    return ValidityCheck(id=check_id, verdict="valid", message=ok, value=value, limit=shown)


def not_checked(check_id: str, reason: str) -> ValidityCheck:
    return ValidityCheck(id=check_id, verdict="not_checked", message=reason)


def _times_positive(result: Measurements) -> ValidityCheck:
    values = list(_times_of(result))
    bad = [value for value in values if not value > 0]
    if bad or not values:
        return ValidityCheck(
            id="times_positive",
            verdict="invalid",
            message=f"{len(bad)} of {len(values)} measured times are not above zero",
            value=len(bad),
            limit=0,
        )
    return ValidityCheck(
        id="times_positive",
        verdict="valid",
        message=f"All {len(values)} measured times are above zero",
        value=0,
        limit=0,
    )


def _repeats(facts: Facts) -> ValidityCheck:
    ratios = facts.repeat_ratios
    if len(ratios) < 2:
        return not_checked("repeats_cov", "There were fewer than two repeats")
    cov = statistics.stdev(ratios) / statistics.fmean(ratios)
    return beyond(
        "repeats_cov",
        cov,
        f"The {len(ratios)} repeats differ by {cov:.1%} (coefficient of variation)",
        ok=f"The {len(ratios)} repeats agree within {cov:.1%}",
    )


def _warmup(facts: Facts) -> ValidityCheck:
    if facts.warmup_stable is None:
        return not_checked("warmup", "The experiment reported no warm-up")
    if facts.warmup_stable:
        return ValidityCheck(id="warmup", verdict="valid", message="Times settled in the warm-up")
    return ValidityCheck(
        id="warmup",
        verdict="warn",
        message="Times had not settled within 10 % when the warm-up ended",
    )


def _token_order(requests: Sequence[RequestRecord]) -> ValidityCheck:
    """First token no earlier than the send, tokens in order: then TTFT <= E2E and no ITL < 0."""
    wrong = sum(
        1
        for r in requests
        if r.token_s
        and (
            r.token_s[0] <= r.intended_s
            or r.sent_s < r.intended_s - 1e-9
            or any(b < a for a, b in zip(r.token_s, r.token_s[1:], strict=False))
        )
    )
    verdict = "invalid" if wrong else "valid"
    message = (
        f"{wrong} requests have tokens out of order"
        if wrong
        else "Every request's tokens follow its send time in order"
    )
    return ValidityCheck(
        id="token_order",
        verdict="invalid" if verdict == "invalid" else "valid",
        message=message,
        value=wrong,
        limit=0,
    )


def _completed(requests: Sequence[RequestRecord], facts: Facts) -> ValidityCheck:
    planned = max(facts.planned_requests, len(requests))
    good = sum(1 for r in requests if r.error is None and r.output_tokens == len(r.token_s) > 0)
    failed = sum(1 for r in requests if r.error is not None)
    missing_frac = (planned - good) / planned if planned else 1.0
    if failed == 0 and 0 < good < planned:
        # Cut short by the time limit: fewer samples, but none of them is wrong.
        return ValidityCheck(
            id="requests_completed",
            verdict="warn",
            message=f"{good} of {planned} requests fitted the time limit",
            value=missing_frac,
            limit=0,
        )
    return beyond(
        "requests_completed",
        missing_frac,
        f"{planned - good} of {planned} requests failed",
        ok=f"All {planned} requests completed",
    )


def _sample_count(requests: Sequence[RequestRecord]) -> ValidityCheck:
    n, limit = len(requests), LIMITS["sample_count"]
    if limit.invalid is not None and n < limit.invalid:
        return ValidityCheck(
            id="sample_count",
            verdict="invalid",
            message=f"{n} requests are too few for a median with an interval",
            value=n,
            limit=limit.invalid,
        )
    if limit.warn is not None and n < limit.warn:
        return ValidityCheck(
            id="sample_count",
            verdict="warn",
            message=f"{n} requests support a median, no percentile above it",
            value=n,
            limit=limit.warn,
        )
    return ValidityCheck(
        id="sample_count",
        verdict="valid",
        message=f"{n} requests were measured",
        value=n,
        limit=limit.warn,
    )


def _steady(requests: Sequence[RequestRecord]) -> ValidityCheck:
    gaps = [b - a for r in requests for a, b in zip(r.token_s, r.token_s[1:], strict=False)]
    if len(gaps) < 40:
        return not_checked("steady_state", "Too few tokens to compare the window's halves")
    half = len(gaps) // 2
    first, second = statistics.median(gaps[:half]), statistics.median(gaps[half:])
    drift = abs(second / first - 1) if first > 0 else 0.0
    return beyond(
        "steady_state",
        drift,
        f"Inter-token latency moved by {drift:.1%} between the window's halves",
        ok=f"Inter-token latency stayed within {drift:.1%} between the window's halves",
    )


def _send_lag(requests: Sequence[RequestRecord]) -> ValidityCheck:
    lag = send_lag(requests)
    if lag is None or not any(r.token_s for r in requests):
        return not_checked("send_lag", "No request was sent")
    return beyond(
        "send_lag",
        lag.p99_s / lag.allowed_s,
        f"Requests left {lag.p99_s * 1000:.1f} ms late (p99), {lag.allowed_s * 1000:.0f} ms are "
        "allowed: the client was the bottleneck",
        ok=f"Requests left on time (p99 {lag.p99_s * 1000:.1f} ms late)",
    )


def _saturated(requests: Sequence[RequestRecord]) -> ValidityCheck:
    ttfts = [r.token_s[0] - r.intended_s for r in requests if r.token_s]
    if len(ttfts) < 20:
        return not_checked("rate_sustained", "Too few requests to see a trend")
    half = len(ttfts) // 2
    first, second = statistics.median(ttfts[:half]), statistics.median(ttfts[half:])
    growth = second / first if first > 0 else 1.0
    if growth > 2.0:
        return ValidityCheck(
            id="rate_sustained",
            verdict="warn",
            message=f"Time to first token grew {growth:.1f} times during the run: the queue "
            "grows, the rate is not sustainable, and a longer run would look worse",
            value=growth,
            limit=2.0,
        )
    return ValidityCheck(
        id="rate_sustained",
        verdict="valid",
        message="Time to first token did not grow during the run",
        value=growth,
        limit=2.0,
    )


def _other_load(observed: Observed) -> ValidityCheck:
    if observed.other_cpu_frac is None:
        return not_checked("other_cpu_load", "Processor use of others is not readable here")
    value = observed.other_cpu_frac
    return beyond(
        "other_cpu_load",
        value,
        f"Other processes used {value:.0%} of the processor during the measurement",
        ok=f"Other processes used {value:.0%} of the processor",
    )


def _steal(observed: Observed) -> ValidityCheck:
    if observed.steal_frac is None:
        return not_checked("cpu_steal", "This platform does not report stolen processor time")
    value = observed.steal_frac
    return beyond(
        "cpu_steal",
        value,
        f"The hypervisor gave {value:.1%} of the processor to other machines",
        ok=f"Stolen processor time was {value:.1%}",
    )


def _gpu(observed: Observed) -> list[ValidityCheck]:
    samples = [gpu for sample in observed.samples for gpu in sample.gpus]
    if not samples:
        return []
    return [_foreign(samples), _throttled(samples), _power_capped(samples), _clocks(samples)]


def _foreign(samples: Sequence[GpuSample]) -> ValidityCheck:
    seen = [s.foreign_processes for s in samples if s.foreign_processes is not None]
    if not seen:
        return not_checked(
            "foreign_gpu_processes", "NVML shows no process ids of this host (container)"
        )
    most = max(seen)
    return beyond(
        "foreign_gpu_processes",
        most,
        f"{most} other compute processes used the GPU during the measurement",
        ok="No other process computed on the GPU",
    )


def _throttled(samples: Sequence[GpuSample]) -> ValidityCheck:
    names = sorted({n for s in samples for n in s.throttle_reasons if n in THROTTLE_NAMES})
    frac = _share(samples, THROTTLE_NAMES)
    return beyond(
        "gpu_throttled",
        frac,
        f"The GPU was slowed down in {frac:.1%} of the samples ({', '.join(names)})",
        ok="The GPU reported no thermal or hardware slow-down",
    )


def _power_capped(samples: Sequence[GpuSample]) -> ValidityCheck:
    frac = _share(samples, POWER_CAP_NAMES)
    clocks = [s.sm_clock_hz for s in _busy(samples) if s.sm_clock_hz is not None]
    mean = f", mean SM clock {statistics.fmean(clocks) / 1e6:.0f} MHz" if clocks else ""
    return beyond(
        "gpu_power_capped",
        frac,
        f"The power limit held the GPU back in {frac:.0%} of the samples{mean}",
        ok="The power limit did not hold the GPU back",
    )


def _clocks(samples: Sequence[GpuSample]) -> ValidityCheck:
    clocks = [s.sm_clock_hz for s in _busy(samples) if s.sm_clock_hz]
    if len(clocks) < 3:
        return not_checked("sm_clock_cov", "Fewer than three samples under load")
    cov = statistics.stdev(clocks) / statistics.fmean(clocks)
    return beyond(
        "sm_clock_cov",
        cov,
        f"The SM clock varied by {cov:.1%}",
        ok=f"The SM clock was steady within {cov:.1%}",
    )


def _provenance(environment: EnvironmentSnapshot) -> ValidityCheck:
    missing = [
        name for name in ("torch", "transformers", "agent") if name not in environment.versions
    ]
    if environment.gpus and environment.driver_version is None:
        missing.append("driver")
    if missing:
        return ValidityCheck(
            id="provenance",
            verdict="warn",
            message=f"The version of {', '.join(missing)} is not known",
            value=len(missing),
            limit=0,
        )
    return ValidityCheck(
        id="provenance", verdict="valid", message="Versions and settings are recorded"
    )


def _note(index: int, note: str) -> ValidityCheck:
    return ValidityCheck(id=f"note_{index}", verdict="warn", message=note[:1000])


def _busy(samples: Iterable[GpuSample]) -> list[GpuSample]:
    return [s for s in samples if s.util_frac is not None and s.util_frac > 0.05]


def _share(samples: Sequence[GpuSample], names: frozenset[str]) -> float:
    busy = _busy(samples) or list(samples)
    return sum(1 for s in busy if names & set(s.throttle_reasons)) / len(busy)


def _requests_of(result: Measurements) -> tuple[RequestRecord, ...] | None:
    if isinstance(result, BaselineResult):
        return result.requests
    if isinstance(result, VerifyResult):
        return tuple(request for run in result.runs for request in run.requests)
    return None


def _times_of(result: Measurements) -> Iterable[float]:
    if isinstance(result, BaselineResult):
        for cell in result.cells:
            yield from cell.prefill_s.values
            yield from cell.decode_step_s.values
    elif isinstance(result, KvCacheResult):
        for point in result.points:
            yield from point.cached_step_s.values
            yield from point.uncached_step_s.values
    elif isinstance(result, ProfileResult):
        yield from result.prefill_s.values
        yield from result.decode_step_s.values
    elif isinstance(result, InsideResult):
        for samples in samples_of(result):
            yield from samples.values
    elif isinstance(result, TensorParallelResult):
        for samples in result.samples():
            yield from samples.values
    for request in _requests_of(result) or ():
        if request.token_s:
            yield request.token_s[-1] - request.sent_s
