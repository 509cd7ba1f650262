"""May this configuration ship? Current settings against targets and a baseline study. Pure.

The gate judges the *current* settings, which are what a change would deploy, never a better
configuration that the study found beside them. Two groups of checks:

sla: the targets as `advisor.targets` proves them.
regression: the same measurement in another study on the same hardware. Requests are averaged in
blocks (of time where they overlapped, of up to 20 equal parts where they did not), and the blocks
of both studies are compared by the two-sample test of `gpuagent.stats.compare`. Two studies were
not interleaved, so up to `UNVERIFIED_NOISE` counts as no regression. "Regressed" needs the whole
95 % interval beyond that and p <= 0.05 shared among the metrics; "no regression" needs the whole
interval within it; everything between is not proven.
"""

from __future__ import annotations

import math
from typing import Literal

from pydantic import BaseModel, ConfigDict

from advisor import units
from advisor.comparable import (
    MIN_BLOCKS,
    UNKNOWN_HARDWARE,
    hardware_of,
    request_blocks,
    workload_differences,
)
from advisor.errors import Conflict, InvalidInput
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.measures import baseline_of, perplexity_increase
from advisor.targets import (
    LATENCIES,
    OF_TOKENS,
    SINGLE_READING_NOISE_FRAC,
    TargetStatus,
    hides_tokens,
    target_label,
    target_statuses,
    trial_metrics,
)
from advisor.thresholds import MAX_PERPLEXITY_INCREASE, UNVERIFIED_NOISE
from advisor.verification import interval_of, signed_percent
from gpuagent.request_metrics import RequestMetrics
from gpuagent.stats import Comparison, compare
from gpuagent.stats.compare import SIGNIFICANCE
from gpuagent.wire import FailureReason, Quantity
from gpuagent.wire.trial import BaselineResult

CheckStatus = Literal["pass", "fail", "not_proven", "error"]
GateStatus = Literal["passed", "failed", "not_proven", "error"]

EXIT_CODES: dict[GateStatus, int] = {"passed": 0, "failed": 1, "error": 2, "not_proven": 3}
MAX_NEEDED = 100_000
NOT_THE_SETTINGS = frozenset({FailureReason.MODEL_NOT_FOUND, FailureReason.MODEL_UNSAFE})


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class GateCheck(_Value):
    """One line of the gate.

    value, low, high: the target's statistic in `unit`; of a regression the share by which it
    changed (0.1 = 10 % more than the baseline). n: samples or blocks behind it.
    """

    group: Literal["run", "sla", "regression"]
    name: str
    status: CheckStatus
    sentence: str
    unit: str | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0


class GateReport(_Value):
    """The answer to a pipeline. exit_code: 0 passed, 1 failed, 2 error, 3 not proven.

    changed: what differs from the baseline beside the measured numbers (settings, versions).
    """

    status: GateStatus
    exit_code: int
    sentence: str
    study_id: str
    study_number: int
    study_name: str
    baseline_id: str | None
    baseline_number: int | None
    hardware: str | None
    checks: tuple[GateCheck, ...]
    changed: tuple[str, ...] = ()


def gate(evidence: StudyEvidence, baseline: StudyEvidence | None = None) -> GateReport:
    """Judge a finished study. Raises Conflict where it has not finished and InvalidInput where
    there is nothing to judge by or the baseline measured something else."""
    if evidence.cancelled or not evidence.finished:
        state = "was cancelled" if evidence.cancelled else "has not finished"
        raise Conflict(f"The study {state}: only a finished study can be judged.")
    if not evidence.spec.targets and baseline is None:
        raise _refused("The study has no targets: name a baseline study to compare it with.")
    before = _baseline_trial(evidence, baseline) if baseline is not None else None
    current = evidence.current
    run = _run(current)
    checks = [run]
    if current is not None and run.status == "pass":
        checks += [_target(status) for status in target_statuses(current, evidence.spec)]
        if before is not None:
            checks += _regressions(evidence, before, current)
    status = _status(checks)
    environment = current.result.environment if current is not None and current.result else None
    return GateReport(
        status=status,
        exit_code=EXIT_CODES[status],
        sentence=_sentence(status, checks),
        study_id=evidence.study_id,
        study_number=evidence.number,
        study_name=evidence.name,
        baseline_id=baseline.study_id if baseline is not None else None,
        baseline_number=baseline.number if baseline is not None else None,
        hardware=", ".join(hardware_of(environment)) if environment is not None else None,
        checks=tuple(checks),
        changed=_changed(before, current) if before is not None and current is not None else (),
    )


