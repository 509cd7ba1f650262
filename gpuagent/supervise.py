"""Supervises one leased trial: the child process works, this side keeps the lease.

A thread of its own renews, so that nothing the trial does can let the lease run out. The loop
forwards events and telemetry, obeys cancel, and fences itself: when the last renewal that the
server confirmed is older than `fence_s` by this machine's own clock (suspend included), the child
is stopped and nothing of it is sent, because the server may have given the trial to another agent.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from gpuagent.client import AdvisorClient, ClientError, LeaseLost, Refused, Unreachable
from gpuagent.wire import HostSample, TrialEvent, TrialOutcome
from gpuagent.wire.protocol import ControlReply, Intervals, Lease

log = logging.getLogger(__name__)

TICK_S = 0.2
MAX_EVENTS_PER_POST = 200
MAX_UNSENT_EVENTS = 5000
MAX_UNSENT_SAMPLES = 900


class Process(Protocol):
    """The child that runs the trial; see `gpuagent.isolate.TrialProcess`."""

    def poll_events(self) -> list[TrialEvent]: ...
    def cancel(self) -> None: ...
    def kill(self) -> None: ...
    def wait(self, timeout_s: float) -> bool: ...
    def outcome(self) -> TrialOutcome: ...


class Telemetry(Protocol):
    def drain(self) -> list[HostSample]: ...


class End(StrEnum):
    """How supervision ended. Only `DONE` has an outcome to deliver."""

    DONE = "done"
    LEASE_LOST = "lease_lost"
    FENCED = "fenced"
    STOPPED = "stopped"


def boot_clock_s() -> float:
    """Seconds since boot, suspend included where the system has such a clock."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


@dataclass
class _Lifeline:
    """Shared between the renewing thread and the loop."""

    confirmed_s: float
    cancel: bool = False
    lost: bool = False
    drain: bool = False
    stop: threading.Event = field(default_factory=threading.Event)


class Supervisor:
    """Runs `process` under `lease` until it ends or the lease does."""

    def __init__(
        self,
        *,
        client: AdvisorClient,
        lease: Lease,
        process: Process,
        telemetry: Telemetry,
        intervals: Intervals,
        stopping: threading.Event,
        clock: Callable[[], float] = boot_clock_s,
    ) -> None:
        self._client, self._lease, self._process = client, lease, process
        self._telemetry, self._intervals, self._stopping = telemetry, intervals, stopping
        self._clock = clock
        self._line = _Lifeline(confirmed_s=clock())
        self._events: deque[TrialEvent] = deque(maxlen=MAX_UNSENT_EVENTS)
        self._samples: deque[HostSample] = deque(maxlen=MAX_UNSENT_SAMPLES)

    @property
    def drain_asked(self) -> bool:
        return self._line.drain

    def run(self) -> tuple[End, TrialOutcome | None]:
        """Block until the trial ended. The child is gone when this returns."""
        renewer = threading.Thread(target=self._renew_loop, name="renew", daemon=True)
        renewer.start()
        try:
            end = self._loop()
        finally:
            self._line.stop.set()
            self._process.kill()
        if end is not End.DONE:
            return end, None
        self._events.extend(self._process.poll_events())
        self._flush(final=True)
        return end, self._process.outcome()

    def _loop(self) -> End:
        next_events = next_telemetry = 0.0
        cancelled = False
        while True:
            ended = self._process.wait(TICK_S)
            now = self._clock()
            if self._line.lost:
                return End.LEASE_LOST
            if now - self._line.confirmed_s > self._intervals.fence_s:
                log.error("no renewal for %.0f s: stopping the trial", self._intervals.fence_s)
                return End.FENCED
            if ended:
                return End.DONE
            if self._stopping.is_set():
                return End.STOPPED
            if self._line.cancel and not cancelled:
                cancelled = True
                self._process.cancel()
            self._events.extend(self._process.poll_events())
            if now >= next_events:
                next_events = now + self._intervals.events_s
                self._send_events()
            if now >= next_telemetry:
                next_telemetry = now + self._intervals.telemetry_s
                self._send_telemetry()

    # --- the lease -----------------------------------------------------------------------------

    def _renew_loop(self) -> None:
        pause_s = 0.0  # the first renewal confirms the lease before the work means anything
        failures = 0
        while not self._line.stop.wait(pause_s):
            sent_s = self._clock()
            try:
                self._note(self._client.renew(self._lease), sent_s)
                failures, pause_s = 0, self._intervals.renew_s
            except (LeaseLost, Refused) as error:
                log.warning("lease lost: %s", error)
                self._line.lost = True
                return
            except Unreachable as error:
                failures += 1
                pause_s = min(2.0**failures / 2, 10.0, self._intervals.renew_s)
                log.warning("renewal failed (%d in a row): %s", failures, error)

    def _note(self, control: ControlReply, sent_s: float) -> None:
        # Counted from the send time: the server may have waited before it answered.
        self._line.confirmed_s = max(self._line.confirmed_s, sent_s)
        self._line.cancel = self._line.cancel or control.cancel
        self._line.drain = control.drain

    # --- events and telemetry ------------------------------------------------------------------

    def _send_events(self) -> None:
        if not self._events:
            return
        batch = [self._events[i] for i in range(min(len(self._events), MAX_EVENTS_PER_POST))]
        sent_s = self._clock()
        try:
            self._note(self._client.events(self._lease, batch), sent_s)
        except LeaseLost:
            self._line.lost = True
            return
        except Unreachable:
            return  # kept; `seq` makes a repeat harmless
        except Refused as error:
            log.warning("events refused: %s", error)
        for _ in batch:
            self._events.popleft()

    def _send_telemetry(self) -> None:
        self._samples.extend(self._telemetry.drain())
        if not self._samples:
            return
        batch = list(self._samples)
        try:
            self._client.telemetry(batch)
        except Unreachable:
            return
        except ClientError as error:
            log.warning("telemetry refused: %s", error)
        for _ in batch:
            self._samples.popleft()

    def _flush(self, *, final: bool) -> None:
        for _ in range(20 if final else 1):
            before = len(self._events)
            self._send_events()
            if not self._events or len(self._events) == before:
                break
        self._send_telemetry()
