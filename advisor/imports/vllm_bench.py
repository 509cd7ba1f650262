"""`vllm bench serve --save-result`: one JSON object a run; single requests with --save-detailed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from advisor.imports.errors import ImportRefused
from advisor.imports.fields import latency, needed, number, quantity, sequence, whole, words
from advisor.imports.model import ImportedMetric, ImportedTrial, MetricName
from gpuagent.wire.measure import RequestRecord

_NAMES: tuple[tuple[MetricName, str, str], ...] = (
    ("ttft_s", "ttft", "from the real send: time in the client's own queue is left out"),
    ("itl_s", "itl", "every gap between chunks; a chunk may carry several tokens"),
    ("tpot_s", "tpot", "per request: (latency - TTFT) / (output tokens - 1)"),
    ("e2e_s", "e2el", "from the real send: time in the client's own queue is left out"),
)


def matches(document: Any) -> bool:
    """Whether it is such a file."""
    return (
        isinstance(document, Mapping)
        and "request_throughput" in document
        and "completed" in document
        and not isinstance(document["request_throughput"], Mapping)
    )


def read(document: Mapping[str, Any]) -> tuple[ImportedTrial, ...]:
    """The run as one trial."""
    completed = whole(document, "completed")
    planned = whole(document, "num_prompts") if "num_prompts" in document else None
    failed = number(document, "failed")
    if failed is None:
        failed = max(0, planned - completed) if planned is not None else None
    notes = ["The tool sends from one process and does not judge whether it was the bottleneck."]
    if failed is None:
        notes.append("The file does not count failed requests.")
    rate = document.get("request_rate")
    asked = None if rate in (None, "inf") else needed(document, "request_rate")
    concurrency = number(document, "max_concurrency")
    told: list[str] = []
    queued = asked is not None and "queue_times" in document
    records = _records(document, told, queued)
    if queued and records:
        notes.append("The wait in the tool's own queue is counted for each request.")
    elif asked is not None and concurrency is not None:
        notes.append(
            f"max_concurrency of {concurrency:g} holds requests back; that wait is in no latency."
        )
    if asked is None and concurrency is None:
        notes.append("All requests were sent at once: these are the latencies of a burst.")
    elif concurrency is not None and not (queued and records):
        notes.append("Requests waited for a free stream: these are no latencies at a rate.")
    notes += told
    return (
        ImportedTrial(
            tool="vllm bench serve",
            tool_version=None,
            label=words(document.get("label")) or words(document.get("date")) or "run",
            model=words(document.get("model_id")),
            loop="open" if concurrency is None or (queued and records) else "closed",
            asked_rate_per_s=asked,
            concurrency=int(concurrency) if concurrency else None,
            requests=completed + int(failed or 0),
            failed=None if failed is None else int(failed),
            duration_s=quantity(number(document, "duration"), "not in the file"),
            requests_per_s=quantity(number(document, "request_throughput"), "not in the file"),
            output_tok_s=quantity(number(document, "output_throughput"), "not in the file"),
            metrics=tuple(_metric(document, *names, completed) for names in _NAMES),
            records=records,
            mean_input_tokens=_mean(document, "total_input_tokens", completed),
            mean_output_tokens=_mean(document, "total_output_tokens", completed),
            notes=tuple(notes),
        ),
    )


def _mean(document: Mapping[str, Any], key: str, completed: int) -> float | None:
    total = number(document, key)
    return total / completed if total and completed else None


def _metric(
    document: Mapping[str, Any], metric: MetricName, name: str, definition: str, completed: int
) -> ImportedMetric:
    def of(key: str) -> float | None:
        value = number(document, f"{key}_{name}_ms")
        return None if value is None else value / 1e3

    median = of("median")
    values = {
        "mean": of("mean"),
        "p50": median if median is not None else of("p50"),
        "p90": of("p90"),
        "p95": of("p95"),
        "p99": of("p99"),
    }
    absent = f"not in the file: ask the tool with --percentile-metrics {name}"
    n = completed if metric != "itl_s" else None
    return latency(metric, values, n=n, definition=definition, absent=absent)


def _records(
    document: Mapping[str, Any], notes: list[str], queued: bool
) -> tuple[RequestRecord, ...]:
    """Single requests, where the file has them with their times. queued: with their own waits."""
    keys = ("start_times", "ttfts", "itls", "input_lens", "output_lens")
    present = [key for key in keys if key in document]
    if "ttfts" not in present or "itls" not in present:
        notes.append("Only sums are in the file: with --save-detailed targets can be proven.")
        return ()
    if len(present) < len(keys):
        missing = ", ".join(key for key in keys if key not in present)
        notes.append(f"Single requests lack {missing}, so that only sums are used.")
        return ()
    columns = [sequence(document[key], key) for key in keys]
    count = len(columns[0])
    for key, column in zip(keys, columns, strict=True):
        if len(column) != count:
            raise ImportRefused(key, f"has {len(column)} entries, start_times has {count}")
    errors = sequence(document.get("errors") or [""] * count, "errors")
    if len(errors) != count:
        raise ImportRefused("errors", f"has {len(errors)} entries, start_times has {count}")
    starts = [_at(columns[0], i, "start_times") for i in range(count)]
    waits = [0.0] * count
    if queued:
        column = sequence(document["queue_times"], "queue_times")
        if len(column) != count:
            raise ImportRefused(
                "queue_times", f"has {len(column)} entries, start_times has {count}"
            )
        waits = [_at(column, i, "queue_times") for i in range(count)]
    began = min((start - wait for start, wait in zip(starts, waits, strict=True)), default=0.0)
    return tuple(
        _record(starts[i] - began, waits[i], columns, i, words(errors[i], 4000))
        for i in range(count)
    )


def _record(
    start_s: float, wait_s: float, columns: list[Any], i: int, error: str | None
) -> RequestRecord:
    _, ttfts, itls, inputs, outputs = columns
    ttft_s = _at(ttfts, i, "ttfts")
    gaps = [_at(itls[i], k, f"itls.{i}") for k in range(len(sequence(itls[i], f"itls.{i}")))]
    tokens = int(_at(outputs, i, "output_lens"))
    token_s: tuple[float, ...] = ()
    if error is None and ttft_s > 0 and tokens > 0:
        token_s = tuple(itertools.accumulate([start_s + ttft_s, *gaps]))
    return RequestRecord(
        intended_s=max(0.0, start_s - wait_s),
        sent_s=start_s,
        token_s=token_s,
        input_tokens=max(1, int(_at(inputs, i, "input_lens"))),
        output_tokens=len(token_s),
        error=error or (None if token_s else "no token arrived"),
    )


def _at(column: Any, i: int, path: str) -> float:
    return needed({str(i): column[i]}, str(i), path)
