"""The arguments of `python -m gpuagent load` and `mock`; imports nothing that is not installed."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any

from gpuagent.errors import ConfigError

_EPILOG = """\
examples:
  python -m gpuagent load --url http://127.0.0.1:8000 --rate 5 --duration 60
  python -m gpuagent load --url http://127.0.0.1:8000 --concurrency 16 --requests 500 --json
  python -m gpuagent load --url http://127.0.0.1:8000 --users 100 --spawn-rate 10 --run-time 1m
  python -m gpuagent load --url http://127.0.0.1:8000 --rate 5 --target 'ttft_s:p99<=0.2'
  python -m gpuagent load --url http://127.0.0.1:8000 --boundary --target 'ttft_s:p95<=0.5'

exit code: 0 measured (and every target met), 1 a target missed or the run invalid, 2 wrong
settings or no server, 3 a target not proven
"""


def add_parsers(commands: Any) -> None:
    """Add the commands to the agent's command line."""
    _add_load(commands)
    _add_robustness(commands)
    _add_mock(commands)


def _add_load(commands: Any) -> None:
    load = commands.add_parser(
        "load",
        help="send traffic to an OpenAI-compatible server and measure it",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_endpoint(load)

    how = load.add_argument_group("traffic, one of").add_mutually_exclusive_group()
    how.add_argument("--rate", type=positive, help="open loop: requests a second")
    how.add_argument("--replay", metavar="FILE", help="open loop: send times of a log, see docs")
    how.add_argument("--concurrency", type=count, help="closed loop: requests in flight")

    how.add_argument("--users", type=count, help="closed loop with Locust: users at most")

    load.add_argument(
        "--boundary",
        choices=("rate", "concurrency"),
        nargs="?",
        const="rate",
        default=None,
        help="search the highest rate that meets every --target, from --rate (1 a second) on; or "
        "the highest concurrency, from --concurrency (1) on",
    )
    load.add_argument("--points", type=count, default=None, help="of --boundary at most; default 8")

    locust = load.add_argument_group("with --users")
    locust.add_argument("--spawn-rate", type=positive, help="users started a second; default 1")
    locust.add_argument("--run-time", type=seconds, help="such as 90, 60s, 1m, 1h30m; default 30s")

    amount = load.add_argument_group("amount")
    amount.add_argument("--duration", type=positive, help="seconds; default 30")
    amount.add_argument("--requests", type=count, help="at most this many")
    amount.add_argument(
        "--warmup", type=not_negative, default=0.0, help="first seconds, sent but not counted"
    )
    amount.add_argument("--timeout", type=positive, default=600.0, help="seconds of one request")
    amount.add_argument(
        "--processes", type=count, default=1, help="that send, for rates beyond one core"
    )

    shape = load.add_argument_group("requests")
    shape.add_argument("--arrivals", choices=("poisson", "constant", "bursty"), default="poisson")
    shape.add_argument(
        "--burstiness", type=positive, default=0.25, help="gamma shape of bursty arrivals, up to 1"
    )
    shape.add_argument("--replay-speed", type=positive, default=1.0)
    shape.add_argument(
        "--preset",
        choices=("chat", "api", "edge", "batch"),
        default=None,
        help="lengths and targets of a scenario, where none are given",
    )
    lengths = "tokens: 256, uniform:64:512, lognormal:MEAN:P95[:MAXIMUM] or file:PATH; default "
    shape.add_argument("--input-tokens", default=None, help=f"{lengths} 128")
    shape.add_argument("--output-tokens", default=None, help=f"{lengths} 64")
    shape.add_argument(
        "--turns", type=count, default=1, help="turns of a session, each with all before it"
    )
    shape.add_argument(
        "--think-time", type=not_negative, default=0.0, help="seconds between turns; default 0"
    )
    shape.add_argument(
        "--prompts",
        metavar="FILE",
        default=None,
        help="text (WikiText-2) or .jsonl; default built-in",
    )
    shape.add_argument(
        "--tokenizer", metavar="FOLDER", default=None, help="model folder: exact prompt lengths"
    )
    shape.add_argument(
        "--shared-prefix", type=not_negative, default=0.0, help="share, 0 to below 1"
    )
    shape.add_argument("--seed", type=int, default=0, help="another seed gives other prompts")

    out = load.add_argument_group("result")
    out.add_argument(
        "--target", action="append", default=[], help="METRIC:STATISTIC<=SECONDS, repeatable"
    )
    out.add_argument("--json", action="store_true", help="print the result as JSON")
    out.add_argument(
        "--records", metavar="FILE", default=None, help="write each request, JSON lines"
    )
    load.set_defaults(run=_run_load)


def _add_endpoint(command: argparse.ArgumentParser) -> None:
    command.add_argument("--url", required=True, help="address of the server, with or without /v1")
    command.add_argument("--model", default=None, help="model name; default: the server's first")
    command.add_argument("--api", choices=("completions", "chat"), default="completions")
    command.add_argument(
        "--key-env",
        metavar="NAME",
        default=None,
        help="environment variable that holds the API key",
    )
    command.add_argument(
        "--no-ignore-eos",
        action="store_true",
        help="let answers end by themselves; hosted endpoints refuse ignore_eos",
    )


def _add_robustness(commands: Any) -> None:
    test = commands.add_parser(
        "robustness",
        help="misuse an OpenAI-compatible server that has no other traffic, and report",
        epilog="exit code: 0 all passed, 1 something failed, 2 wrong settings or no server, "
        "3 something could not be told",
    )
    _add_endpoint(test)
    test.add_argument("--burst", type=count, default=64, help="requests of the overload at once")
    test.add_argument("--cancelled", type=count, default=8, help="streams closed half-way")
    test.add_argument(
        "--watch", type=positive, default=10.0, help="seconds it may take to stop or to recover"
    )
    test.add_argument(
        "--timeout", type=positive, default=60.0, help="seconds without an answer: it hangs"
    )
    test.add_argument(
        "--context-tokens", type=count, default=None, help="where its model list does not tell"
    )
    test.add_argument("--json", action="store_true", help="print the result as JSON")
    test.set_defaults(run=_run_robustness)


def _add_mock(commands: Any) -> None:
    mock = commands.add_parser("mock", help="serve as an OpenAI endpoint that computes nothing")
    mock.add_argument("--host", default="127.0.0.1")
    mock.add_argument("--port", type=whole, default=8000, help="0 takes a free one")
    mock.add_argument("--ttft", type=not_negative, default=0.0, help="seconds to the first token")
    mock.add_argument("--itl", type=not_negative, default=0.0, help="seconds between tokens")
    mock.add_argument("--slots", type=whole, default=0, help="requests at once; above 0: scheduler")
    mock.add_argument("--step", type=positive, default=0.01, help="seconds of a scheduler step")
    mock.add_argument(
        "--per-request", type=not_negative, default=0.0, help="more seconds of a step per request"
    )
    mock.add_argument("--queue-limit", type=whole, default=None, help="waiting requests, then 429")
    mock.add_argument("--max-context", type=count, default=1_000_000, help="tokens, then 400")
    mock.add_argument("--refuse", type=fraction, default=0.0, help="share answered 503")
    mock.add_argument("--cut", type=fraction, default=0.0, help="share cut off half-way")
    mock.add_argument("--hang", type=fraction, default=0.0, help="share never answered")
    mock.add_argument(
        "--long-prompt",
        choices=("refuse", "fail", "hang", "cut"),
        default="refuse",
        help="beyond --max-context: 400, 500, no answer, or answered all the same",
    )
    mock.add_argument("--overload-status", type=count, default=429, help="beyond --queue-limit")
    mock.add_argument(
        "--kv-tokens", type=count, default=1_000_000, help="size of the KV memory in /metrics"
    )
    mock.add_argument(
        "--ignore-disconnects", action="store_true", help="go on when nobody reads the answer"
    )
    mock.add_argument(
        "--leak-kv", action="store_true", help="keep the KV memory of answers nobody read"
    )
    mock.add_argument("--seed", type=int, default=0)
    mock.set_defaults(run=_run_mock)


def positive(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def not_negative(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return value


def seconds(text: str) -> int:
    """Locust's own way to write a time."""
    found = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?", text.strip())
    hours, minutes, rest = (int(part or 0) for part in found.groups()) if found else (0, 0, 0)
    total = 3600 * hours + 60 * minutes + rest
    if total < 1:
        raise argparse.ArgumentTypeError(f"{text} is no time of at least 1 s, such as 60s or 1m30s")
    return total


def fraction(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} does not lie between 0 and 1")
    return value


def whole(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return value


def count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return value


def _run_load(args: argparse.Namespace, config: object) -> int:
    _need(("httptools", "locust") if args.users else ("httptools",))
    from gpuagent.load import command

    return command.load(args)


def _run_robustness(args: argparse.Namespace, config: object) -> int:
    _need(("httptools",))
    from gpuagent.load import command

    return command.robustness(args)


def _run_mock(args: argparse.Namespace, config: object) -> int:
    _need(("httptools",))
    from gpuagent.load import command

    return command.mock(args)


def _need(modules: Sequence[str]) -> None:
    import importlib.util

    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"{', '.join(missing)} is not installed: pip install '.[load]'")
