"""What `python -m gpuagent load` and `mock` do with their arguments."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from gpuagent.errors import ConfigError
from gpuagent.load.arrivals import read_replay
from gpuagent.load.boundary import UNITS
from gpuagent.load.boundary_run import boundary_report, run_boundary
from gpuagent.load.client import Endpoint
from gpuagent.load.driver import LoadRun, loop_factory, run_load
from gpuagent.load.locust_run import run_users
from gpuagent.load.many import Share, run_many
from gpuagent.load.mock import MockSettings, serve_forever
from gpuagent.load.plan import PATHS, Planner, TextPrompts, write_lengths
from gpuagent.load.probe import Probe
from gpuagent.load.report import LATENCIES, read_target, report
from gpuagent.load.robustness import RobustnessOptions, run_robustness
from gpuagent.load.sessions import follow_up
from gpuagent.load.show import (
    show_boundary,
    show_check,
    show_point,
    show_report,
    show_robustness,
)
from gpuagent.load.traffic import DEFAULT_DURATION_S, open_times, without_warmup
from gpuagent.load.workload import make_planner
from gpuagent.presets import TRAFFIC
from gpuagent.text import built_in
from gpuagent.wire.sla import SlaTarget

EXIT_OK, EXIT_BAD, EXIT_USAGE, EXIT_NOT_PROVEN = 0, 1, 2, 3
# A closed loop plans this much before it starts; further requests are made while it runs.
_PLANNED_AHEAD = 20_000
_REFRESH_S = 1.0
_PROCESS_SEED = 104_729


class Interrupt:
    """Ctrl-C (or SIGTERM) once ends the run and keeps what was measured; twice ends the program."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self) -> bool:
        return self.asked

    @contextmanager
    def watched(self) -> Iterator[None]:
        def handle(number: int, frame: object) -> None:
            if self.asked:
                raise KeyboardInterrupt
            self.asked = True

        numbers = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(number, handle) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)


def load(args: argparse.Namespace) -> int:
    """Run the traffic and print the result."""
    targets = [read_target(text) for text in args.target]
    use_preset(args)
    targets = targets or preset_targets(args)
    check_combination(args)
    key = _key(args.key_env)
    endpoint = Endpoint.parse(args.url, PATHS[args.api], key=key)
    args.model = args.model or _first_model(args.url, key)
    interrupt = Interrupt()
    if args.boundary:
        return _boundary(args, endpoint, targets, interrupt)
    planner = make_planner(args)
    with interrupt.watched():
        run = _send(args, endpoint, planner, interrupt)
    run = without_warmup(run, args.warmup)
    if args.records:
        write_records(Path(args.records), run)
    found = report(run, asked_of(args), targets, stopped=interrupt.asked)
    if args.json:
        print(json.dumps(found, indent=2))  # noqa: T201
    else:
        show_report(found, Console())
    return exit_code(found)


def robustness(args: argparse.Namespace) -> int:
    """Misuse the server and print how it took it."""
    key = _key(args.key_env)
    Endpoint.parse(args.url, PATHS[args.api], key=key)
    probe = Probe(
        args.url,
        args.model or _first_model(args.url, key),
        api=args.api,
        prompts=TextPrompts(built_in().text),
        key=key,
        patience_s=args.timeout,
        ignore_eos=not args.no_ignore_eos,
    )
    options = RobustnessOptions(
        burst=args.burst,
        cancelled=args.cancelled,
        watch_s=args.watch,
        patience_s=args.timeout,
        context_tokens=args.context_tokens,
        ends_by_itself=args.no_ignore_eos,
    )
    console = Console()
    if args.json:
        found = run_robustness(probe, options)
        print(found.model_dump_json(indent=2))  # noqa: T201
    else:
        found = run_robustness(probe, options, on_check=lambda one: show_check(one, console))
        show_robustness(found, console)
    return {"pass": EXIT_OK, "fail": EXIT_BAD, "cannot_tell": EXIT_NOT_PROVEN}[found.verdict]


def _boundary(
    args: argparse.Namespace,
    endpoint: Endpoint,
    targets: Sequence[SlaTarget],
    interrupt: Interrupt,
) -> int:
    progress_lines = Console(stderr=True)
    with interrupt.watched():
        found = run_boundary(
            args,
            endpoint,
            targets,
            should_stop=interrupt,
            on_point=lambda point: show_point(point, progress_lines, UNITS[args.boundary]),
        )
    shown = boundary_report(found, asked_of(args), stopped=interrupt.asked)
    if args.json:
        print(json.dumps(shown, indent=2))  # noqa: T201
    else:
        show_boundary(found, Console())
    if found.low is None or found.points[-1].client_bound:
        return EXIT_BAD
    return EXIT_OK if found.proven_per_s is not None and found.high else EXIT_NOT_PROVEN


