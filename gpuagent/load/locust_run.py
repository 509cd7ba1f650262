"""Runs Locust as a process of its own and takes its request records back.

A process, because importing Locust patches sockets, threads and time for gevent.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from gpuagent.errors import ConfigError
from gpuagent.load.driver import LoadRun
from gpuagent.wire.measure import RequestRecord

_LOCUSTFILE = Path(__file__).with_name("locustfile.py")
_KEY_VARIABLE = "GPUAGENT_LOAD_KEY"
_PARENT_VARIABLE = "GPUAGENT_LOAD_PARENT"
_PASSED_ON = (
    "model",
    "api",
    "input_tokens",
    "output_tokens",
    "prompts",
    "tokenizer",
    "shared_prefix",
    "seed",
    "timeout",
)


def run_users(
    args: argparse.Namespace, *, key: str | None, should_stop: Callable[[], bool]
) -> LoadRun:
    """`args.users` users, `args.spawn_rate` started a second, for `args.run_time` seconds.

    Requests under way at the end are waited for, up to the timeout of a request. should_stop: then
    Locust is told to end, and what it measured is kept. Raises ConfigError where Locust fails.
    """
    with tempfile.TemporaryDirectory(prefix="gpuagent-load-") as folder:
        records, log = Path(folder, "records.jsonl"), Path(folder, "log")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("LOCUST_")}
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, (str(_LOCUSTFILE.parents[2]), environment.get("PYTHONPATH")))
        )
        environment[_PARENT_VARIABLE] = str(os.getpid())
        if key:
            environment[_KEY_VARIABLE] = key
        with log.open("wb") as output:
            # A session of its own: Ctrl-C reaches it through us, once.
            process = subprocess.Popen(
                _command(args, records),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=folder,
                start_new_session=True,
            )
            try:
                _wait(process, should_stop)
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        if not records.exists():
            raise ConfigError(f"Locust failed: {_last_words(log)}")
        return _read(records, args)


def _command(args: argparse.Namespace, records: Path) -> list[str]:
    command = [sys.executable, "-m", "locust", "--locustfile", str(_LOCUSTFILE), "--headless"]
    command += ["--users", str(args.users), "--spawn-rate", str(args.spawn_rate)]
    command += ["--run-time", f"{args.run_time}s", "--stop-timeout", f"{args.timeout:g}"]
    command += ["--host", args.url.rstrip("/").removesuffix("/v1")]
    command += ["--only-summary", "--loglevel", "WARNING", "--exit-code-on-error", "0"]
    for name in _PASSED_ON:
        value = getattr(args, name)
        if value is not None:
            if name in ("prompts", "tokenizer"):
                value = Path(value).absolute()
            command += [f"--llm-{name.replace('_', '-')}={value}"]
    if args.no_ignore_eos:
        command.append("--llm-no-ignore-eos")
    return [*command, "--llm-records", str(records)]


def _wait(process: subprocess.Popen[bytes], should_stop: Callable[[], bool]) -> None:
    asked = False
    while True:
        try:
            process.wait(0.1)
            return
        except subprocess.TimeoutExpired:
            if should_stop() and not asked:
                asked = True
                # Not SIGINT: its exception may fall into a callback that only prints it, and Locust
                # would go on. gevent runs the handler of this one in a greenlet of its own.
                process.send_signal(signal.SIGTERM)


def _read(path: Path, args: argparse.Namespace) -> LoadRun:
    first, *lines = path.read_text(encoding="utf-8").splitlines()
    totals = json.loads(first)
    records = tuple(RequestRecord.model_validate_json(line) for line in lines)
    return LoadRun(
        records=records,
        planned=len(records) + totals["unfinished"],
        unfinished=totals["unfinished"],
        open_loop=False,
        wall_s=totals["wall_s"],
        intended_span_s=None,
        send_span_s=None,
        cpu_frac=totals["cpu_frac"],
        peak_in_flight=totals["peak_in_flight"],
        connection_limit=args.users,
        counted=tuple(totals["counted"]),
        server_output_tokens=totals["server_output_tokens"],
        unexpected_lengths=totals["unexpected_lengths"],
    )


def _last_words(log: Path) -> str:
    lines = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1][:500] if lines else "it said nothing"
