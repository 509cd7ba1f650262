"""`tuning-advisor flags --check COMMAND`: is this launch command right for this engine's version?

Needs no server and no engine. Exit code 0 without errors (warnings are printed), 1 with errors, 2
for text that is no command.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from advisor.cli.errors import CliError
from advisor.flags import Catalogue, CommandError, catalogue, check, read_command, versions

HELP = "Find dead, renamed and conflicting flags in a launch command."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the subcommand."""
    parser.add_argument(
        "--check",
        metavar="COMMAND",
        help="launch command in quotes, a file that holds it, or - for standard input",
    )
    known = "; ".join(f"{engine} {', '.join(names)}" for engine, names in versions().items())
    parser.add_argument("--engine", choices=list(versions()), help="by default from the command")
    parser.add_argument("--version", help=f"by default the newest: {known}")
    parser.add_argument("--list", action="store_true", help="print the options of the version")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Check or list, print, exit."""
    if args.list:
        print("\n".join(_listed(_catalogue(args.engine, args.version))))
        return 0
    if not args.check:
        raise CliError("Give --check COMMAND, or --list.")
    try:
        command = read_command(_text(args.check))
    except CommandError as error:
        raise CliError(str(error)) from None
    known = _catalogue(args.engine or command.engine, args.version)
    problems = check(command, known)
    failed = any(problem.level == "error" for problem in problems)
    if args.json:
        answer = {
            "engine": known.engine,
            "version": known.version,
            "ok": not failed,
            "problems": [asdict(problem) for problem in problems],
        }
        print(json.dumps(answer, indent=2))
        return int(failed)
    for problem in problems:
        print(f"{problem.level}: {problem.flag} {problem.message} {problem.fix or ''}".rstrip())
    count = len(problems)
    print(f"{known.engine} {known.version}: {count or 'no'} problem{'' if count == 1 else 's'}")
    return int(failed)


def _text(given: str) -> str:
    if given == "-":
        return sys.stdin.read()
    path = Path(given)
    try:
        return path.read_text(encoding="utf-8") if path.is_file() else given
    except (OSError, ValueError):
        return given


def _catalogue(engine: str | None, version: str | None) -> Catalogue:
    if engine is None:
        raise CliError(f"Which engine? Give --engine {' or '.join(versions())}.")
    try:
        return catalogue(engine, version)
    except KeyError as error:
        raise CliError(f"--version: {error.args[0]}.") from None


def _listed(known: Catalogue) -> list[str]:
    lines = []
    for option in known.options:
        values = ", ".join((option.choices or option.known)[:8])
        note = " (deprecated)" if option.deprecated else ""
        lines.append(f"{', '.join(option.flags)}  {option.kind} {values}".rstrip() + note)
    return lines
