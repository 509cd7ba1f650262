"""A trial in a process of its own, watched from a loop that never blocks.

CUDA, its memory and its crashes stay in the child; this side owns deadline, cancel and exit code
and turns whatever happens into a `TrialOutcome`. No torch here. The child's session ends with this
process: a pipe that only this process holds open tells the child's guardian.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from pydantic import ValidationError

from gpuagent.child import (
    EXIT_CANCELLED,
    FAILURE_FILE,
    LOG_FILE,
    RESULT_FILE,
    SPEC_FILE,
    read_json_line,
    write_atomically,
)
from gpuagent.wire import (
    Failure,
    FailureReason,
    TrialEvent,
    TrialOutcome,
    TrialResult,
    TrialSpec,
)
from gpuagent.wire.trial import Artifact, BaselineResult, ProfileResult, VerifyResult

log = logging.getLogger(__name__)

LOG_HEAD_BYTES = 1 << 20
LOG_TAIL_BYTES = 1 << 18
LOG_TAIL_CHARS = 16_000
# The child enforces its own limit first and says where it was; this one is for a child that hangs.
DEADLINE_GRACE_S = 15.0


@dataclass(frozen=True, slots=True)
class StopTimes:
    """Seconds after the first request to stop at which each harder signal follows."""

    interrupt_s: float = 2.0
    terminate_s: float = 5.0
    kill_s: float = 8.0


class TrialProcess:
    """One running child. Call `poll_events` and `wait` from the supervising loop."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        *,
        work_dir: Path,
        events_fd: int,
        life_fd: int,
        deadline_s: float,
        stop_times: StopTimes,
    ) -> None:
        self._process = process
        self._work_dir = work_dir
        self._events_fd: int | None = events_fd
        self._life_fd: int | None = life_fd
        self._deadline = time.monotonic() + deadline_s
        self._deadline_s = deadline_s
        self._stop_times = stop_times
        self._stop_began: float | None = None
        self._signals_sent: set[signal.Signals] = set()
        self._cancel_asked = False
        self._timed_out = False
        self._partial = b""
        self._log = _LogPump(process.stdout, work_dir / LOG_FILE)

    @classmethod
    def start(
        cls,
        spec: TrialSpec,
        work_dir: Path,
        *,
        model_roots: Sequence[Path] = (),
        deadline_s: float | None = None,
        stop_times: StopTimes | None = None,
        env: dict[str, str] | None = None,
    ) -> Self:
        """Spawn the child. Raises OSError where the folder or the process cannot be made.

        deadline_s: seconds after which the trial is stopped as timed out; default is the spec's
        own limit and a little more, since the child ends itself at that limit.
        """
        work_dir.mkdir(parents=True, exist_ok=True)
        for stale in (RESULT_FILE, FAILURE_FILE):
            (work_dir / stale).unlink(missing_ok=True)
        write_atomically(work_dir / SPEC_FILE, spec.model_dump_json())
        events_read, events_write = os.pipe()
        life_read, life_write = os.pipe()
        command = [sys.executable, "-m", "gpuagent.child", str(work_dir.resolve())]
        command += ["--events-fd", str(events_write), "--life-fd", str(life_read)]
        for root in model_roots:
            command += ["--model-root", str(root)]
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(events_write, life_read),
                start_new_session=True,
                env=_child_env(env),
            )
        except OSError:
            os.close(events_read)
            os.close(life_write)
            raise
        finally:
            os.close(events_write)
            os.close(life_read)
        os.set_blocking(events_read, False)
        return cls(
            process,
            work_dir=work_dir,
            events_fd=events_read,
            life_fd=life_write,
            deadline_s=spec.timeout_s + DEADLINE_GRACE_S if deadline_s is None else deadline_s,
            stop_times=stop_times or StopTimes(),
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def poll_events(self) -> list[TrialEvent]:
        """Events since the last call, in order. Also moves deadline and cancel on."""
        self._advance()
        if self._events_fd is None:
            return []
        lines = self._read_events().split(b"\n")
        self._partial = lines.pop()
        return [event for line in lines if (event := read_json_line(line)) is not None]

    def cancel(self) -> None:
        """Ask the child to stop; harder signals follow by themselves. Returns at once."""
        if self.running and not self._cancel_asked:
            self._cancel_asked = True
            self._begin_stop()

    def wait(self, timeout_s: float) -> bool:
        """Whether the child has ended, waiting for at most `timeout_s`."""
        until = time.monotonic() + timeout_s
        while True:
            self._advance()
            left_s = until - time.monotonic()
            try:
                self._process.wait(timeout=max(0.0, min(left_s, 0.1)))
            except subprocess.TimeoutExpired:
                if left_s <= 0:
                    return False
                continue
            self._clean_up()
            return True

    def kill(self) -> None:
        """End the child and everything it started, now. Harmless after the end."""
        if self._life_fd is None:
            return
        _kill_session(self._process.pid, reaped=self._process.returncode is not None)
        self._process.wait()
        self._clean_up()

    def outcome(self) -> TrialOutcome:
        """How it ended; only after `wait` returned True or after `kill`.

        A result that was written before a cancel took effect still counts.
        """
        if self.running:
            raise RuntimeError("the trial is still running")
        log_tail = self._log.tail()
        result, failure = self._read_result()
        if result is not None:
            return TrialOutcome(
                status="succeeded",
                result=result,
                artifacts=_artifacts_of(result),
                log_tail=log_tail,
                tokens_generated=_tokens_of(result),
            )
        ended_by_us = self._cancel_asked or self._process.returncode == EXIT_CANCELLED
        if ended_by_us and not self._timed_out:
            return TrialOutcome(status="cancelled", log_tail=log_tail)
        failure = failure or self._read_failure() or self._failure_from_exit()
        return TrialOutcome(status="failed", failure=failure, log_tail=log_tail)

    # --- stopping ------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Notice the deadline, and send the next harder signal when it is due."""
        if not self.running:
            return
        now = time.monotonic()
        if self._stop_began is None:
            if now > self._deadline:
                self._timed_out = True
                self._begin_stop()
            return
        since_s = now - self._stop_began
        times = self._stop_times
        for number, due_s in (
            (signal.SIGINT, times.interrupt_s),
            (signal.SIGTERM, times.terminate_s),
        ):
            if since_s >= due_s and number not in self._signals_sent:
                self._signals_sent.add(number)
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(self._process.pid, number)
        if since_s >= times.kill_s and signal.SIGKILL not in self._signals_sent:
            self._signals_sent.add(signal.SIGKILL)
            _kill_session(self._process.pid, reaped=False)

    def _begin_stop(self) -> None:
        self._stop_began = time.monotonic()
        if self._process.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                self._process.stdin.write(b"cancel\n")
                self._process.stdin.flush()

    def _clean_up(self) -> None:
        """After the end: nothing of the session survives, the log is complete."""
        if self._life_fd is not None:
            # The guardian wakes up at the closed pipe and ends what the child left behind.
            os.close(self._life_fd)
            self._life_fd = None
            _kill_session(self._process.pid, reaped=True)
            if self._process.stdin is not None:
                with contextlib.suppress(OSError):
                    self._process.stdin.close()
            self._log.finish()

    # --- reading -------------------------------------------------------------------------------

    def _read_events(self) -> bytes:
        read = [self._partial]
        while self._events_fd is not None:
            try:
                chunk = os.read(self._events_fd, 65_536)
            except BlockingIOError:
                break
            if chunk == b"":
                os.close(self._events_fd)
                self._events_fd = None
                break
            read.append(chunk)
        return b"".join(read)

    def _read_result(self) -> tuple[TrialResult | None, Failure | None]:
        try:
            data = (self._work_dir / RESULT_FILE).read_bytes()
        except OSError:
            return None, None
        try:
            return TrialResult.model_validate_json(data), None
        except ValidationError as error:
            return None, Failure(
                reason=FailureReason.AGENT_ERROR,
                message="The trial's result cannot be read",
                detail=str(error)[:4000],
            )

    def _read_failure(self) -> Failure | None:
        try:
            failure = Failure.model_validate_json((self._work_dir / FAILURE_FILE).read_bytes())
        except (OSError, ValidationError):
            return None
        if self._timed_out:
            return _timed_out(self._deadline_s)
        return failure

    def _failure_from_exit(self) -> Failure:
        code = self._process.returncode
        if self._timed_out:
            return _timed_out(self._deadline_s)
        if code < 0:
            name = _signal_name(-code)
            return Failure(
                reason=FailureReason.CHILD_KILLED, message=f"The trial's process ended by {name}"
            )
        return Failure(
            reason=FailureReason.AGENT_ERROR,
            message=f"The trial's process ended with code {code} and left no result",
        )


class _LogPump:
    """Copies the child's output to a file: the first part whole, of the rest the latest."""

    def __init__(self, source: IO[bytes] | None, path: Path) -> None:
        self._source = source
        self._path = path
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._dropped_bytes = 0
        self._thread = threading.Thread(target=self._copy, name="trial-log", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait until everything is on disk."""
        self._thread.join(timeout=5)

    def tail(self) -> str:
        """The last LOG_TAIL_CHARS characters of the log."""
        try:
            with self._path.open("rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - 4 * LOG_TAIL_CHARS))
                return file.read().decode(errors="replace")[-LOG_TAIL_CHARS:]
        except OSError:
            return ""

    def _copy(self) -> None:
        if self._source is None:
            return
        written = 0
        try:
            with self._path.open("wb") as file:
                while chunk := os.read(self._source.fileno(), 65_536):
                    if written < LOG_HEAD_BYTES:
                        file.write(chunk)
                        file.flush()
                        written += len(chunk)
                    else:
                        self._keep(chunk)
                if self._dropped_bytes:
                    file.write(f"\n… {self._dropped_bytes:,} bytes left out …\n".encode())
                file.writelines(self._tail)
        except OSError:
            # A full disk must not block the child on its own output: read on, keep nothing.
            log.exception("the trial's log cannot be written")
            with contextlib.suppress(OSError):
                while os.read(self._source.fileno(), 65_536):
                    continue
        finally:
            with contextlib.suppress(OSError):
                self._source.close()

    def _keep(self, chunk: bytes) -> None:
        self._tail.append(chunk)
        self._tail_bytes += len(chunk)
        while self._tail_bytes > LOG_TAIL_BYTES:
            oldest = self._tail.popleft()
            self._tail_bytes -= len(oldest)
            self._dropped_bytes += len(oldest)


def session_pids(leader: int) -> list[int]:
    """Processes that live in the session that `leader` leads; zombies do not count."""
    return [pid for pid in all_pids() if _session_of(pid) == leader and not is_zombie(pid)]


def all_pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
    except OSError:
        # Not Linux. Slower, but there is no other way to list processes.
        import psutil

        return psutil.pids()


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def is_zombie(pid: int) -> bool:
    """Ended and not yet waited for: nothing is left to kill."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    # The name before the state is in brackets and may hold anything.
    return stat.rpartition(")")[2].split()[0] in "ZX"


def _kill_session(leader: int, *, reaped: bool) -> None:
    """SIGKILL to every process of the child's session.

    reaped: the leader is gone and its pid may be another process by now; a session keeps its
    number as long as one member lives, so members can still be told by it.
    """
    for pid in session_pids(leader):
        if reaped and pid == leader:
            continue
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _child_env(extra: dict[str, str] | None) -> dict[str, str]:
    env = {**os.environ, **(extra or {})}
    # Unbuffered, so that the log ends where the child did.
    env["PYTHONUNBUFFERED"] = "1"
    env.setdefault("TOKENIZERS_PARALLELISM", "false")
    env.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    return env


def _timed_out(limit_s: float) -> Failure:
    return Failure(
        reason=FailureReason.TIMED_OUT, message=f"The trial was stopped after {limit_s:.0f} s"
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _artifacts_of(result: TrialResult) -> tuple[Artifact, ...]:
    """Files in the work folder that the result announces."""
    if not isinstance(result.measurements, ProfileResult):
        return ()
    return tuple(t.artifact for t in result.measurements.traces if t.artifact is not None)


def _tokens_of(result: TrialResult) -> int | None:
    measurements = result.measurements
    if isinstance(measurements, BaselineResult):
        return sum(request.output_tokens for request in measurements.requests)
    if isinstance(measurements, VerifyResult):
        return sum(r.output_tokens for run in measurements.runs for r in run.requests)
    return None
