"""guidellm's benchmarks.json: one trial for each benchmark (rate or concurrency) of the sweep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.imports.errors import ImportRefused
from advisor.imports.fields import (
    latency,
    mapping,
    number,
    optional_mapping,
    quantity,
    sequence,
    whole,
    words,
)
from advisor.imports.model import ImportedMetric, ImportedTrial, MetricName
from gpuagent.wire.imported import Loop

_ITL = "no single gaps in the file: guidellm's inter-token latency is each request's mean gap"
_NAMES: tuple[tuple[MetricName, str, float, str], ...] = (
    ("ttft_s", "time_to_first_token_ms", 1e-3, "from the real start of the request"),
    ("tpot_s", "inter_token_latency_ms", 1e-3, "guidellm's ITL: each request's mean gap, weighted "
     "by its tokens; its own TPOT includes TTFT and is not used"),
    ("e2e_s", "request_latency", 1.0, "from the real start of the request"),
)  # fmt: skip
_OPEN = ("constant", "poisson", "async", "trace")
_MOST_WARNINGS = 5
_MOST_BENCHMARKS = 200


def matches(document: Any) -> bool:
    """Whether it is such a file."""
    return isinstance(document, Mapping) and isinstance(document.get("benchmarks"), list)


def read(document: Mapping[str, Any]) -> tuple[ImportedTrial, ...]:
    """Every benchmark of the file, in its order."""
    meta = optional_mapping(document.get("metadata"), "metadata")
    benchmarks = sequence(document["benchmarks"], "benchmarks")
    if not benchmarks:
        raise ImportRefused("benchmarks", "is empty: the file holds no finished benchmark")
    if len(benchmarks) > _MOST_BENCHMARKS:
        raise ImportRefused("benchmarks", f"holds more than {_MOST_BENCHMARKS}: split the file")
    version = words(meta.get("guidellm_version"), 50)
    report = optional_mapping(document.get("config"), "config")
    return tuple(
        _trial(mapping(one, f"benchmarks.{i}"), i, version, report)
        for i, one in enumerate(benchmarks)
    )


def _trial(
    benchmark: Mapping[str, Any], i: int, version: str | None, report: Mapping[str, Any]
) -> ImportedTrial:
    path = f"benchmarks.{i}.metrics"
    metrics = mapping(benchmark.get("metrics"), path)
    totals = mapping(metrics.get("request_totals"), f"{path}.request_totals")
    successful = whole(totals, "successful", f"{path}.request_totals")
    errored = int(number(totals, "errored", f"{path}.request_totals") or 0)
    incomplete = int(number(totals, "incomplete", f"{path}.request_totals") or 0)
    config = optional_mapping(benchmark.get("config"), f"benchmarks.{i}.config")
    strategy = config.get("strategy")
    strategy = strategy if isinstance(strategy, Mapping) else {}
    kind = words(strategy.get("type_")) or words(strategy.get("kind")) or ""
    streams = _streams(strategy, f"benchmarks.{i}.config.strategy")
    notes = ["Only sums are in use: guidellm's percentiles are of successful requests."]
    if incomplete:
        notes.append(f"{incomplete} requests were cut off at the end and are not counted.")
    loop: Loop = "unknown"
    if kind:
        loop = "open" if kind.startswith(_OPEN) else "closed"
    rate = number(strategy, "rate", f"benchmarks.{i}.config.strategy") if loop == "open" else None
    if loop == "open" and streams is not None:
        loop = "closed"
        notes.append(
            f"max_concurrency of {streams} holds requests back; that wait is in no latency."
        )
    notes += _warnings(benchmark)
    return ImportedTrial(
        tool="guidellm",
        tool_version=version,
        label=f"{kind or 'benchmark'} {i + 1}",
        model=_model(config) or _model(report),
        loop=loop,
        asked_rate_per_s=rate,
        concurrency=streams,
        requests=successful + errored,
        failed=errored,
        duration_s=quantity(number(benchmark, "duration", f"benchmarks.{i}"), "not in the file"),
        requests_per_s=quantity(_mean(metrics, "requests_per_second", path), "not in the file"),
        output_tok_s=quantity(_mean(metrics, "output_tokens_per_second", path), "not in the file"),
        metrics=(
            *(_metric(metrics, path, *names, successful) for names in _NAMES),
            ImportedMetric(metric="itl_s", reason=_ITL),
        ),
        mean_input_tokens=_mean(metrics, "prompt_token_count", path),
        mean_output_tokens=_mean(metrics, "output_token_count", path),
        notes=tuple(notes),
    )


def _streams(strategy: Mapping[str, Any], path: str) -> int | None:
    """The most requests at once, where the strategy has such a limit."""
    for key in ("streams", "max_concurrency"):
        value = number(strategy, key, path)
        if value:
            return int(value) or None
    return None


def _model(config: Mapping[str, Any]) -> str | None:
    """Of the backend as in 0.8, or beside it."""
    backend = config.get("backend")
    named = words(backend.get("model")) if isinstance(backend, Mapping) else None
    return named or words(config.get("model"))


def _warnings(benchmark: Mapping[str, Any]) -> list[str]:
    """What the tool itself says against the run, such as a schedule that it missed."""
    found = benchmark.get("warnings")
    rows = [row for row in found if isinstance(row, Mapping)] if isinstance(found, list) else []
    told = [words(row.get("message"), 300) for row in rows[:_MOST_WARNINGS]]
    return [f"guidellm warns: {text}" for text in told if text]


def _successful(metrics: Mapping[str, Any], name: str, path: str) -> Mapping[str, Any]:
    summary = optional_mapping(metrics.get(name), f"{path}.{name}")
    return optional_mapping(summary.get("successful"), f"{path}.{name}.successful")


def _mean(metrics: Mapping[str, Any], name: str, path: str) -> float | None:
    return number(_successful(metrics, name, path), "mean", f"{path}.{name}.successful")


def _metric(
    metrics: Mapping[str, Any],
    path: str,
    metric: MetricName,
    name: str,
    scale: float,
    definition: str,
    successful: int,
) -> ImportedMetric:
    where = f"{path}.{name}.successful"
    summary = _successful(metrics, name, path)
    percentiles = optional_mapping(summary.get("percentiles"), f"{where}.percentiles")

    def of(row: Mapping[str, Any], key: str, at: str) -> float | None:
        value = number(row, key, at)
        return None if value is None else value * scale

    values = {"mean": of(summary, "mean", where)}
    for key in ("p50", "p90", "p95", "p99"):
        values[key] = of(percentiles, key, f"{where}.percentiles")
    if values["p50"] is None:
        values["p50"] = of(summary, "median", where)
    if successful == 0:
        # It writes zeros for what nothing was measured of.
        values = dict.fromkeys(values)
    absent = "no request succeeded" if successful == 0 else f"the file has no {name}"
    return latency(metric, values, n=successful, definition=definition, absent=absent)
