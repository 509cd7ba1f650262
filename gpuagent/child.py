"""The process of one trial: `python -m gpuagent.child WORK_DIR`, started by `gpuagent.isolate`.

Reads `spec.json`, writes `result.json` or `failure.json` in one step each, sends events as JSON
lines on `--events-fd`. A line on standard input asks it to cancel. It leads a session of its own,
and a guardian process ends that whole session when the parent or this process dies, however.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from gpuagent.errors import AgentError, CancelledByServer
from gpuagent.wire import Failure, FailureReason, TrialEvent, TrialSpec

SPEC_FILE = "spec.json"
RESULT_FILE = "result.json"
FAILURE_FILE = "failure.json"
LOG_FILE = "log.txt"
EXIT_OK, EXIT_FAILED, EXIT_CANCELLED = 0, 3, 4
# Writes to a pipe up to this size are whole or not at all (PIPE_BUF on Linux).
MAX_EVENT_BYTES = 4096
MAX_EVENT_MESSAGE = 800
# How long the running step may take to notice a cancel before the process ends anyway.
CANCEL_GRACE_S = 0.7
_PR_SET_PDEATHSIG = 1


def main(argv: list[str] | None = None) -> int:
    """Run the trial in WORK_DIR and say how it ended by a file and the exit code."""
    parser = argparse.ArgumentParser(prog="gpuagent.child")
    parser.add_argument("work_dir", type=Path)
    parser.add_argument("--events-fd", type=int, default=None)
    parser.add_argument("--life-fd", type=int, default=None)
    parser.add_argument("--model-root", type=Path, action="append", default=[])
    args = parser.parse_args(argv)
    if args.life_fd is not None:
        # Before any thread exists and before torch: a fork is only safe now.
        start_guardian(args.life_fd, keep_fd=args.life_fd)
        _be_the_first_to_go()
    cancelled = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: cancelled.set())
    if args.events_fd is not None:
        threading.Thread(target=_listen, args=(cancelled,), name="stdin", daemon=True).start()
    code = _run(args.work_dir, tuple(args.model_root), EventPipe(args.events_fd), cancelled)
    sys.stdout.flush()
    sys.stderr.flush()
    # Skips the destructors of torch and CUDA: the result is on disk, and they may hang.
    os._exit(code)


class EventPipe:
    """Sends events without waiting: a parent that does not read must not slow a measurement."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd
        self._seq = 0
        if fd is not None:
            os.set_blocking(fd, False)

    def emit(
        self,
        phase: str,
        message: str,
        done_frac: float | None = None,
        remaining_s: float | None = None,
        level: str = "info",
    ) -> None:
        """One event. Dropped where the pipe is full or the parent is gone; `seq` shows a gap."""
        self._seq += 1
        event = TrialEvent.model_validate(
            {
                "seq": self._seq,
                "at_s": time.time(),
                "phase": phase,
                "level": level,
                "message": message[:MAX_EVENT_MESSAGE],
                "done_frac": done_frac,
                "remaining_s": remaining_s,
            }
        )
        line = event.model_dump_json().encode() + b"\n"
        if self._fd is None or len(line) > MAX_EVENT_BYTES:
            return
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self._fd, line)


def start_guardian(life_fd: int, *, keep_fd: int) -> int:
    """Fork a process that ends this session once `life_fd` closes or its parent dies.

    Needed beside a thread here: a native call may hold the interpreter for seconds, and a child
    killed from outside cannot end what it started. Returns the guardian's pid.
    """
    leader = os.getpid()
    pid = os.fork()
    if pid != 0:
        return pid
    # In the guardian: signals to the group must not end it before the others are gone.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: _end_session(leader))
    _die_with_parent(signal.SIGTERM)
    if os.getppid() != leader:
        _end_session(leader)
    _close_all_but(keep_fd)
    while True:
        try:
            if os.read(life_fd, 1) == b"":
                _end_session(leader)
        except OSError:
            _end_session(leader)


def _run(
    work_dir: Path, roots: tuple[Path, ...], events: EventPipe, cancelled: threading.Event
) -> int:
    try:
        spec = TrialSpec.model_validate_json((work_dir / SPEC_FILE).read_bytes())
        # Imported late, so that a cancel or a dead parent is noticed while torch loads.
        from gpuagent.runner import run_trial

        result = run_trial(
            spec,
            emit=events.emit,
            should_cancel=cancelled.is_set,
            model_roots=roots,
            work_dir=work_dir,
        )
        write_atomically(work_dir / RESULT_FILE, result.model_dump_json())
        return EXIT_OK
    except CancelledByServer:
        return EXIT_CANCELLED
    except AgentError as error:
        failure = error.to_failure()
    except MemoryError as error:
        failure = Failure(
            reason=FailureReason.OUT_OF_MEMORY, message=f"The host ran out of memory: {error}"[:400]
        )
    except Exception as error:  # noqa: BLE001  the last line of defence: a reason, never silence
        from gpuagent.engines.classify import as_agent_error

        failure = as_agent_error(error, doing="the trial").to_failure()
    if failure.detail:
        print(failure.detail, file=sys.stderr)  # noqa: T201  stderr is the trial's log
    write_atomically(work_dir / FAILURE_FILE, failure.model_dump_json())
    return EXIT_FAILED


def write_atomically(path: Path, text: str) -> None:
    """The whole file or none of it, also across a crash of the host."""
    temporary = path.with_suffix(path.suffix + ".part")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def read_json_line(line: bytes) -> TrialEvent | None:
    """An event from a line of the pipe, or None for a torn one."""
    try:
        return TrialEvent.model_validate(json.loads(line))
    except ValueError:
        return None


def _listen(cancelled: threading.Event) -> None:
    """Any line on standard input cancels; its end means that the parent is gone.

    A step notices the flag. An import or a load does not for seconds, and has nothing to tidy up,
    so this process then just ends; the guardian ends what it started.
    """
    while True:
        line = sys.stdin.buffer.readline()
        if line == b"":
            _end_session(os.getpid())
        cancelled.set()
        time.sleep(CANCEL_GRACE_S)
        os._exit(EXIT_CANCELLED)


def _be_the_first_to_go() -> None:
    """When the host runs out of memory the kernel should take the trial, not the daemon."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")


def _die_with_parent(number: signal.Signals) -> None:
    if not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def _close_all_but(keep_fd: int) -> None:
    """Give up the pipes of the trial, or the parent would wait for their end for ever."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    highest = max((int(name) for name in _open_fds()), default=256)
    for fd in range(3, highest + 1):
        if fd != keep_fd:
            with contextlib.suppress(OSError):
                os.close(fd)


def _open_fds() -> list[str]:
    for folder in ("/proc/self/fd", "/dev/fd"):
        with contextlib.suppress(OSError):
            return os.listdir(folder)  # noqa: PTH208  names only, in a process about to close them
    return []


def _end_session(leader: int) -> None:
    """SIGKILL everything in the leader's session, then this process."""
    from gpuagent.isolate import session_pids

    own = os.getpid()
    for pid in session_pids(leader):
        if pid != own:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
