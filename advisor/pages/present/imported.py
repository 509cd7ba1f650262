"""The trial page of a result that was read from the file of another tool."""

from __future__ import annotations

from advisor import units
from advisor.evidence import TrialEvidence
from advisor.reported import AS_SENT, LOOPS, failed_words
from advisor.units import DASH
from gpuagent.wire import Quantity
from gpuagent.wire.imported import ImportedConfig
from gpuagent.wire.trial import ImportedResult

TABS = ("timing", "environment")
"""What such a trial can fill: nothing started it, and nothing watched the device."""
_PERCENTILES = ("p50", "p90", "p95", "p99")

SumLine = tuple[str, str, tuple[str, ...], str, str]


def imported_of(trial: TrialEvidence) -> ImportedResult | None:
    """The result, where another tool measured it."""
    return trial.measured(ImportedResult)


def facts(trial: TrialEvidence, result: ImportedResult) -> tuple[tuple[str, str], ...]:
    """(name, value) under the headline."""
    config = trial.spec.config
    asked = f"{units.number(result.asked_rate_per_s)} req/s" if result.asked_rate_per_s else AS_SENT
    if result.concurrency:
        asked += f", at most {result.concurrency:,} at once"
    return (
        ("Source", config.source if isinstance(config, ImportedConfig) else DASH),
        ("Model", trial.spec.model.label),
        ("Load", f"{asked}, {LOOPS[result.loop]}"),
        ("Requests", f"{result.sent:,}, {failed_words(result.failed)}"),
        ("Single requests", f"{len(result.requests):,}" if result.requests else "none in the file"),
    )


def sum_lines(result: ImportedResult) -> tuple[SumLine, ...]:
    """(metric, mean, percentiles, n, definition or why there is none), as the tool summed it up."""
    return tuple(
        (
            one.name,
            units.seconds(one.mean),
            tuple(units.seconds(one.value(p)) for p in _PERCENTILES),
            units.count(one.n),
            one.reason or one.definition,
        )
        for one in result.metrics
    )


def quantity_lines(result: ImportedResult) -> tuple[tuple[str, str, str], ...]:
    """(name, value, how or why not) of what the tool read once."""
    rate, output = result.requests_per_s, result.output_tok_s
    window = units.seconds(result.window_s or None)
    return (
        ("Requests a second", units.number(rate.value), _note(rate)),
        ("Throughput", units.rate(output.value), _note(output)),
        ("Duration", window, "" if result.window_s else "not in the file"),
        ("Peak memory", DASH, result.peak_memory_bytes.reason or ""),
        ("Energy", DASH, result.joules_per_token.reason or ""),
        ("Perplexity", DASH, result.perplexity_reason or ""),
    )


def _note(read: Quantity) -> str:
    return read.reason or "reported by the tool"
