"""Locust users that yield the same request records as the agent's own driver.

For Locust's command line: `locust -f locustfile.py --headless -u 100 -r 10 -t 1m --host URL
--llm-records FILE`. Each user sends its next request when the last one was answered. Importing
Locust patches sockets and threads for gevent, so this file is loaded by Locust alone.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import gevent
from locust import FastHttpUser, constant, events, task

from gpuagent.errors import ConfigError
from gpuagent.load.plan import PATHS, LoadRequest, Planner
from gpuagent.load.records import Finished, read_records
from gpuagent.load.workload import make_planner

KEY_VARIABLE = "GPUAGENT_LOAD_KEY"
PARENT_VARIABLE = "GPUAGENT_LOAD_PARENT"
PREFIX = "llm_"
_FIELDS = (
    ("model", None, "model name at the server"),
    ("api", "completions", "completions or chat"),
    ("input_tokens", "128", "lengths, as in gpuagent load"),
    ("output_tokens", "64", "lengths, as in gpuagent load"),
    ("prompts", None, "text or .jsonl file"),
    ("tokenizer", None, "model folder"),
    ("records", None, "file for the request records, JSON lines"),
)


@events.init_command_line_parser.add_listener
def add_options(parser: Any) -> None:
    for name, default, text in _FIELDS:
        option = f"--llm-{name.replace('_', '-')}"
        parser.add_argument(option, dest=PREFIX + name, default=default, help=text)
    parser.add_argument("--llm-shared-prefix", dest="llm_shared_prefix", type=float, default=0.0)
    parser.add_argument("--llm-seed", dest="llm_seed", type=int, default=0)
    parser.add_argument("--llm-timeout", dest="llm_timeout", type=float, default=600.0)
    parser.add_argument(
        "--llm-no-ignore-eos", dest="llm_no_ignore_eos", action="store_true", default=False
    )


class _Run:
    """What the users of this process sent and received."""

    def __init__(self) -> None:
        self.planner: Planner
        self.path = ""
        self.headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        self.began = self.cpu_began = self.ended = self.cpu_s = 0.0
        self.launched = self.in_flight = self.peak = 0
        self.finished: list[Finished] = []

    def prepare(self, options: argparse.Namespace) -> None:
        given = {k.removeprefix(PREFIX): v for k, v in vars(options).items() if PREFIX in k}
        if given["api"] not in PATHS:
            raise ConfigError(f"--llm-api: give one of {', '.join(PATHS)}")
        if not given["model"]:
            raise ConfigError("--llm-model: give the model's name at the server")
        self.planner = make_planner(argparse.Namespace(**given))
        self.path = PATHS[given["api"]]
        if os.environ.get(KEY_VARIABLE):
            self.headers["Authorization"] = f"Bearer {os.environ[KEY_VARIABLE]}"
        LlmUser.network_timeout = LlmUser.connection_timeout = given["timeout"]

    def write(self, path: Path) -> None:
        read = read_records(self.finished, self.began)
        totals = {
            "unfinished": self.launched - len(self.finished),
            "wall_s": self.ended - self.began,
            "cpu_frac": self.cpu_s / max(1e-9, self.ended - self.began),
            "peak_in_flight": self.peak,
            "counted": read.counted,
            "server_output_tokens": read.server_output_tokens,
            "unexpected_lengths": read.unexpected_lengths,
        }
        with path.open("w", encoding="utf-8") as file:
            file.write(json.dumps(totals) + "\n")
            file.writelines(record.model_dump_json() + "\n" for record in read.records)


_run = _Run()


@events.init.add_listener
def prepare(environment: Any, **_: Any) -> None:
    try:
        _run.prepare(environment.parsed_options)
    except ConfigError as error:
        raise SystemExit(str(error)) from error


@events.test_start.add_listener
def start(**_: Any) -> None:
    parent = os.environ.get(PARENT_VARIABLE)
    if parent is not None:
        gevent.spawn(_end_with, int(parent))
    _run.began, _run.cpu_began = perf_counter(), process_time()


def _end_with(parent: int) -> None:
    """Traffic that nobody waits for any more must not go on."""
    while os.getppid() == parent:
        gevent.sleep(1.0)
    os._exit(1)


@events.test_stop.add_listener
def stop(environment: Any, **_: Any) -> None:
    _run.ended, _run.cpu_s = perf_counter(), process_time() - _run.cpu_began
    if environment.parsed_options.llm_records:
        _run.write(Path(environment.parsed_options.llm_records))


class LlmUser(FastHttpUser):
    """One user of a language model; waits for nothing but the answers."""

    wait_time = constant(0)

    @task
    def ask(self) -> None:
        request = _run.planner.next()
        _run.launched += 1
        _run.in_flight += 1
        _run.peak = max(_run.peak, _run.in_flight)
        try:
            self._send(request)
        finally:
            _run.in_flight -= 1

    def _send(self, request: LoadRequest) -> None:
        pieces: list[tuple[float, bytes]] = []
        error: str | None = None
        sent = perf_counter()
        with self.client.request(
            "POST",
            _run.path,
            name=_run.path,
            data=request.body,  # type: ignore[arg-type]  # bytes go through as they are
            headers=_run.headers,
            stream=True,
            catch_response=True,
        ) as response:
            status = response.status_code
            if not status:
                error = f"no answer: {response.error}"
            elif status != 200:
                pieces.append((perf_counter(), response.content or b""))
            else:
                error = _read_stream(response._response, pieces)
            if error is not None or status != 200:
                response.failure(error or f"HTTP {status}")
            else:
                response.success()
        _run.finished.append(
            Finished(
                intended=sent,
                sent=sent,
                status=status,
                pieces=pieces,
                error=error,
                input_tokens=request.input_tokens,
                output_tokens=request.output_tokens,
            )
        )


def _read_stream(response: Any, pieces: list[tuple[float, bytes]]) -> str | None:
    """Stamp each line as it comes; the reason where the stream breaks."""
    try:
        while line := response.readline(b"\n"):
            pieces.append((perf_counter(), line))
    except (OSError, ConnectionError, ValueError) as error:
        return f"the stream broke off: {error or type(error).__name__}"
    if not response.message_complete:
        return "the server closed the connection before the answer was complete"
    return None
