"""A run's report for a person: verdict and reasons before any number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gpuagent.load.boundary import UNITS, Boundary, Point
from gpuagent.wire.robustness import RobustnessCheck, RobustnessReport

_STYLES = {"valid": "green", "warn": "yellow", "invalid": "red"}
_CHECKED = {
    "pass": ("green", "pass"),
    "fail": ("red", "fail"),
    "cannot_tell": ("yellow", "cannot tell"),
}
_NAMES = {"ttft_s": "TTFT", "itl_s": "ITL", "e2e_s": "E2E"}


def show_report(found: dict[str, Any], console: Console) -> None:
    """Print `report.report`'s result."""
    verdict = found["verdict"]
    console.print(f"Measurement: [{_STYLES[verdict]}]{verdict}[/]", highlight=False)
    for reason in found["reasons"]:
        console.print(f"  {escape(reason)}", highlight=False)
    if found["stopped_early"]:
        console.print("  Stopped by Ctrl-C: what was measured until then is shown")
    requests = found["requests"]
    console.print(
        f"{requests['succeeded']:,} of {requests['recorded']:,} requests succeeded, "
        f"{_number(found['completed_per_s'])} a second, "
        f"{_number(found['output_tok_s']['value'])} output tok/s "
        f"({found['loop']} loop, at most {found['peak_in_flight']:,} in flight)",
        highlight=False,
    )
    for error, times in requests["errors"].items():
        console.print(f"  {times:,} × {escape(error)}", highlight=False)
    if verdict != "invalid" and requests["succeeded"]:
        console.print(_latencies(found["latency"]))
        for reason in dict.fromkeys(_missing(found["latency"])):
            console.print(f"Too few: {reason}", highlight=False)
        if found["loop"] == "closed":
            console.print("Closed loop: these are no latencies at a rate", highlight=False)
    for row in found["turns"]:
        if row["ttft_s_mean"] is not None:
            console.print(
                f"Turn {row['turn']}: {row['n']:,} requests of "
                f"{row['input_tokens_mean']:,.0f} tokens, TTFT "
                f"{_ms(row['ttft_s_mean'], row['ttft_s_low'], row['ttft_s_high'])} ms",
                highlight=False,
            )
    for target in found["targets"]:
        console.print(
            f"{escape(target['target'])}: {target['verdict'].replace('_', ' ')} "
            f"({escape(target['reason'])})",
            highlight=False,
        )


def show_point(point: Point, console: Console, unit: str) -> None:
    """One line while a search goes on."""
    console.print(
        f"{point.rate_per_s:.4g} {unit}: {_judgement(point)} ({point.requests:,} requests)",
        highlight=False,
    )


def show_boundary(found: Boundary, console: Console) -> None:
    """The boundary, what of it is proven, and the curve it was found on."""
    unit = UNITS[found.over]
    if found.rate_per_s is not None and found.low is not None and found.high is not None:
        console.print(
            f"Boundary: {found.rate_per_s:.4g} requests {unit} "
            f"(met at {found.low:.4g}, missed at {found.high:.4g}; {found.reason})",
            highlight=False,
        )
    else:
        console.print(f"No boundary: {found.reason}", highlight=False)
    if found.proven_per_s is not None:
        console.print(
            f"Proven with {found.confidence:.0%} confidence: {found.proven_per_s:.4g} {unit}",
            highlight=False,
        )
    else:
        console.print(f"Not proven at any measured {found.over}", highlight=False)
    if found.needed_requests is not None and found.low is not None:
        console.print(
            f"A proof at {found.low:.4g} {unit} needs {found.needed_requests:,} requests in "
            "one run",
            highlight=False,
        )
    table = Table(title="Percentile of each target in ms, with 95 % intervals")
    for column in (
        "requests/s" if found.over == "rate" else "in flight",
        "n",
        "targets",
        "goodput",
    ):
        table.add_column(column, justify="right")
    points = sorted(found.points, key=lambda p: p.rate_per_s)
    for target in points[0].targets if points else ():
        table.add_column(target.target, justify="right")
    for point in points:
        table.add_row(
            f"{point.rate_per_s:.4g}",
            f"{point.requests:,}",
            _judgement(point),
            "–" if point.goodput_frac is None else f"{point.goodput_frac:.1%}",
            *(_ms(t.value, t.low, t.high) for t in point.targets),
        )
    console.print(table)


def show_check(check: RobustnessCheck, console: Console) -> None:
    """One line of a robustness test, as soon as it is known."""
    style, word = _CHECKED[check.verdict]
    console.print(
        f"[{style}]{word:11}[/] {check.name}: {escape(check.sentence)}",
        highlight=False,
        soft_wrap=True,
    )


def show_robustness(found: RobustnessReport, console: Console) -> None:
    """The result in a sentence, after its lines."""
    counts = Counter(check.verdict for check in found.checks)
    console.print(
        f"{counts['pass']} passed, {counts['fail']} failed, {counts['cannot_tell']} cannot be told "
        f"({found.duration_s:.0f} s)",
        highlight=False,
    )


def _judgement(point: Point) -> str:
    if point.client_bound:
        return "client-bound"
    if point.saturated:
        return "saturated"
    if not point.meets:
        return "missed"
    return "met, proven" if point.proven else "met, not proven"


def _latencies(latency: dict[str, Any]) -> Table:
    table = Table(title="Latency in ms, with 95 % intervals")
    table.add_column("")
    measured = {name: values for name, values in latency.items() if "n" in values}
    for name in measured:
        table.add_column(_NAMES[name], justify="right")
    table.add_row("n", *(f"{values['n']:,}" for values in measured.values()))
    means = (_ms(v["mean"], v["mean_low"], v["mean_high"]) for v in measured.values())
    table.add_row("mean", *means)
    for p in _PERCENTILES:
        shown = (values[p] for values in measured.values())
        table.add_row(p, *(_ms(one["value"], one["low"], one["high"]) for one in shown))
    return table


_PERCENTILES = ("p50", "p90", "p95", "p99")


def _missing(latency: dict[str, Any]) -> Iterator[str]:
    """Why percentiles are not shown, for the requests' latencies."""
    for name in ("ttft_s", "e2e_s"):
        for p in _PERCENTILES:
            reason = latency[name].get(p, {}).get("reason")
            if reason:
                yield f"{p} {reason}"


def _ms(value: float | None, low: float | None, high: float | None) -> str:
    if value is None:
        return "too few"
    if low is None or high is None:
        return f"{value * 1e3:.1f}"
    return f"{value * 1e3:.1f} ({low * 1e3:.1f}–{high * 1e3:.1f})"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}"