def check_combination(args: argparse.Namespace) -> None:
    """Raises ConfigError for settings that the chosen kind of traffic would not use."""
    if not args.boundary and not (args.rate or args.replay or args.concurrency or args.users):
        raise ConfigError("give --rate, --replay, --concurrency, --users or --boundary")
    if args.boundary:
        other = "rate" if args.boundary == "concurrency" else "concurrency"
        if args.replay or args.users or args.records or getattr(args, other):
            raise ConfigError(
                f"--boundary over {args.boundary} goes with --{args.boundary} alone, which is "
                "where it starts"
            )
    kind = "--users" if args.users else "--boundary" if args.boundary else "this traffic"
    users_only, boundary_only = ("spawn_rate", "run_time"), ("points",)
    for name in ("turns", "processes"):
        if getattr(args, name) > 1 and (args.users or args.boundary):
            raise ConfigError(f"--{name} does not go with {kind}")
    if args.turns > 1 and args.tokenizer:
        raise ConfigError("--turns sends what was said as text: leave --tokenizer out")
    if args.think_time and args.turns == 1:
        raise ConfigError("--think-time goes with --turns of 2 or more")
    unused: tuple[str, ...] = () if args.boundary else boundary_only
    unused += ("duration", "requests") if args.users else users_only
    for name in unused:
        if getattr(args, name) is not None:
            raise ConfigError(f"--{name.replace('_', '-')} does not go with {kind}")


def exit_code(found: dict[str, Any]) -> int:
    verdicts = {target["verdict"] for target in found["targets"]}
    if found["verdict"] == "invalid" or "missed" in verdicts:
        return EXIT_BAD
    return EXIT_NOT_PROVEN if verdicts - {"met"} else EXIT_OK


