"""`tuning-advisor trace FILE`: what limits the GPU in a profiler trace, as text or JSON.

Needs no server. Reads PyTorch Profiler JSON, Nsight Systems sqlite and nsys stats tables; with
`--against BEFORE` it compares two traces. The JSON keys are a promise (docs/traces.md).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from advisor.cli.errors import CliError
from gpuagent.traces.analyse import analyse_file
from gpuagent.traces.compare import Comparison, Difference, compare
from gpuagent.traces.errors import TraceError
from gpuagent.traces.findings import SHOWN
from gpuagent.traces.idle import CAUSE_LABELS
from gpuagent.traces.kernel_names import CLASS_LABELS
from gpuagent.traces.report import TraceReport
from gpuagent.traces.units import pct, seconds

HELP = "Say what limits the GPU in a profiler trace."

_TOP_KERNELS = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the subcommand."""
    parser.add_argument("file", metavar="FILE", help="trace: .json, .json.gz, .sqlite, .csv, .txt")
    parser.add_argument("--json", action="store_true", help="print the full report as JSON")
    parser.add_argument("--against", metavar="BEFORE", help="compare with an earlier trace")
    parser.add_argument(
        "--timeline", action="store_true", help="with --json: include the busiest 50 ms as bars"
    )


def run(args: argparse.Namespace) -> int:
    """Analyse, print, exit 0; CliError where a file cannot be read."""
    report = _analyse(args.file)
    comparison = compare(_analyse(args.against), report) if args.against else None
    if args.json:
        print(json.dumps(_as_json(report, comparison, timeline=args.timeline), indent=2))
        return 0
    lines = _text(report)
    if comparison is not None:
        lines += ["", *_comparison_text(comparison)]
    print("\n".join(_printable(line) for line in lines))
    return 0


def _analyse(name: str) -> TraceReport:
    path = Path(name)
    size = f"{path.stat().st_size / 2**20:,.0f} MiB" if path.is_file() else ""
    try:
        # On a terminal alone: how long a file takes depends on its events, so no share is known.
        with Console(stderr=True).status(escape(f"Reading {_printable(path.name)} {size}")):
            return analyse_file(path)
    except TraceError as error:
        raise CliError(f"{Path(name).name}: {error.message}") from None


def _as_json(
    report: TraceReport, comparison: Comparison | None, *, timeline: bool
) -> dict[str, Any]:
    table = report.as_dict()
    if not timeline:
        table["timeline"] = None
    if comparison is not None:
        table["comparison"] = comparison.as_dict()
    return table


def _text(report: TraceReport) -> list[str]:
    verdict = report.verdict
    lines = [
        f"{verdict.label} ({verdict.confidence} confidence: {verdict.confidence_reason})",
        verdict.sentence,
        "",
        *_window_text(report),
        *_idle_text(report),
        *_classes_text(report),
        *_kernels_text(report),
        *_cpu_text(report),
        *_findings_text(report),
    ]
    if report.reliability:
        lines += ["", "Trust"]
        lines += [f"  {caveat.severity}: {caveat.message}" for caveat in report.reliability]
    return [*lines, "", f"To confirm: {verdict.experiment}"]


def _window_text(report: TraceReport) -> list[str]:
    if report.window_s is None:
        return []
    lines = [f"Window {seconds(report.window_s)}, {len(report.devices)} device(s)"]
    for device in report.devices:
        name = device["name"] or "name not recorded"
        lines.append(
            f"  GPU {device['id']} ({name}): busy {pct(device['busy_frac'])}, "
            f"idle {pct(device['idle_frac'])}, copies {pct(device['memcpy_frac'])} "
            f"({pct(device['exposed_memcpy_frac'])} exposed), communication "
            f"{pct(device['comm_frac'])} ({pct(device['exposed_comm_frac'])} exposed)"
        )
    return lines


def _idle_text(report: TraceReport) -> list[str]:
    causes = {name: share for name, share in (report.idle_causes or {}).items() if share >= 5e-4}
    if not causes:
        return []
    ranked = sorted(causes.items(), key=lambda item: -item[1])
    return ["", "Idle, share of the window"] + [
        f"  {pct(share):>8}  {CAUSE_LABELS[name]}" for name, share in ranked
    ]


def _classes_text(report: TraceReport) -> list[str]:
    if not report.kernel_classes:
        return []
    lines = ["", "GPU time by class"]
    for row in report.class_table:
        if row["frac"] >= 5e-4:
            label = CLASS_LABELS.get(row["name"], row["name"])
            lines.append(
                f"  {pct(row['frac']):>8}  {label:<28} {seconds(row['time_s']):>10}  "
                f"{row['count']:,} ×"
            )
    cores = report.tensor_core or {}
    if cores.get("yes") is not None:
        parts = ", ".join(f"{name} {pct(share)}" for name, share in cores.items() if share)
        lines.append(f"  Tensor cores, share of GEMM time: {parts}")
    return lines


def _kernels_text(report: TraceReport) -> list[str]:
    rows = report.top_kernels[:_TOP_KERNELS]
    if not rows:
        return []
    lines = ["", "Top kernels, share of GPU time"]
    for row in rows:
        mean = seconds(row["mean_s"]) if row["mean_s"] is not None else "–"
        lines.append(f"  {pct(row['frac']):>8}  {row['count']:>8,} × {mean:>9}  {row['short']}")
    return lines


def _cpu_text(report: TraceReport) -> list[str]:
    if report.cpu is None or report.devices:
        return []
    cpu = report.cpu
    lines = [
        "",
        f"CPU operators only: {cpu['ops']:,} in {seconds(cpu['window_s'])}, busiest thread "
        f"{pct(cpu['busy_frac'])} busy. Share of operator time without nested operators:",
    ]
    return lines + [
        f"  {pct(row['self_frac']):>8}  {row['count']:>8,} ×  {row['name']}"
        for row in cpu["top"][:_TOP_KERNELS]
    ]


def _findings_text(report: TraceReport) -> list[str]:
    if not report.findings:
        return []
    lines = ["", "Findings, most recoverable time first"]
    for finding in report.findings[:SHOWN]:
        worth = (
            f"{seconds(finding.recoverable_s)} ({finding.basis})"
            if finding.recoverable_s is not None
            else finding.basis
        )
        lines += [f"  {finding.title}: {worth}", f"    {finding.detail}", f"    {finding.change}"]
    more = len(report.findings) - SHOWN
    if more > 0:
        lines.append(f"  and {more} more, in --json")
    return lines


def _comparison_text(comparison: Comparison) -> list[str]:
    words = {"yes": "comparable", "with_care": "comparable with care", "no": "not comparable"}
    lines = [f"Before and after: {words[comparison.comparable]}", f"  {comparison.sentence}"]
    lines += [f"  {reason}" for reason in comparison.reasons]
    for row in (*comparison.figures, *comparison.classes[:8]):
        if row.before is not None and row.after is not None:
            lines.append(
                f"  {row.name:<22} {_value(row, row.before):>10} → {_value(row, row.after)}"
            )
    return lines


def _value(row: Difference, value: float) -> str:
    return pct(value) if row.unit == "fraction" else seconds(value)


def _printable(line: str) -> str:
    """The line without control characters: names come from the file and may drive a terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)
