"""One run sent by several processes, for rates that one core cannot send.

They share the start: `perf_counter` is the same monotonic clock in every process of a machine
(Linux, macOS). An open loop's plan is dealt out in turn; a closed loop's streams are divided.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from time import perf_counter
from typing import Any

from gpuagent.errors import ConfigError
from gpuagent.load.client import Endpoint
from gpuagent.load.driver import LoadRun, run_load
from gpuagent.load.plan import LoadRequest
from gpuagent.load.sessions import follow_up
from gpuagent.load.workload import make_planner

_READY_S = 60.0


@dataclass(frozen=True, slots=True)
class Share:
    """What one process sends. args, seed: of the planner that makes what is not planned yet, later
    turns and (`endless`) further requests of a closed loop; it is made in the process itself."""

    planned: Sequence[LoadRequest]
    args: argparse.Namespace
    seed: int
    streams: int | None = None
    endless: bool = False


def run_many(
    endpoint: Endpoint,
    shares: Sequence[Share],
    *,
    timeout_s: float,
    until_s: float | None,
    should_stop: Callable[[], bool],
) -> LoadRun:
    """Every share in a process of its own, as one run. Raises ConfigError where one dies."""
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    processes, pipes = [], []
    try:
        for share in shares:
            mine, theirs = context.Pipe()
            process = context.Process(
                target=_send,
                args=(theirs, stop, endpoint, share, timeout_s, until_s),
                daemon=True,
            )
            process.start()
            theirs.close()
            processes.append(process)
            pipes.append(mine)
        for pipe in pipes:
            if not pipe.poll(_READY_S):
                raise ConfigError("a client process did not start: use fewer --processes")
            _receive(pipe)
        at = perf_counter() + 0.2
        for pipe in pipes:
            pipe.send(at)
        runs: dict[int, LoadRun] = {}
        while len(runs) < len(pipes):
            waiting = [pipe for i, pipe in enumerate(pipes) if i not in runs]
            for ready in wait(waiting, 0.1):
                runs[pipes.index(ready)] = _receive(ready)  # type: ignore[arg-type]
            if should_stop():
                stop.set()
        return merged([runs[i] for i in range(len(pipes))])
    finally:
        for process in processes:
            process.join(1.0)
            if process.is_alive():
                process.kill()
                process.join()


def merged(runs: Sequence[LoadRun]) -> LoadRun:
    """The runs as one: records by intended send; of the processor times the highest, since each
    process stamps its own tokens."""
    turns = [run.turns or (0,) * len(run.records) for run in runs]
    rows = [
        (record, turn)
        for run, places in zip(runs, turns, strict=True)
        for record, turn in zip(run.records, places, strict=True)
    ]
    rows.sort(key=lambda row: row[0].intended_s)
    records = tuple(record for record, _ in rows)
    usages = [run.server_output_tokens for run in runs]
    spans = runs[0].open_loop and len(records) > 1
    sent = [record.sent_s for record in records]
    return replace(
        runs[0],
        records=records,
        turns=tuple(turn for _, turn in rows) if any(run.turns for run in runs) else (),
        planned=sum(run.planned for run in runs),
        unfinished=sum(run.unfinished for run in runs),
        wall_s=max(run.wall_s for run in runs),
        intended_span_s=records[-1].intended_s - records[0].intended_s if spans else None,
        send_span_s=max(sent) - min(sent) if spans else None,
        cpu_frac=max(run.cpu_frac for run in runs),
        peak_in_flight=sum(run.peak_in_flight for run in runs),
        connection_limit=sum(run.connection_limit for run in runs),
        counted=tuple(sorted({how for run in runs for how in run.counted})),
        server_output_tokens=None if None in usages else sum(u for u in usages if u),
        unexpected_lengths=sum(run.unexpected_lengths for run in runs),
        cut_off=any(run.cut_off for run in runs),
    )


def _receive(pipe: Connection) -> Any:
    try:
        found = pipe.recv()
    except EOFError:
        raise ConfigError("a client process died before its run was over") from None
    if isinstance(found, Exception):
        raise ConfigError(f"a client process failed: {found}") from found
    return found


def _send(
    pipe: Connection,
    stop: Any,
    endpoint: Endpoint,
    share: Share,
    timeout_s: float,
    until_s: float | None,
) -> None:
    """In the child: say ready, be told the start, send, hand back the run."""
    # Ctrl-C reaches the whole group; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = os.getppid()
    try:
        planner = make_planner(share.args, seed=share.seed)
        pipe.send("ready")
        began_at = pipe.recv()
        run = run_load(
            endpoint,
            share.planned,
            streams=share.streams,
            timeout_s=timeout_s,
            until_s=until_s,
            more=planner.next if share.endless else None,
            follow=follow_up(share.args, planner),
            should_stop=lambda: stop.is_set() or os.getppid() != parent,
            began_at=began_at,
        )
        pipe.send(run)
    except Exception as error:  # noqa: BLE001  handed to the parent, which ends the run
        pipe.send(RuntimeError(f"{type(error).__name__}: {error}"[:500]))