def _status(checks: list[GateCheck]) -> GateStatus:
    found = {check.status for check in checks}
    if "fail" in found:
        return "failed"
    if "error" in found:
        return "error"
    return "not_proven" if "not_proven" in found else "passed"


def _sentence(status: GateStatus, checks: list[GateCheck]) -> str:
    kinds: dict[GateStatus, CheckStatus] = {
        "failed": "fail",
        "error": "error",
        "not_proven": "not_proven",
    }
    heads = {"failed": "Failed", "error": "Not judged", "not_proven": "Not proven"}
    if status == "passed":
        return f"Passed: all {len(checks)} checks"
    decisive = [check for check in checks if check.status == kinds[status]]
    more = f" (and {len(decisive) - 1} more)" if len(decisive) > 1 else ""
    return f"{heads[status]}: {decisive[0].name}{more}: {decisive[0].sentence}"


def _run(trial: TrialEvidence | None) -> GateCheck:
    """Whether the current settings gave a measurement that may be judged."""

    def line(status: CheckStatus, sentence: str) -> GateCheck:
        return GateCheck(group="run", name="Current settings", status=status, sentence=sentence)

    if trial is None:
        return line("error", "no trial measured them")
    if trial.failure is not None:
        ours = trial.failure.kind.retryable or trial.failure.reason in NOT_THE_SETTINGS
        text = f"{trial.failure.kind.text.lower()}: {trial.failure.message}"
        return line("error" if ours else "fail", text)
    if trial.result is None or trial.measured(BaselineResult) is None:
        return line("error", f"trial {trial.ordinal} has no result")
    if not trial.usable:
        return line("not_proven", f"the measurement is invalid: {trial.result.validity.reasons[0]}")
    return line("pass", f"measured by trial {trial.ordinal}")


def _target(status: TargetStatus) -> GateCheck:
    verdicts: dict[str, CheckStatus] = {"met": "pass", "missed": "fail"}
    value = ""
    if status.value is not None:
        value = f"{units.metric(status.target.metric, status.value)}; "
    return GateCheck(
        group="sla",
        name=target_label(status.target),
        status=verdicts.get(status.verdict, "not_proven"),
        sentence=f"{value}{status.reason}",
        unit=status.target.metric.rpartition("_")[2],
        value=status.value,
        low=status.low,
        high=status.high,
        n=status.n,
    )


# --- is it comparable? ---------------------------------------------------------------------------


def _refused(text: str) -> InvalidInput:
    return InvalidInput(f"baseline: {text}", {"baseline": [text]})


def _baseline_trial(evidence: StudyEvidence, baseline: StudyEvidence) -> TrialEvidence:
    """The baseline's measurement. Raises InvalidInput with what makes it no baseline."""
    if baseline.study_id == evidence.study_id:
        raise _refused("A study is no baseline of itself.")
    before, current = baseline.current, evidence.current
    if before is None or not before.usable or before.measured(BaselineResult) is None:
        raise _refused(f"Study {baseline.number} has no valid measurement of its current settings.")
    different = workload_differences(baseline.spec.workload, evidence.spec.workload)
    if current is not None and current.result is not None and before.result is not None:
        then = hardware_of(before.result.environment)
        now = hardware_of(current.result.environment)
        if UNKNOWN_HARDWARE in then:
            different.append("hardware (not in the imported file: name it when keeping it)")
        elif then != now:
            different.append(f"hardware ({', '.join(then)} and {', '.join(now)})")
        result = current.measured(BaselineResult)
        if result is not None and result.arrivals != baseline_of(before).arrivals:
            different.append("arrival of requests")
    if different:
        raise _refused(f"Study {baseline.number} differs in {'; '.join(different)}.")
    return before