def mock(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM."""
    settings = MockSettings(
        ttft_s=args.ttft,
        itl_s=args.itl,
        slots=args.slots,
        step_s=args.step,
        per_request_s=args.per_request,
        queue_limit=args.queue_limit,
        max_context=args.max_context,
        long_prompt=args.long_prompt,
        overload_status=args.overload_status,
        kv_tokens=args.kv_tokens,
        ignore_disconnects=args.ignore_disconnects,
        leak_kv=args.leak_kv,
        refuse_frac=args.refuse,
        cut_frac=args.cut,
        hang_frac=args.hang,
        seed=args.seed,
    )

    def ready(port: int) -> None:
        host = f"[{args.host}]" if ":" in args.host else args.host
        print(f"serving on http://{host}:{port}", flush=True)  # noqa: T201

    async def serve() -> None:
        task = asyncio.current_task()
        if task is not None:
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        await serve_forever(settings, args.host, args.port, ready)

    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(serve())
    except asyncio.CancelledError:
        return EXIT_OK
    except (OSError, OverflowError) as error:
        raise ConfigError(f"port {args.port} on {args.host} cannot be used: {error}") from error
    return EXIT_OK


def _send(
    args: argparse.Namespace, endpoint: Endpoint, planner: Planner, interrupt: Interrupt
) -> LoadRun:
    if args.users:
        args.spawn_rate = args.spawn_rate or 1.0
        args.run_time = args.run_time or round(DEFAULT_DURATION_S)
        return run_users(args, key=endpoint.key, should_stop=interrupt)
    if args.concurrency:
        return closed_loop(args, endpoint, planner, interrupt)
    if args.replay:
        rows = read_replay(Path(args.replay), speed=args.replay_speed)
        rows = [row for row in rows if args.duration is None or row.at_s <= args.duration]
        planned = [planner.next(row.at_s, lengths=row.lengths) for row in rows[: args.requests]]
    else:
        planned = planner.at_times(open_times(args, args.rate, seed=args.seed))
    if args.processes > 1:
        shares = [
            Share(planned[i :: args.processes], args, args.seed + _PROCESS_SEED * (i + 1))
            for i in range(args.processes)
        ]
        return run_many(
            endpoint,
            [share for share in shares if share.planned],
            timeout_s=args.timeout,
            until_s=None,
            should_stop=interrupt,
        )
    with progress(len(planned)) as on_progress:
        return run_load(
            endpoint,
            planned,
            timeout_s=args.timeout,
            should_stop=interrupt,
            on_progress=on_progress,
            follow=follow_up(args, planner),
        )


def closed_loop(
    args: argparse.Namespace, endpoint: Endpoint, planner: Planner, interrupt: Interrupt
) -> LoadRun:
    """`concurrency` requests in flight, for a time or a number of requests."""
    until_s = args.duration
    if until_s is None and args.requests is None:
        until_s = DEFAULT_DURATION_S
    if until_s is not None:
        until_s += args.warmup
    if args.processes > 1:
        return _closed_by_many(args, endpoint, planner, until_s, interrupt)
    planned = [planner.next() for _ in range(args.requests or _ahead(args, until_s))]
    with progress(args.requests) as on_progress:
        return run_load(
            endpoint,
            planned,
            streams=args.concurrency,
            timeout_s=args.timeout,
            until_s=until_s,
            more=None if args.requests else planner.next,
            should_stop=interrupt,
            on_progress=on_progress,
            follow=follow_up(args, planner),
        )


def _closed_by_many(
    args: argparse.Namespace,
    endpoint: Endpoint,
    planner: Planner,
    until_s: float | None,
    interrupt: Interrupt,
) -> LoadRun:
    """The streams, and the requests where their number is given, divided among the processes."""
    count = min(args.processes, args.concurrency, args.requests or args.concurrency)
    shares = []
    for i in range(count):
        wanted = _part(args.requests, count, i) if args.requests else 0
        ahead = wanted or _ahead(args, until_s) // count + 1
        shares.append(
            Share(
                [planner.next() for _ in range(ahead)],
                args,
                args.seed + _PROCESS_SEED * (i + 1),
                streams=_part(args.concurrency, count, i),
                endless=not wanted,
            )
        )
    return run_many(
        endpoint, shares, timeout_s=args.timeout, until_s=until_s, should_stop=interrupt
    )


def _part(total: int, count: int, i: int) -> int:
    """Share `i` of `total` divided among `count`."""
    return total // count + (i < total % count)


def use_preset(args: argparse.Namespace) -> None:
    """Fill in what a preset says and the command line does not."""
    workload = TRAFFIC[args.preset].workload if args.preset else None
    if args.input_tokens is None:
        args.input_tokens = write_lengths(workload.input_tokens) if workload else "128"
    if args.output_tokens is None:
        args.output_tokens = write_lengths(workload.output_tokens) if workload else "64"
    if args.preset == "edge" and not (
        args.rate or args.replay or args.users or args.concurrency or args.boundary
    ):
        args.concurrency = 1


def preset_targets(args: argparse.Namespace) -> list[SlaTarget]:
    """The preset's targets that requests can be judged by: percentiles of a latency."""
    if not args.preset or args.users or (args.concurrency and not args.boundary):
        return []
    return [t for t in TRAFFIC[args.preset].targets if t.metric in LATENCIES and t.percentile]


def _ahead(args: argparse.Namespace, until_s: float | None) -> int:
    wanted: int = max(1, min(_PLANNED_AHEAD, round(args.concurrency * (until_s or 1.0) * 10)))
    return wanted


def write_records(path: Path, run: LoadRun) -> None:
    """One RequestRecord a line, with its `turn` where sessions have several. Raises ConfigError
    where the file cannot be written."""
    try:
        with path.open("w", encoding="utf-8") as file:
            for i, record in enumerate(run.records):
                turn = {"turn": run.turns[i]} if run.turns else {}
                file.write(json.dumps(record.model_dump() | turn) + "\n")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written ({error.strerror})") from error


def asked_of(args: argparse.Namespace) -> dict[str, Any]:
    """The settings that make the run repeatable; no key is among them."""
    left_out = {"run", "command", "verbose", "json", "records", "target", "key_env"}
    return {k: v for k, v in vars(args).items() if k not in left_out and v is not None}


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key:
        raise ConfigError(f"--key-env: the environment has no {variable}")
    return key


def _first_model(url: str, key: str | None) -> str:
    endpoint = Endpoint.parse(url, "/v1/models", key=key)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        reply = httpx.get(
            endpoint.url,
            headers=headers,
            timeout=10,
            # The traffic itself takes no proxy either.
            trust_env=False,
        )
        reply.raise_for_status()
        return str(reply.json()["data"][0]["id"])
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
        raise ConfigError(f"{url} answered {status} for its models: give --model") from error
    except httpx.HTTPError as error:
        raise ConfigError(f"{url} does not answer ({error}): is the server up?") from error
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise ConfigError(f"{url} names no model: give --model") from error


@contextmanager
def progress(total: int | None) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, redrawn once a second: drawing costs the event loop milliseconds."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.completed:,} of {task.fields[sent]:,} sent answered"),
        BarColumn(),
        TimeElapsedColumn(),
    )
    bar = Progress(*columns, console=console, disable=not sys.stderr.isatty(), auto_refresh=False)
    drawn = 0.0
    with bar:
        task = bar.add_task("", total=total, sent=0)

        def on_progress(sent: int, finished: int) -> None:
            nonlocal drawn
            if bar.disable or perf_counter() - drawn < _REFRESH_S:
                return
            drawn = perf_counter()
            bar.update(task, completed=finished, sent=sent)
            bar.refresh()

        yield on_progress
