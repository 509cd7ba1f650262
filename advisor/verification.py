"""What an interleaved A/B trial proved about a candidate. Pure.

One number per run and metric (the mean over the run's requests), compared by the exact tests of
`gpuagent.stats.compare`: within pairs where prompts differ from pair to pair (lengths drawn from a
distribution, six pairs or more), over all runs where they are alike. The decisive metric is that of
the first target the current settings do not meet, else end-to-end latency. A candidate whose
perplexity rose beyond the allowed share is contradicted, however fast it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from advisor import units
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.targets import target_statuses
from advisor.thresholds import MAX_PERPLEXITY_INCREASE
from gpuagent.request_metrics import RequestMetrics, request_metrics, throughput
from gpuagent.stats import Comparison, compare, compare_pairs
from gpuagent.wire import EngineSettings, Workload
from gpuagent.wire.trial import AbRun, VerifyResult

MIN_PAIRED = 6
COMPARED = ("ttft_s", "itl_s", "e2e_s", "output_tok_s")

Outcome = Literal["verified", "not_proven", "contradicted"]


@dataclass(frozen=True, slots=True)
class VerificationOutcome:
    """comparisons: metric -> candidate against current; `decisive` names the one that decided."""

    status: Outcome
    trial: TrialEvidence
    candidate: EngineSettings
    decisive: str
    comparisons: dict[str, Comparison]
    sentence: str


def verification_of(
    evidence: StudyEvidence, candidate: EngineSettings
) -> VerificationOutcome | None:
    """The newest usable A/B trial of `candidate` against the current settings, judged."""
    for trial in reversed(evidence.trials):
        result = trial.measured(VerifyResult)
        if result is not None and trial.usable and result.candidate == candidate:
            return _judge(evidence, trial, result)
    return None


def _judge(
    evidence: StudyEvidence, trial: TrialEvidence, result: VerifyResult
) -> VerificationOutcome | None:
    comparisons = compare_runs(result, trial.spec.workload)
    if not comparisons:
        return None
    decisive = _decisive(evidence, comparisons)
    found = comparisons[decisive]
    worse_quality = quality_lost(result)
    status: Outcome = "not_proven"
    if worse_quality is not None or found.verdict == "worse":
        status = "contradicted"
    elif found.verdict == "better":
        status = "verified"
    return VerificationOutcome(
        status=status,
        trial=trial,
        candidate=result.candidate,
        decisive=decisive,
        comparisons=comparisons,
        sentence=_sentence(status, decisive, comparisons, worse_quality),
    )


def compare_runs(result: VerifyResult, workload: Workload) -> dict[str, Comparison]:
    """Candidate against current by metric; metrics that some run lacks are left out."""
    varies = "lognormal" in (workload.input_tokens.kind, workload.output_tokens.kind)
    values = [_run_values(run) for run in result.runs]
    found = {}
    for name in COMPARED:
        a_runs, b_runs = _split(_pairs(result, [value[name] for value in values]))
        if len(a_runs) < 2:
            continue
        test = compare_pairs if varies and len(a_runs) >= MIN_PAIRED else compare
        found[name] = test(a_runs, b_runs, lower_is_better=name != "output_tok_s")
    return found


def _pairs(result: VerifyResult, values: Sequence[float | None]) -> list[tuple[float, float]]:
    """(current, candidate) of each pair: two runs that follow each other, in either order.

    `values`: one number for each run of `result`.
    """
    found: dict[int, dict[str, float]] = {}
    for run, value in zip(result.runs, values, strict=True):
        if value is not None:
            found.setdefault(run.order // 2, {})[run.side] = value
    return [(pair["a"], pair["b"]) for _, pair in sorted(found.items()) if len(pair) == 2]


def _split(pairs: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [a for a, _ in pairs], [b for _, b in pairs]


def run_values(result: VerifyResult, metric: str) -> tuple[list[float], list[float]]:
    """One number a run of `metric`: (of the current settings, of the candidate), in their order."""
    return _split(_pairs(result, [_run_values(run)[metric] for run in result.runs]))


def quality_lost(result: VerifyResult) -> float | None:
    """Relative rise of perplexity where it is beyond the allowed share, else None."""
    if result.perplexity_a is None or result.perplexity_b is None:
        return None
    rise = result.perplexity_b.value / result.perplexity_a.value - 1
    return rise if rise > MAX_PERPLEXITY_INCREASE.value else None


def _run_values(run: AbRun) -> dict[str, float | None]:
    """Every compared metric of a run at once: its requests are read but once."""
    metrics: RequestMetrics = request_metrics(run.requests)
    found: dict[str, float | None] = {"output_tok_s": throughput(metrics).value_tok_s}
    samples = {"ttft_s": metrics.ttft_s, "itl_s": metrics.itl_s, "e2e_s": metrics.e2e_s}
    for name, values in samples.items():
        mean = float(np.mean(values)) if values.size else 0.0
        found[name] = mean if mean > 0 else None
    return found


def _decisive(evidence: StudyEvidence, comparisons: dict[str, Comparison]) -> str:
    for status in target_statuses(evidence.current, evidence.spec):
        if status.verdict != "met" and status.target.metric in comparisons:
            return status.target.metric
    return "e2e_s" if "e2e_s" in comparisons else next(iter(comparisons))


def _sentence(
    status: Outcome, decisive: str, comparisons: dict[str, Comparison], rise: float | None
) -> str:
    found = comparisons[decisive]
    name = units.METRIC_NAMES[decisive]
    pairs = f"{found.n_b} runs each, interleaved"
    if rise is not None:
        return f"Contradicted by A/B: perplexity rises by {units.percent(rise)} ({pairs})"
    if status == "not_proven":
        return f"A/B proved no difference in {name}: {found.reason} ({pairs})"
    head = "Verified" if status == "verified" else "Contradicted"
    proof = f"{interval_of(found)}; {pairs}; p = {found.p_value:.3f}"
    text = f"{head} by A/B: {name} {signed_percent(found.ratio - 1)} ({proof})"
    also = [
        f"{units.METRIC_NAMES[metric]} {signed_percent(other.ratio - 1)} ({interval_of(other)})"
        for metric, other in comparisons.items()
        if metric != decisive and other.verdict == "worse" and status == "verified"
    ]
    return f"{text}; but {', '.join(also)}" if also else text


def interval_of(found: Comparison) -> str:
    """ "95 % interval −50 % to −46 %" of the change; more digits where the ends read the same."""
    low, high = found.low - 1, found.high - 1
    digits = 2
    while digits < 4 and signed_percent(low, digits) == signed_percent(high, digits):
        digits += 1
    ends = f"{signed_percent(low, digits)} to {signed_percent(high, digits)}"
    return f"95{units.NBSP}% interval {ends}"


def signed_percent(fraction: float, digits: int = 2) -> str:
    text = units.percent(fraction, digits)
    return text if fraction < 0 else f"+{text}"
