"""Analyses an upload in a child process with hard limits; the parent only ever sees JSON.

The readers have their own limits; this is the wall behind them, against what nobody thought of:
address space, processor time and file size are capped by the kernel, the environment is empty, the
working directory is the root, and a child that is too slow or too large is killed.
`python -m gpuagent.traces.sandbox` is the child: path and limits as arguments, JSON on stdout.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from gpuagent.traces.errors import TraceError

_REPORT_BYTES = 16 * 1024 * 1024
_PACKAGE_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Limits of one child. Address space counts libraries, so it exceeds what stays in memory."""

    address_bytes: int = 1 << 30
    cpu_s: int = 120
    wall_s: float = 150.0


def analyse_upload(path: Path, limits: SandboxLimits | None = None) -> dict[str, Any]:
    """The report of an untrusted file as plain JSON values; raises TraceError.

    Whatever happens in the child, the caller gets a report or a TraceError with a sentence.
    """
    return _run("report", path, None, limits or SandboxLimits())


def scrub_upload(source: Path, target: Path, limits: SandboxLimits | None = None) -> None:
    """Write a scrubbed copy of an untrusted file to `target`; raises TraceError.

    A file that is refused half way leaves no target behind.
    """
    was_there = target.exists()
    try:
        _run("scrub", source, target, limits or SandboxLimits())
    except TraceError:
        if not was_there:
            target.unlink(missing_ok=True)
        raise


def _run(task: str, path: Path, target: Path | None, limits: SandboxLimits) -> dict[str, Any]:
    command = [sys.executable, "-P", "-s", "-m", "gpuagent.traces.sandbox", task]
    command += [str(path.resolve()), str(limits.address_bytes), str(limits.cpu_s)]
    command += [str(target.resolve())] if target is not None else []
    with tempfile.TemporaryFile() as output:
        try:
            child = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=_environment(),
                timeout=limits.wall_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise TraceError(
                "too_slow",
                f"Reading took longer than {limits.wall_s:.0f} s. Record a shorter window.",
            ) from None
        answer = _answer(output)
    if answer is None:
        raise _died(child.returncode)
    if "error" in answer:
        raise TraceError(str(answer["error"]), str(answer.get("message", "The file was refused.")))
    return answer


def _environment() -> dict[str, str]:
    """Nothing of the parent's environment: it may hold secrets, and threads cost address space."""
    return {
        "PATH": os.defpath,
        "PYTHONPATH": str(_PACKAGE_ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUTF8": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }


def _answer(output: IO[bytes]) -> dict[str, Any] | None:
    output.seek(0)
    text = output.read(_REPORT_BYTES + 1)
    if len(text) > _REPORT_BYTES:
        return None
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _died(code: int) -> TraceError:
    if code in (-24, 137, -9):  # SIGXCPU, SIGKILL
        return TraceError(
            "too_slow", "Reading used more time or memory than allowed. Record a shorter window."
        )
    return TraceError("refused", "The file could not be read within its limits and was refused.")


# --- the child ---------------------------------------------------------------------------------


def _limit(address_bytes: int, cpu_s: int) -> None:
    """Cap this process; where the platform has no such limits, only the parent's timeout holds."""
    try:
        import resource
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_AS, (address_bytes, address_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 2))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))


def main(arguments: list[str]) -> int:
    """Run one task under limits and write its JSON answer to stdout."""
    task, path, address_bytes, cpu_s, *rest = arguments
    from gpuagent.traces.analyse import analyse_file  # numpy loads before the limits apply
    from gpuagent.traces.scrub import scrub_file

    _limit(int(address_bytes), int(cpu_s))
    answer: dict[str, Any]
    try:
        if task == "scrub":
            scrub_file(Path(path), Path(rest[0]))
            answer = {"scrubbed": True}
        else:
            answer = analyse_file(Path(path)).as_dict()
    except TraceError as error:
        answer = {"error": error.code, "message": error.message}
    except MemoryError:
        answer = {
            "error": "too_large",
            "message": "The file needs more memory than allowed. Record a shorter window.",
        }
    sys.stdout.write(json.dumps(answer, allow_nan=False, default=float))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
