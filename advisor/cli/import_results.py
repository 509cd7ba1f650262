"""`tuning-advisor import FILE`: results of another load tool, in our definitions, against targets.

Needs no server but for `--keep`, which stores it there as a study. Exit code 0 when every target
is met, 1 when one is proven missed, 2 for a file that cannot be read, 3 when one is not proven;
without targets 0.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from advisor import units
from advisor.cli.api_client import URL_VARIABLE, ApiClient
from advisor.cli.errors import CliError
from advisor.imports import (
    FORMATS,
    KEPT_BYTES,
    MAX_BYTES,
    ImportedStatus,
    ImportedTrial,
    ImportRefused,
    judge_import,
    read_import,
    too_large,
)
from advisor.reported import LOOPS, failed_words
from gpuagent.wire.sla import SlaTarget, parse_target
from gpuagent.wire.workload import Preset


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the subcommand."""
    parser.add_argument("file", help=f"- for standard input; {'; '.join(FORMATS)}")
    parser.add_argument(
        "--target",
        action="append",
        default=[],
        help="METRIC:STATISTIC<=LIMIT in SI units, such as ttft_s:p95<=0.2; repeatable",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--keep",
        action="store_true",
        help=f"also keep it as a study at {URL_VARIABLE}, once for each file, targets, preset and "
        "hardware",
    )
    parser.add_argument("--name", default="", help="of the study that is kept")
    parser.add_argument(
        "--preset", default="api", choices=get_args(Preset), help="scenario of what is kept"
    )
    parser.add_argument(
        "--hardware", default="", help="what it was measured on; equal names are compared"
    )


def run(args: argparse.Namespace) -> int:
    """Read, judge, print."""
    try:
        targets = [parse_target(text) for text in args.target]
    except ValueError as error:
        raise CliError(str(error)) from None
    content = _content(args.file)
    try:
        trials = read_import(content)
    except ImportRefused as error:
        raise CliError(f"{args.file}: {error}") from None
    kept = _keep(args, content, targets) if args.keep else []
    judged = [(trial, judge_import(trial, targets)) for trial in trials]
    if args.json:
        found = [_as_json(*one) for one in judged]
        for one, study in zip(found, kept, strict=False):
            one["study"] = study
        print(json.dumps(found, indent=2))
    else:
        console = Console()
        for study in kept:
            how = "Kept before" if study.get("existed") else "Kept"
            told = f"{how} as study {study['number']}: {study['dashboard']}"
            console.print(escape(told), highlight=False, soft_wrap=True)
        for trial, statuses in judged:
            _show(trial, statuses, console)
    verdicts = {status.verdict for _, statuses in judged for status in statuses}
    if "missed" in verdicts:
        return 1
    return 3 if verdicts - {"met"} else 0


def _content(name: str) -> bytes:
    try:
        if name == "-":
            return sys.stdin.buffer.read(MAX_BYTES + 1)
        with Path(name).open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise CliError(f"{name} cannot be read ({error.strerror})") from None


def _keep(args: argparse.Namespace, content: bytes, targets: list[SlaTarget]) -> list[Any]:
    """The studies that the server made of the file, or had of it already."""
    if len(content) > KEPT_BYTES:
        raise CliError(f"{args.file}: {too_large(len(content))}")
    body = {
        "content": content.decode("utf-8-sig"),
        "targets": [target.model_dump(mode="json") for target in targets],
        "keep": True,
        "name": args.name,
        "preset": args.preset,
        "hardware": args.hardware,
    }
    return list(ApiClient.from_environment().post("imports", body)["studies"])


def _as_json(trial: ImportedTrial, statuses: Sequence[ImportedStatus]) -> dict[str, object]:
    return {
        "basis": trial.basis,
        **trial.model_dump(exclude={"records"}),
        "single_requests": len(trial.records),
        "targets": [status.model_dump() for status in statuses],
    }


def _show(trial: ImportedTrial, statuses: Sequence[ImportedStatus], console: Console) -> None:
    rate = trial.requests_per_s.value
    console.print(
        f"[bold]{escape(trial.label)}[/] ({escape(trial.basis)}; not measured by an agent)",
        highlight=False,
        soft_wrap=True,
    )
    console.print(
        f"{trial.requests:,} requests, {failed_words(trial.failed)}, {LOOPS[trial.loop]}, "
        f"{units.number(rate)} a second, {units.rate(trial.output_tok_s.value)}",
        highlight=False,
        soft_wrap=True,
    )
    table = Table()
    for column in ("", "mean", "p50", "p90", "p95", "p99", "n"):
        table.add_column(column, justify="left" if not column else "right")
    for one in trial.metrics:
        if one.reason is None:
            values = (one.mean, one.p50, one.p90, one.p95, one.p99)
            table.add_row(one.name, *map(units.seconds, values), units.count(one.n))
    if table.row_count:
        console.print(table)
    for one in trial.metrics:
        told = one.reason or one.definition
        console.print(f"{one.name}: {escape(told)}", highlight=False, soft_wrap=True)
    for note in trial.notes:
        console.print(escape(note), highlight=False, soft_wrap=True)
    for status in statuses:
        console.print(
            f"{escape(status.label)}: {status.verdict.replace('_', ' ')} ({escape(status.reason)})",
            highlight=False,
            soft_wrap=True,
        )