def _changed(before: TrialEvidence, current: TrialEvidence) -> tuple[str, ...]:
    """Settings, model and versions that differ: what a regression may come from."""
    found = [
        f"{knob}: {old} → {new}"
        for knob, (old, new) in before.settings.differences(current.settings).items()
    ]
    if before.spec.model != current.spec.model:
        found.insert(0, f"model: {before.spec.model.label} → {current.spec.model.label}")
    if before.result is None or current.result is None:
        return tuple(found)
    then, now = before.result.environment, current.result.environment
    versions = {**then.versions, "driver": then.driver_version or "–"}
    new_versions = {**now.versions, "driver": now.driver_version or "–"}
    for name in sorted({*versions, *new_versions}):
        old, new = versions.get(name, "–"), new_versions.get(name, "–")
        if old != new:
            found.append(f"{name}: {old} → {new}")
    old_host, new_host = (one.host.hostname if one.host else "–" for one in (then, now))
    if old_host != new_host:
        found.append(f"host: {old_host} → {new_host}")
    return tuple(found)


# --- regressions ---------------------------------------------------------------------------------


def _regressions(
    evidence: StudyEvidence, before: TrialEvidence, current: TrialEvidence
) -> list[GateCheck]:
    targeted = {target.metric for target in evidence.spec.targets}
    metrics = [m for m in LATENCIES if m in targeted or m == "e2e_s" or not targeted]
    old, new = trial_metrics(before), trial_metrics(current)
    checks = []
    if old is not None and new is not None:
        overlapping = old.overlapping or new.overlapping
        if "output_tok_s" in targeted and not overlapping:
            metrics.append("output_tok_s")
        hidden = hides_tokens(before) or hides_tokens(current)
        checks = [
            _hidden(name)
            if hidden and name in OF_TOKENS
            else _compared(name, old, new, len(metrics))
            for name in metrics
        ]
        checks.append(_failed_requests(old, new))
    a, b = baseline_of(before), baseline_of(current)
    if a.memory_kind == b.memory_kind:
        checks += _reading("memory_bytes", a.peak_memory_bytes, b.peak_memory_bytes, 0.0)
    if "joules_per_token" in targeted:
        noise = SINGLE_READING_NOISE_FRAC
        checks += _reading("joules_per_token", a.joules_per_token, b.joules_per_token, noise)
    return checks + _quality(before, current)


def _hidden(name: str) -> GateCheck:
    return GateCheck(
        group="regression",
        name=f"{units.METRIC_NAMES[name]} against the baseline",
        status="not_proven",
        sentence="the tool's chunks carry several tokens each",
    )


def _compared(name: str, old: RequestMetrics, new: RequestMetrics, metrics: int) -> GateCheck:
    title = f"{units.METRIC_NAMES[name]} against the baseline"
    a, b = request_blocks(old, name), request_blocks(new, name)
    if min(a.size, b.size) < MIN_BLOCKS or min(a.min(), b.min()) <= 0:
        sentence = f"{a.size} and {b.size} blocks of requests; a comparison needs {MIN_BLOCKS} each"
        return GateCheck(group="regression", name=title, status="not_proven", sentence=sentence)
    found = compare(a, b, lower_is_better=name != "output_tok_s")
    status, verdict = _judged(found, name, metrics, sent=new.sent)
    proof = f"{interval_of(found)}; {found.n_a} and {found.n_b} blocks; p = {found.p_value:.3f}"
    return GateCheck(
        group="regression",
        name=title,
        status=status,
        sentence=f"{signed_percent(found.ratio - 1)} ({proof}): {verdict}",
        value=found.ratio - 1,
        low=found.low - 1,
        high=found.high - 1,
        n=found.n_a + found.n_b,
    )


