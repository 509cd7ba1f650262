"""The supervisor against a scripted child, a scripted server and a clock that the test turns."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import pytest

from gpuagent.client import LeaseLost, Unreachable
from gpuagent.supervise import End, Supervisor
from gpuagent.wire import HostSample, TrialEvent, TrialOutcome
from gpuagent.wire.protocol import ControlReply, Intervals, Lease

LEASE = Lease(trial_id="0" * 36, epoch=1, token="t" * 32)
FAST = Intervals(renew_s=0.02, poll_s=1, fence_s=270, events_s=0.02, telemetry_s=0.02)


class Clock:
    """Seconds since boot that jump when told to."""

    def __init__(self) -> None:
        self.offset_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.offset_s


class Child:
    """Ends when `done` is set; remembers what was asked of it."""

    def __init__(self, events: Sequence[TrialEvent] = ()) -> None:
        self.done = threading.Event()
        self.killed = threading.Event()
        self.cancelled = threading.Event()
        self._events = list(events)

    def poll_events(self) -> list[TrialEvent]:
        taken, self._events = self._events, []
        return taken

    def cancel(self) -> None:
        self.cancelled.set()
        self.done.set()

    def kill(self) -> None:
        self.killed.set()

    def wait(self, timeout_s: float) -> bool:
        return self.done.wait(min(timeout_s, 0.01))

    def outcome(self) -> TrialOutcome:
        return TrialOutcome(status="cancelled")


class Server:
    """Answers renewals and events as the script of the test says."""

    def __init__(self) -> None:
        self.renewals = 0
        self.events_seen: list[int] = []
        self.samples_seen = 0
        self.cancel = False
        self.on_renew: Callable[[], None] = lambda: None
        self.on_events: Callable[[], None] = lambda: None

    def _control(self) -> ControlReply:
        return ControlReply(cancel=self.cancel, server_time_s=0, lease_until_s=0)

    def renew(self, lease: Lease) -> ControlReply:
        self.renewals += 1
        self.on_renew()
        return self._control()

    def events(self, lease: Lease, events: Sequence[TrialEvent]) -> ControlReply:
        self.on_events()
        self.events_seen += [event.seq for event in events]
        return self._control()

    def telemetry(self, samples: Sequence[HostSample]) -> None:
        self.samples_seen += len(samples)


class Samples:
    def drain(self) -> list[HostSample]:
        return [HostSample(at_s=1.0)]


@pytest.fixture
def parts() -> tuple[Server, Child, Clock, threading.Event]:
    events = [TrialEvent(seq=i, at_s=1, phase="measure", message="m") for i in range(1, 6)]
    return Server(), Child(events), Clock(), threading.Event()


def start(
    server: Server, child: Child, clock: Clock, stopping: threading.Event
) -> tuple[threading.Thread, list[tuple[End, TrialOutcome | None]]]:
    supervisor = Supervisor(
        client=server,  # type: ignore[arg-type]
        lease=LEASE,
        process=child,
        telemetry=Samples(),
        intervals=FAST,
        stopping=stopping,
        clock=clock,
    )
    ends: list[tuple[End, TrialOutcome | None]] = []
    thread = threading.Thread(target=lambda: ends.append(supervisor.run()), daemon=True)
    thread.start()
    return thread, ends


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline, "it did not happen within 5 s"
        time.sleep(0.005)


def test_a_finished_child_yields_its_outcome_and_all_events_once(parts) -> None:
    server, child, clock, stopping = parts
    thread, ends = start(*parts)
    until(lambda: server.renewals > 2 and server.samples_seen > 0)
    child.done.set()
    thread.join(5)
    assert ends[0][0] is End.DONE
    assert ends[0][1] is not None
    assert server.events_seen == [1, 2, 3, 4, 5]
    assert child.killed.is_set(), "whatever the child left behind is removed"


def test_events_wait_while_the_server_is_away_and_arrive_in_order(parts) -> None:
    server, child, clock, stopping = parts
    away = threading.Event()
    away.set()

    def answer() -> None:
        if away.is_set():
            raise Unreachable("down")

    server.on_events = answer
    thread, ends = start(*parts)
    until(lambda: server.renewals > 2)
    assert server.events_seen == []
    away.clear()
    until(lambda: server.events_seen)
    child.done.set()
    thread.join(5)
    assert server.events_seen == [1, 2, 3, 4, 5]


def test_a_cancel_in_any_answer_reaches_the_child(parts) -> None:
    server, child, clock, stopping = parts
    thread, ends = start(*parts)
    server.cancel = True
    until(child.cancelled.is_set)
    thread.join(5)
    assert ends[0][0] is End.DONE


def test_a_lost_lease_kills_the_child_and_delivers_nothing(parts) -> None:
    server, child, clock, stopping = parts

    def refuse() -> None:
        raise LeaseLost("over")

    server.on_renew = refuse
    thread, ends = start(*parts)
    thread.join(5)
    assert ends == [(End.LEASE_LOST, None)]
    assert child.killed.is_set()


def test_an_agent_that_cannot_renew_fences_itself_before_the_server_gives_the_trial_away(
    parts,
) -> None:
    server, child, clock, stopping = parts

    def drop() -> None:
        raise Unreachable("partition")

    server.on_renew = drop
    server.on_events = drop
    thread, ends = start(*parts)
    until(lambda: server.renewals >= 1)
    assert thread.is_alive(), "short outages are survived"
    clock.offset_s = 271.0
    thread.join(5)
    assert ends == [(End.FENCED, None)]
    assert child.killed.is_set()


def test_a_machine_that_slept_through_its_lease_writes_nothing(parts) -> None:
    """SIGSTOP or suspend: the boot clock jumps, and the child is gone before any write."""
    server, child, clock, stopping = parts
    child.done.set()
    clock_jump = 400.0

    class Slept(Clock):
        calls = 0

        def __call__(self) -> float:
            self.calls += 1
            return time.monotonic() + (clock_jump if self.calls > 1 else 0.0)

    def drop() -> None:
        raise Unreachable("still waking up")

    server.on_renew = drop
    thread, ends = start(server, child, Slept(), stopping)
    thread.join(5)
    assert ends == [(End.FENCED, None)]
    assert server.events_seen == []


def test_stopping_the_agent_ends_the_child_without_an_outcome(parts) -> None:
    server, child, clock, stopping = parts
    thread, ends = start(*parts)
    stopping.set()
    thread.join(5)
    assert ends == [(End.STOPPED, None)]
    assert child.killed.is_set()
