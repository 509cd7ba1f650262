"""Runs a command under Nsight Systems and exports what it saw to SQLite. Standard library only.

Node-level graph tracing, no sampling, capture only between the CUDA profiler's start and stop: the
default (graphs as one block, the whole run) is the usual reason for a useless file.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from gpuagent.errors import AgentError
from gpuagent.wire import FailureReason

_POLL_S = 0.2
_LOG_CHARS = 600


def find_nsys() -> str | None:
    """The binary, or None where it is not on the path."""
    return shutil.which("nsys")


def profile_command(nsys: str, output: Path, inner: Sequence[str]) -> list[str]:
    """The command that records `inner`; `output` without suffix."""
    return [
        *(nsys, "profile", "-t", "cuda,nvtx", "--cuda-graph-trace=node"),
        *("--trace-fork-before-exec=true", "--capture-range=cudaProfilerApi"),
        *("--capture-range-end=stop", "-s", "none", "--cpuctxsw=none"),
        *("--export=sqlite", "--force-overwrite=true", "-o", str(output)),
        *inner,
    ]


def record(
    nsys: str,
    output: Path,
    inner: Sequence[str],
    *,
    timeout_s: float,
    tick: Callable[[], None],
) -> Path:
    """The SQLite export of a run of `inner`.

    tick: called while it runs; what it raises ends the run. Raises AgentError where the run fails,
    takes longer than `timeout_s` or leaves no export.
    """
    log = output.with_suffix(".log")
    until = time.monotonic() + timeout_s
    with log.open("wb") as out:
        # In the session of the trial, so that whatever ends the trial ends this, too.
        process = subprocess.Popen(
            profile_command(nsys, output, inner),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            while process.poll() is None:
                tick()
                if time.monotonic() > until:
                    raise AgentError(
                        FailureReason.TIMED_OUT, f"nsys took longer than {timeout_s:.0f} s"
                    )
                time.sleep(_POLL_S)
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(timeout=5)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
    export = output.with_suffix(".sqlite")
    if process.returncode != 0 or not export.is_file():
        tail = log.read_text(errors="replace")[-_LOG_CHARS:].strip()
        raise AgentError(
            FailureReason.AGENT_ERROR,
            f"nsys ended with code {process.returncode} and "
            f"{'an' if export.is_file() else 'no'} export: {tail}",
        )
    return export
