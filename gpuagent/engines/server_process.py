"""A server as a process group inside the trial's session: log to a file, a stop that is complete.

The group is its own, so that a signal reaches every process of the server and nothing else; the
session is the trial's, so that the trial's guardian ends the server too, however the trial ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from gpuagent.errors import AgentError
from gpuagent.wire import FailureReason

# Seconds after which each harder signal follows.
STOP_STEPS = ((signal.SIGINT, 6.0), (signal.SIGTERM, 4.0), (signal.SIGKILL, 5.0))
LOG_TAIL_BYTES = 256 * 1024
MAX_LOG_BYTES = 64 * 1024 * 1024
# Words in names of variables that hold secrets; the server needs none of them.
_SECRET_WORDS = ("TOKEN", "SECRET", "PASSWORD", "CREDENTIAL", "API_KEY", "ENDPOINT_KEY")


class ServerProcess:
    """One running server. `close` may be called twice and from anywhere."""

    def __init__(self, command: Sequence[str], *, env: dict[str, str], log: Path) -> None:
        """Raises AgentError(agent_error) where the program is not there."""
        self.command = tuple(command)
        self._log = log
        log.write_bytes(b"")
        # Appending, so that a log that grew too long can be cut while it is written.
        with log.open("ab") as out:
            try:
                self._process = subprocess.Popen(
                    self.command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    env=env,
                    cwd=log.parent,
                    process_group=0,
                )
            except OSError as error:
                raise AgentError(
                    FailureReason.AGENT_ERROR,
                    f"{command[0]} cannot be started: {error.strerror or error}",
                ) from error
        self.pid = self._process.pid

    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def log_tail(self) -> str:
        try:
            with self._log.open("rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - LOG_TAIL_BYTES))
                return file.read().decode(errors="replace")
        except OSError:
            return ""

    def cut_log(self) -> None:
        """Drop what was logged once it fills more than MAX_LOG_BYTES: a disk is not endless."""
        with contextlib.suppress(OSError):
            if self._log.stat().st_size > MAX_LOG_BYTES:
                os.truncate(self._log, 0)

    def close(self) -> None:
        """Interrupt, terminate, kill; returns when no process of the group is left."""
        for number, patience_s in STOP_STEPS:
            if not self._signal(number):
                break
            deadline = time.monotonic() + patience_s
            while time.monotonic() < deadline and self._alive():
                time.sleep(0.05)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1)

    def _alive(self) -> bool:
        self._process.poll()
        return group_alive(self.pid)

    def _signal(self, number: signal.Signals) -> bool:
        if not self._alive():
            return False
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)
        return True


def group_alive(group: int) -> bool:
    """Whether a process of the group is left that is more than an entry in the table."""
    from gpuagent.isolate import all_pids, is_zombie

    for pid in all_pids():
        with contextlib.suppress(OSError):
            if os.getpgid(pid) == group and not is_zombie(pid):
                return True
    return False


def server_environment(extra: dict[str, str]) -> dict[str, str]:
    """This process's variables without secrets, and without those that would reach outside."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not any(word in name.upper() for word in _SECRET_WORDS)
    }
    return {
        **kept,
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "NO_COLOR": "1",
        **extra,
    }
