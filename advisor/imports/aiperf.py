"""aiperf's profile_export_aiperf.json: one object, a block of statistics for each metric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from advisor.imports.errors import ImportRefused
from advisor.imports.fields import latency, mapping, number, optional_mapping, quantity, words
from advisor.imports.model import ImportedMetric, ImportedTrial, MetricName

_NAMES: tuple[tuple[MetricName, str, str], ...] = (
    ("ttft_s", "time_to_first_token", "from the real send of the request"),
    ("itl_s", "inter_chunk_latency", "every gap between chunks; a chunk may carry several tokens"),
    ("tpot_s", "inter_token_latency",
     "aiperf's ITL, per request: (latency - TTFT) / (tokens - 1)"),
    ("e2e_s", "request_latency", "from the real send of the request"),
)  # fmt: skip
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0}


def matches(document: Any) -> bool:
    """Whether it is such a file."""
    if not isinstance(document, Mapping):
        return False
    rows = _rows(document)
    return isinstance(rows.get("request_latency"), Mapping) and "unit" in rows["request_latency"]


def read(document: Mapping[str, Any]) -> tuple[ImportedTrial, ...]:
    """The run as one trial."""
    rows = _rows(document)
    succeeded = _scalar(rows, "request_count")
    if succeeded is None:
        raise ImportRefused("request_count", "is missing")
    failed = int(_scalar(rows, "error_request_count") or 0)
    config = optional_mapping(document.get("input_config"), "input_config")
    load = config.get("loadgen")
    load = load if isinstance(load, Mapping) else {}
    rate = number(load, "request_rate", "input_config.loadgen")
    concurrency = number(load, "concurrency", "input_config.loadgen")
    loop: Literal["open", "closed", "unknown"] = "unknown"
    if rate is not None or concurrency is not None:
        loop = "open" if rate is not None and concurrency is None else "closed"
    duration = optional_mapping(rows.get("benchmark_duration"), "benchmark_duration")
    scale = _scale(duration, "benchmark_duration") if duration else 1.0
    lasted = number(duration, "avg", "benchmark_duration")
    models = optional_mapping(config.get("endpoint"), "input_config.endpoint").get("model_names")
    return (
        ImportedTrial(
            tool="aiperf",
            tool_version=words(document.get("aiperf_version"), 50),
            label="profile",
            model=words(models[0]) if isinstance(models, list) and models else None,
            loop=loop,
            asked_rate_per_s=rate,
            concurrency=int(concurrency) if concurrency else None,
            requests=int(succeeded) + failed,
            failed=failed,
            duration_s=quantity(None if lasted is None else lasted * scale, "not in the file"),
            requests_per_s=quantity(_scalar(rows, "request_throughput"), "not in the file"),
            output_tok_s=quantity(_scalar(rows, "output_token_throughput"), "not in the file"),
            metrics=tuple(_metric(rows, *names) for names in _NAMES),
            mean_input_tokens=_scalar(rows, "input_sequence_length"),
            mean_output_tokens=_scalar(rows, "output_sequence_length"),
            notes=("Only sums are in the file, so no target can be proven with it.",),
        ),
    )


def _rows(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Older versions keep the metrics one level deeper."""
    records = document.get("records")
    return records if isinstance(records, Mapping) else document


def _scalar(rows: Mapping[str, Any], name: str) -> float | None:
    return number(optional_mapping(rows.get(name), name), "avg", name)


def _scale(row: Mapping[str, Any], name: str) -> float:
    unit = row.get("unit")
    if not isinstance(unit, str) or unit not in _SECONDS:
        raise ImportRefused(f"{name}.unit", f"must be a unit of time, not {str(unit)[:30]!r}")
    return _SECONDS[unit]


def _metric(
    rows: Mapping[str, Any], metric: MetricName, name: str, definition: str
) -> ImportedMetric:
    if rows.get(name) is None:
        reason = f"the file has no {name}: run it with --streaming"
        return ImportedMetric(metric=metric, definition=definition, reason=reason)
    row = mapping(rows[name], name)
    scale = _scale(row, name)

    def of(key: str) -> float | None:
        value = number(row, key, name)
        return None if value is None else value * scale

    count = number(row, "count", name)
    values = {"mean": of("avg")} | {key: of(key) for key in ("p50", "p90", "p95", "p99")}
    return latency(
        metric,
        values,
        n=int(count) if count is not None else None,
        definition=definition,
        absent=f"{name} holds no numbers",
    )
