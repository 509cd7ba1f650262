"""Entry point of `tuning-advisor`: picks the subcommand; a user error is one line and exit code 2.

A subcommand is a module with `add_arguments(parser)` and `run(args) -> int`; it is imported
only when it is asked for, so `estimate` never pays for what `study` needs.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from types import ModuleType

from advisor import __version__
from advisor.cli.errors import CliError

COMMANDS: dict[str, tuple[str, str]] = {
    "estimate": ("advisor.cli.estimate", "predict memory, latency and cost of a model on a GPU"),
    "trace": ("advisor.cli.trace", "say what limits the GPU in a profiler trace"),
    "flags": ("advisor.cli.flags", "find dead, renamed and conflicting flags in a launch command"),
    "import": ("advisor.cli.import_results", "judge results of another load tool"),
    "study": ("advisor.cli.study", "submit a study, follow it, fetch its report"),
}

EXIT_OK, EXIT_FAILED, EXIT_ERROR, EXIT_NOT_PROVEN = 0, 1, 2, 3


def _load(command: str) -> ModuleType:
    return importlib.import_module(COMMANDS[command][0])


def build_parser(command: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tuning-advisor", description="Predict, submit and judge LLM inference tuning."
    )
    parser.add_argument("--version", action="version", version=f"tuning-advisor {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (_module, summary) in COMMANDS.items():
        sub = commands.add_parser(name, help=summary, description=summary)
        if name == command:
            _load(name).add_arguments(sub)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit code (0 pass, 1 failed, 2 error, 3 not proven)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = next((word for word in arguments if word in COMMANDS), None)
    args = build_parser(command).parse_args(arguments)
    try:
        return int(_load(args.command).run(args))
    except CliError as error:
        print(f"tuning-advisor {args.command}: {error}", file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return EXIT_ERROR


if __name__ == "__main__":
    sys.exit(main())
