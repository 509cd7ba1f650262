"""The agent's main loop: claim, run, deliver, wait for a wake or the next poll.

One trial at a time. A host lock keeps a second daemon of the same state folder away. SIGTERM or
SIGINT stops at once: the child ends and the trial is given back unharmed. `drain` from the server
lets the trial finish and takes no other.
"""

from __future__ import annotations

import fcntl
import logging
import random
import secrets
import shutil
import signal
import threading
import time
from pathlib import Path
from types import FrameType

from gpuagent import calibration, environment, models
from gpuagent.client import AdvisorClient, ClientError, LeaseLost, Refused, Unreachable
from gpuagent.config import AgentConfig, Identity
from gpuagent.errors import ConfigError
from gpuagent.isolate import TrialProcess
from gpuagent.spool import Spool
from gpuagent.supervise import End, Supervisor
from gpuagent.telemetry.sampler import Sampler
from gpuagent.wire import (
    AgentHello,
    Failure,
    FailureReason,
    TrialOutcome,
    TrialSpec,
)
from gpuagent.wire.protocol import ClaimReply, Intervals, Lease
from gpuagent.wire.trial import Artifact
from gpuagent.worker import WakeListener

log = logging.getLogger(__name__)

EXIT_OK, EXIT_CREDENTIAL, EXIT_WIRE = 0, 77, 78
"""78: the versions do not fit; a service manager must not start this agent again."""

KEEP_WORK_DIRS = 20