def _judged(found: Comparison, name: str, metrics: int, *, sent: int) -> tuple[CheckStatus, str]:
    """Proven worse, proven not worse, or neither; always in terms of "times worse"."""
    worse = (found.low, found.ratio, found.high)
    if name == "output_tok_s":
        worse = (1 / found.high, 1 / found.ratio, 1 / found.low)
    low, ratio, high = worse
    limit = 1 + UNVERIFIED_NOISE.value
    allowed = units.percent(UNVERIFIED_NOISE.value)
    # Any one metric can fail the gate, so they share the chance of a false alarm.
    significant = found.p_value * metrics <= SIGNIFICANCE
    if found.verdict == "worse" and significant and low > limit:
        return "fail", f"worse by more than the {allowed} between two trials"
    if high <= limit:
        return "pass", f"no regression beyond {allowed}"
    text = f"neither a regression beyond {allowed} nor its absence is proven"
    distance = abs(limit - ratio)
    needed = math.ceil(sent * ((high - low) / 2 / distance) ** 2) if distance > 0 else MAX_NEEDED
    if sent < needed < MAX_NEEDED:
        text += f"; needs about {needed:,} requests"
    return "not_proven", text


def _failed_requests(old: RequestMetrics, new: RequestMetrics) -> GateCheck:
    """Fisher's exact test, one-sided: do more requests fail than did before?"""
    counted = f"{new.failed:,} of {new.sent:,}, before {old.failed:,} of {old.sent:,}"
    status: CheckStatus = "pass"
    text = "no rise"
    if new.failed * old.sent > old.failed * new.sent:
        p = _more_failures_p(old, new)
        status = "fail" if p <= SIGNIFICANCE else "not_proven"
        text = f"p = {p:.3f}"
    return GateCheck(
        group="regression",
        name="Failed requests against the baseline",
        status=status,
        sentence=f"{counted}: {text}",
        n=new.sent + old.sent,
    )


def _more_failures_p(old: RequestMetrics, new: RequestMetrics) -> float:
    total, failed = old.sent + new.sent, old.failed + new.failed
    ways = sum(
        math.comb(new.sent, k) * math.comb(old.sent, failed - k)
        for k in range(new.failed, min(failed, new.sent) + 1)
    )
    return ways / math.comb(total, failed)


def _reading(name: str, a: Quantity, b: Quantity, noise: float) -> list[GateCheck]:
    """One reading a trial: worse where it is so for every value within `noise` of both."""
    if a.value is None or b.value is None or a.value <= 0:
        return []
    ratio = b.value / a.value
    low, high = ratio * (1 - noise) / (1 + noise), ratio * (1 + noise) / (1 - noise)
    limit = 1 + UNVERIFIED_NOISE.value
    status: CheckStatus = "fail" if low > limit else "pass" if high <= limit else "not_proven"
    values = f"{units.metric(name, a.value)} → {units.metric(name, b.value)}"
    allowed = units.percent(UNVERIFIED_NOISE.value)
    return [
        GateCheck(
            group="regression",
            name=f"{units.METRIC_NAMES[name]} against the baseline",
            status=status,
            sentence=f"{signed_percent(ratio - 1)} ({values}, one reading each; {allowed} allowed)",
            value=ratio - 1,
            n=2,
        )
    ]


def _quality(before: TrialEvidence, current: TrialEvidence) -> list[GateCheck]:
    rise = perplexity_increase(before, current)
    if rise is None:
        return []
    allowed = MAX_PERPLEXITY_INCREASE.value
    return [
        GateCheck(
            group="regression",
            name="Perplexity against the baseline",
            status="fail" if rise > allowed else "pass",
            sentence=f"{signed_percent(rise)} on the same text; {units.percent(allowed)} allowed",
            value=rise,
            n=2,
        )
    ]
