"""Raw request records to latency arrays. The one place that applies the metric definitions.

TTFT = first token - intended send, ITL = every gap between tokens, E2E = last token - intended
send, throughput = tokens / (last token - first intended send). Failed requests are kept apart:
they have no latency, and whoever judges a target counts them as over the limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuagent.stats import summarise
from gpuagent.wire.measure import RequestRecord
from gpuagent.wire.sla import Metric

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

# Requests that shared batches repeat each other's fate: checklist row 4 of the measurement rules.
MIN_BLOCK_S = 10.0
MAX_RATE_BLOCKS = 20
MIN_RATE_BLOCKS = 5


@dataclass(frozen=True, slots=True, eq=False)
class RequestMetrics:
    """Arrays over the requests that succeeded, in order of their intended send.

    ttft_s, e2e_s, queue_s, intended_s, output_tokens, run: [requests].
    itl_s: [gaps], itl_request: [gaps] the request that each gap belongs to.
    token_s: [tokens] arrival of every token; token_run: [tokens] its run.
    sent counts all requests, failed those with an error or without a token.
    """

    ttft_s: Floats
    e2e_s: Floats
    queue_s: Floats
    intended_s: Floats
    output_tokens: NDArray[np.int64]
    input_tokens: NDArray[np.int64]
    run: Labels
    itl_s: Floats
    itl_request: Labels
    token_s: Floats
    token_run: Labels
    sent: int
    failed: int
    errors: tuple[str, ...]

    @property
    def succeeded(self) -> int:
        return int(self.ttft_s.size)

    @property
    def overlapping(self) -> bool:
        """Whether any two requests of a run were in flight at the same time."""
        ends = self.intended_s + self.e2e_s
        for label in np.unique(self.run):
            mine = self.run == label
            if bool((self.intended_s[mine][1:] < ends[mine][:-1] - 1e-9).any()):
                return True
        return False


@dataclass(frozen=True, slots=True)
class Throughput:
    """Output tokens a second with the 95 % interval over blocks of time, or why there is none."""

    value_tok_s: float | None
    low: float | None
    high: float | None
    blocks: int
    reason: str


def request_metrics(
    requests: Iterable[RequestRecord], *, runs: Sequence[int] | None = None
) -> RequestMetrics:
    """Arrays from `requests`; `runs` labels each with the run it belongs to (A/B trials)."""
    records = list(requests)
    labels = list(runs) if runs is not None else [0] * len(records)
    if len(labels) != len(records):
        raise ValueError(f"{len(labels)} run labels for {len(records)} requests")
    pairs = sorted(zip(labels, records, strict=True), key=lambda p: (p[0], p[1].intended_s))
    good = [(run, r) for run, r in pairs if r.error is None and r.token_s]
    tokens = [np.asarray(r.token_s, dtype=np.float64) for _, r in good]
    counts = np.array([t.size for t in tokens], dtype=np.int64)
    intended = np.array([r.intended_s for _, r in good], dtype=np.float64)
    gaps = [np.diff(t) for t in tokens]
    run = np.array([label for label, _ in good], dtype=np.int64)
    errors = {r.error or "no token arrived" for _, r in pairs if r.error or not r.token_s}
    return RequestMetrics(
        ttft_s=np.array([t[0] for t in tokens], dtype=np.float64) - intended,
        e2e_s=np.array([t[-1] for t in tokens], dtype=np.float64) - intended,
        queue_s=np.array([r.sent_s for _, r in good], dtype=np.float64) - intended,
        intended_s=intended,
        output_tokens=counts,
        input_tokens=np.array([r.input_tokens for _, r in good], dtype=np.int64),
        run=run,
        itl_s=_joined(gaps),
        itl_request=np.repeat(np.arange(len(good), dtype=np.int64), np.maximum(counts - 1, 0)),
        token_s=_joined(tokens),
        token_run=np.repeat(run, counts),
        sent=len(records),
        failed=len(records) - len(good),
        errors=tuple(sorted(errors)),
    )


def dependence_labels(metrics: RequestMetrics) -> Labels | None:
    """A label for each request; those that share one are not independent. None: all are.

    Several runs: the run. Requests that overlapped: blocks of time of at least 10 s and twice the
    mean end-to-end latency.
    """
    if np.unique(metrics.run).size > 1:
        return metrics.run
    if not metrics.overlapping:
        return None
    block_s = max(MIN_BLOCK_S, 2 * float(metrics.e2e_s.mean()))
    since_s = metrics.intended_s - metrics.intended_s.min()
    return np.asarray(np.floor(since_s / block_s), dtype=np.int64)


def latency_samples(metric: Metric, metrics: RequestMetrics) -> tuple[Floats, Labels | None, float]:
    """Samples of the metric, what binds them together, and how many one request gives."""
    of_request = dependence_labels(metrics)
    if metric != "itl_s":
        values = metrics.ttft_s if metric == "ttft_s" else metrics.e2e_s
        return values, of_request, 1.0
    # Gaps of one request are dependent even when the requests themselves are not.
    labels = metrics.itl_request if of_request is None else of_request[metrics.itl_request]
    return metrics.itl_s, labels, metrics.itl_s.size / max(1, metrics.succeeded)


def with_failed(
    values: Floats, labels: Labels | None, failed: int, per_request: float
) -> tuple[Floats, Labels | None]:
    """Failed requests appended as +inf, each with as many samples as the others gave."""
    if failed == 0:
        return values, labels
    each = max(1, round(per_request))
    padded = np.concatenate((values, np.full(failed * each, np.inf)))
    if labels is None:
        return padded, None
    first = int(labels.max()) + 1
    extra = np.repeat(np.arange(first, first + failed, dtype=np.int64), each)
    return padded, np.concatenate((labels, extra))


def throughput(metrics: RequestMetrics) -> Throughput:
    """Tokens over time; the interval is a t interval over runs, or over blocks of one run."""
    if metrics.succeeded == 0:
        return Throughput(None, None, None, 0, "no request succeeded")
    rates: list[float] = []
    spans_s = 0.0
    for label in np.unique(metrics.run):
        start_s = float(metrics.intended_s[metrics.run == label].min())
        tokens_s = np.sort(metrics.token_s[metrics.token_run == label]) - start_s
        window_s = float(tokens_s[-1])
        if window_s <= 0:
            return Throughput(None, None, None, 0, "the tokens carry no times")
        spans_s += window_s
        rates.append(tokens_s.size / window_s)
        if np.unique(metrics.run).size == 1:
            rates = _block_rates(tokens_s, window_s, float(metrics.e2e_s.mean()))
    value = metrics.token_s.size / spans_s
    if len(rates) < MIN_RATE_BLOCKS:
        reason = f"{len(rates)} independent blocks; the interval needs {MIN_RATE_BLOCKS}"
        return Throughput(value, None, None, len(rates), reason)
    spread = summarise(rates)
    return Throughput(value, spread.mean_low, spread.mean_high, len(rates), "")


def _block_rates(tokens_s: Floats, window_s: float, mean_e2e_s: float) -> list[float]:
    """Rate in each of at most 20 equal blocks, none shorter than two requests."""
    blocks = min(MAX_RATE_BLOCKS, math.floor(window_s / (2 * mean_e2e_s) + 1e-9))
    if blocks < 1:
        return []
    counts, _ = np.histogram(tokens_s, bins=blocks, range=(0.0, window_s))
    return [float(count) * blocks / window_s for count in counts]


def _joined(parts: Sequence[Floats]) -> Floats:
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.float64)