class Daemon:
    """One agent process. `run` blocks until it is stopped and returns the exit code."""

    def __init__(self, config: AgentConfig, identity: Identity) -> None:
        self._config, self._identity = config, identity
        self._client = AdvisorClient(identity.server_url, identity.credential)
        self._spool = Spool(config.spool_dir)
        self._instance = secrets.token_hex(8)
        self._intervals = Intervals()
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._hello: AgentHello | None = None
        self._hello_sent: AgentHello | None = None
        self._failures = 0

    def stop(self, *_: object) -> None:
        """Stop after giving the current trial back. Safe to call from a signal handler."""
        self._stopping.set()
        self._woken.set()

    def run(self) -> int:
        with _host_lock(self._config.state_dir):
            self._install_signals()
            listener = self._start_listener()
            with Sampler() as sampler:
                try:
                    return self._loop(sampler)
                finally:
                    if listener is not None:
                        listener.stop()
                    self._client.close()

    def _install_signals(self) -> None:
        def handle(number: int, frame: FrameType | None) -> None:
            if self._stopping.is_set():
                raise KeyboardInterrupt  # a second signal does not wait for anything
            log.info("stopping on signal %d", number)
            self.stop()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, handle)

    def _start_listener(self) -> WakeListener | None:
        broker_url = self._config.broker_url or self._identity.broker_url
        if not broker_url:
            log.info("no broker: polling every %.0f s", self._intervals.poll_s)
            return None
        listener = WakeListener(broker_url, self._identity.slug, self._woken.set)
        listener.start()
        return listener

    # --- the loop ------------------------------------------------------------------------------

    def _loop(self, sampler: Sampler) -> int:
        log.info("agent %s works for %s", self._identity.slug, self._identity.server_url)
        while not self._stopping.is_set():
            self._woken.clear()
            try:
                claimed = self._round(sampler)
                self._failures = 0
            except Unreachable as error:
                self._failures += 1
                claimed = False
                log.warning("server not reached: %s", error)
            except Refused as error:
                if error.is_wire_version:
                    log.error("%s", error)
                    return EXIT_WIRE
                if error.is_credential:
                    log.error("%s", error)
                    return EXIT_CREDENTIAL
                log.error("claim refused: %s", error)
                claimed = False
            if not claimed:
                self._woken.wait(self._pause_s())
        return EXIT_OK

    def _pause_s(self) -> float:
        """Until the next poll, with jitter; short after the first failures of the server."""
        if self._failures:
            return min(2.0**self._failures, self._intervals.poll_s) * random.uniform(0.8, 1.2)  # noqa: S311
        return self._intervals.poll_s * random.uniform(0.8, 1.0)  # noqa: S311

    def _round(self, sampler: Sampler) -> bool:
        """Deliver what waits, claim, run. Returns whether there was a trial."""
        self._spool.replay(self._client)
        if self._disk_is_full():
            return False
        reply = self._claim()
        if samples := sampler.drain()[-1:]:
            self._client.telemetry(samples)
        if reply.spec is None or reply.lease is None:
            return False
        self._run_trial(reply.spec, reply.lease, reply.attempt or 1, sampler)
        return True

    def _claim(self) -> ClaimReply:
        hello = self._current_hello()
        changed = hello != self._hello_sent
        reply = self._client.claim(instance=self._instance, hello=hello if changed else None)
        self._hello_sent = hello
        self._intervals = reply.intervals
        return reply

    def _current_hello(self) -> AgentHello:
        if self._hello is None:
            self._hello = environment.build_hello(self._config.model_roots)
        found = models.scan_models(self._config.model_roots)
        ceilings = calibration.stored(self._config.state_dir)
        if (found, ceilings) != (self._hello.models, self._hello.ceilings):
            update = {"models": found, "ceilings": ceilings}
            self._hello = self._hello.model_copy(update=update)
        return self._hello

    def _disk_is_full(self) -> bool:
        self._config.work_dir.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self._config.work_dir).free
        if free < self._config.min_free_bytes:
            log.error("only %.1f GiB free: taking no trials", free / 1024**3)
            return True
        return False

    # --- one trial -----------------------------------------------------------------------------

    def _run_trial(self, spec: TrialSpec, lease: Lease, attempt: int, sampler: Sampler) -> None:
        work_dir = self._config.work_dir / f"{spec.trial_id}-{attempt}"
        log.info("trial %s attempt %d: %s", spec.trial_id, attempt, spec.experiment)
        try:
            process = TrialProcess.start(spec, work_dir, model_roots=self._config.model_roots)
        except OSError as error:
            log.exception("the trial could not be started")
            self._deliver(lease, _agent_error(f"The trial could not be started: {error}"))
            return
        sampler.drain()
        sampler.watch(process.pid)
        supervisor = Supervisor(
            client=self._client,
            lease=lease,
            process=process,
            telemetry=sampler,
            intervals=self._intervals,
            stopping=self._stopping,
        )
        try:
            end, outcome = supervisor.run()
        finally:
            sampler.watch(None)
        log.info("trial %s: %s", spec.trial_id, end.value)
        if end is End.STOPPED:
            self._release(lease)
        elif outcome is not None:
            self._deliver(lease, outcome, work_dir)
        _forget_old_work(self._config.work_dir)

    def _release(self, lease: Lease) -> None:
        try:
            self._client.release(lease, "The agent was stopped.")
        except ClientError as error:
            log.warning("could not give the trial back: %s", error)

    def _deliver(self, lease: Lease, outcome: TrialOutcome, work_dir: Path | None = None) -> None:
        try:
            self._spool.put(lease, outcome)
        except OSError:
            log.exception("the outcome could not be stored; sending it unspooled")
            try:
                self._client.result(lease, outcome)
            except ClientError:
                log.exception("and it could not be sent either")
            return
        self._spool.replay(self._client)
        if work_dir is not None:
            self._upload(lease, outcome.artifacts, work_dir)

    def _upload(self, lease: Lease, artifacts: tuple[Artifact, ...], work_dir: Path) -> None:
        for artifact in artifacts:
            try:
                self._client.upload(lease, artifact.sha256, work_dir / artifact.name)
            except (LeaseLost, Refused, Unreachable, OSError) as error:
                log.warning("artefact %s not uploaded: %s", artifact.name, error)


def _agent_error(message: str) -> TrialOutcome:
    return TrialOutcome(
        status="failed",
        failure=Failure(reason=FailureReason.AGENT_ERROR, message=message[:1000]),
    )


class _host_lock:  # noqa: N801 - reads as a function at its use
    """Held while a daemon works from `folder`; a second one is refused with a sentence."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._handle = (folder / "lock").open("w")

    def __enter__(self) -> None:
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                "Another agent already runs from this state folder. Stop it first, or set"
                " GPUAGENT_STATE_DIR to another folder and register that agent too."
            ) from None

    def __exit__(self, *_: object) -> None:
        self._handle.close()


def _forget_old_work(folder: Path) -> None:
    """Keep the newest work folders for a look; they hold logs and specs, no weights."""
    folders = sorted(
        (path for path in folder.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime
    )
    for path in folders[:-KEEP_WORK_DIRS]:
        shutil.rmtree(path, ignore_errors=True)


def serve(config: AgentConfig, identity: Identity) -> int:
    """Run a daemon until it is stopped; returns its exit code."""
    started = time.monotonic()
    try:
        return Daemon(config, identity).run()
    finally:
        log.info("agent stopped after %.0f s", time.monotonic() - started)
