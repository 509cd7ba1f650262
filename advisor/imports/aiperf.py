"""aiperf's profile_export_aiperf.json: one object, a block of statistics for each metric."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from advisor.imports.errors import ImportRefused
from advisor.imports.fields import latency, mapping, number, optional_mapping, quantity, words
from advisor.imports.model import ImportedMetric, ImportedTrial, MetricName
from gpuagent.wire.imported import Loop

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
    load = _load(config)
    duration = optional_mapping(rows.get("benchmark_duration"), "benchmark_duration")
    scale = _scale(duration, "benchmark_duration") if duration else 1.0
    lasted = number(duration, "avg", "benchmark_duration")
    run = document.get("run_info")
    label = words(run.get("run_label")) if isinstance(run, Mapping) else None
    return (
        ImportedTrial(
            tool="aiperf",
            tool_version=words(document.get("aiperf_version"), 50),
            label=label or "profile",
            model=_model(config),
            loop=load.loop,
            asked_rate_per_s=load.rate_per_s,
            concurrency=load.concurrency,
            requests=int(succeeded) + failed,
            failed=failed,
            duration_s=quantity(None if lasted is None else lasted * scale, "not in the file"),
            requests_per_s=quantity(_scalar(rows, "request_throughput"), "not in the file"),
            output_tok_s=quantity(_scalar(rows, "output_token_throughput"), "not in the file"),
            metrics=tuple(_metric(rows, *names) for names in _NAMES),
            mean_input_tokens=_scalar(rows, "input_sequence_length"),
            mean_output_tokens=_scalar(rows, "output_sequence_length"),
            notes=_notes(document),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Load:
    """How requests were sent; None where the file does not tell."""

    loop: Loop = "unknown"
    rate_per_s: float | None = None
    concurrency: int | None = None


def _load(config: Mapping[str, Any]) -> _Load:
    """Of the one measured phase (`phases`), or of `loadgen` in older files."""
    phases = config.get("phases")
    if not isinstance(phases, list):
        older = config.get("loadgen")
        if not isinstance(older, Mapping):
            return _Load()
        rate, concurrency = _positive(older, "request_rate"), _positive(older, "concurrency")
        return _loop(rate, concurrency, "fixed_schedule" if older.get("fixed_schedule") else "")
    measured = [
        phase
        for phase in phases
        if isinstance(phase, Mapping)
        and "warmup" not in (phase.get("kind"), phase.get("name"))
        and phase.get("exclude_from_results") is not True
    ]
    if len(measured) != 1:
        return _Load()
    (phase,) = measured
    kind = words(phase.get("type")) or ""
    concurrency = _positive(phase, "users" if kind == "user_centric" else "concurrency")
    return _loop(_positive(phase, "rate"), concurrency, kind)


def _loop(rate: float | None, concurrency: float | None, kind: str) -> _Load:
    if concurrency is not None:
        return _Load("closed", rate, int(concurrency) or None)
    return _Load("open", rate) if rate is not None or kind == "fixed_schedule" else _Load()


def _positive(row: Mapping[str, Any], key: str) -> float | None:
    """A number of a configuration, which may also be a list or a ramp: then nothing is told."""
    value = row.get(key)
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return number(row, key) or None if plain else None


def _model(config: Mapping[str, Any]) -> str | None:
    """The first model: `models.items` as in 0.13, `endpoint.model_names` in older files."""
    models = config.get("models")
    items = models.get("items") if isinstance(models, Mapping) else None
    if isinstance(items, list) and items and isinstance(items[0], Mapping):
        return words(items[0].get("name"))
    endpoint = config.get("endpoint")
    names = endpoint.get("model_names") if isinstance(endpoint, Mapping) else None
    return words(names[0]) if isinstance(names, list) and names else None


def _notes(document: Mapping[str, Any]) -> tuple[str, ...]:
    notes = ["Only sums are in the file, so no target can be proven with it."]
    if document.get("was_cancelled") is True:
        notes.append("The run was cancelled before its end.")
    if document.get("is_complete") is False:
        notes.append("The tool calls the run incomplete.")
    return tuple(notes)


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
