"""Locust's PREFIX_stats.csv: response times of whole answers, in a closed loop of users.

Its PREFIX_stats_history.csv is read as well: the last total of the aggregated rows.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from itertools import islice

from advisor.imports.errors import ImportRefused
from advisor.imports.fields import latency, quantity
from advisor.imports.model import ImportedMetric, ImportedTrial

_MOST_ROWS = 100_000
_ABSENT = "Locust times whole requests only"
_E2E = "from the real send to the end of the answer, or to its headers where the test reads no body"


def matches(text: str) -> bool:
    """Whether it is such a file."""
    first = text.partition("\n")[0]
    stats = "Request Count" in first and "Average Response Time" in first
    return stats or "Total Request Count" in first


def read(text: str) -> tuple[ImportedTrial, ...]:
    """The aggregated row as one trial."""
    reader = csv.DictReader(io.StringIO(text))
    try:
        rows = [row for row in islice(reader, _MOST_ROWS) if row.get("Name") == "Aggregated"]
    except csv.Error as error:
        raise ImportRefused("file", f"is no CSV ({error})") from None
    if not rows:
        raise ImportRefused("Name", "no row is called Aggregated: give the whole file")
    row, history = rows[-1], "Total Request Count" in (reader.fieldnames or ())
    total = "Total " if history else ""
    count, failed = _count(row, f"{total}Request Count"), _count(row, f"{total}Failure Count")
    users = _number(row, "User Count") if history else None
    notes = ["A closed loop of users: these are no latencies at a rate."]
    if failed:
        notes.append(f"{failed} failed requests are among the response times.")
    values = {"mean": _seconds(row, f"{total}Average Response Time")}
    percentiles = {"p50": "50%", "p90": "90%", "p95": "95%", "p99": "99%"}
    if history:
        # The history's percentiles are of the last ten seconds.
        notes.append("The history has percentiles of moments only: give _stats.csv for those.")
        values["p50"] = _seconds(row, "Total Median Response Time")
    else:
        values |= {key: _seconds(row, column) for key, column in percentiles.items()}
    if count == 0:
        values = dict.fromkeys(values)
    return (
        ImportedTrial(
            tool="locust",
            tool_version=None,
            label="aggregated",
            loop="closed",
            concurrency=int(users) if users else None,
            requests=count,
            failed=failed,
            duration_s=quantity(_lasted(rows) if history else None, "not in the file"),
            requests_per_s=quantity(
                None if history else _number(row, "Requests/s"),
                "the history has it of moments only",
            ),
            output_tok_s=quantity(None, "Locust counts no tokens"),
            metrics=(
                latency("e2e_s", values, n=count, definition=_E2E, absent="no request was sent"),
                *(
                    ImportedMetric(metric=name, reason=_ABSENT)
                    for name in ("ttft_s", "itl_s", "tpot_s")
                ),
            ),
            notes=tuple(notes),
        ),
    )


def _lasted(rows: list[dict[str, str]]) -> float | None:
    first, last = _number(rows[0], "Timestamp"), _number(rows[-1], "Timestamp")
    return last - first if first is not None and last is not None and last > first else None


def _number(row: Mapping[str, str | None], column: str) -> float | None:
    text = (row.get(column) or "").strip()
    if text in ("", "N/A"):
        return None
    try:
        value = float(text)
    except ValueError:
        raise ImportRefused(column, f"must be a number, not {text[:30]!r}") from None
    if not math.isfinite(value) or not 0 <= value <= 1e12:
        raise ImportRefused(column, f"{text[:30]} is no number from 0 to 1e12")
    return value


def _seconds(row: Mapping[str, str | None], column: str) -> float | None:
    value = _number(row, column)
    return None if value is None else value / 1e3


def _count(row: Mapping[str, str | None], column: str) -> int:
    value = _number(row, column)
    if value is None or not value.is_integer():
        raise ImportRefused(column, "must be a whole number")
    return int(value)
