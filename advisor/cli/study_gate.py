"""`tuning-advisor study gate`: pass or stop a pipeline by a finished study."""

from __future__ import annotations

import argparse
from pathlib import Path
from uuid import UUID

from rich.console import Console
from rich.markup import escape

from advisor.cli.api_client import ApiClient
from advisor.cli.errors import CliError
from advisor.gate import GateReport
from advisor.gate_formats import junit, markdown

MARKS = {"pass": "pass", "fail": "FAIL", "not_proven": "not proven", "error": "error"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", help="a finished study")
    parser.add_argument(
        "--against",
        "--baseline",
        dest="baseline",
        metavar="BASELINE_ID",
        type=_study_id,
        help="a study on the same hardware that the measurement must not fall behind",
    )
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit XML")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write a summary")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def run(args: argparse.Namespace, client: ApiClient, console: Console) -> int:
    """0 passed, 1 missed or regressed, 2 error, 3 not proven."""
    body = {"baseline": args.baseline} if args.baseline else {}
    report = GateReport.model_validate(client.post(f"studies/{args.id}/gate", body))
    for path, text in ((args.junit, junit), (args.markdown, markdown)):
        if path is not None:
            _write(path, text(report))
    if args.json:
        print(report.model_dump_json(indent=2))
        return report.exit_code
    console.print(f"[bold]{escape(report.sentence)}[/bold]", highlight=False)
    for check in report.checks:
        line = f"  {MARKS[check.status]:10}  {check.name}: {check.sentence}"
        console.print(escape(line), highlight=False)
    for change in report.changed:
        console.print(f"  changed     {escape(change)}", highlight=False)
    return report.exit_code


def _study_id(text: str) -> str:
    try:
        return str(UUID(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no id of a study") from error


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CliError(f"{path} cannot be written: {error.strerror}") from error
