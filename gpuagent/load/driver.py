"""Sends a plan to a server and returns the wire's request records.

Open loop: every request leaves at its intended time, whatever the server does; a connection is
opened where none is free, and time spent waiting for one shows as send lag. Closed loop: `streams`
requests are in flight, each answer is followed by the next request, and no claim at a rate follows.
"""

from __future__ import annotations

import asyncio
import gc
import resource
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter, process_time

from gpuagent.load.client import Connection, Endpoint, Exchange, connect
from gpuagent.load.plan import LoadRequest
from gpuagent.load.records import Finished, read_records
from gpuagent.wire.measure import RequestRecord

# Sleep ends this much before a send time, since the event loop's timers count whole milliseconds.
# At high rates waiting awake would cost the client its processor, so it takes a tenth at most.
_SPIN_S = 0.0005
_SPIN_FRAC = 0.1
_TIMER_S = 0.001
_CONNECT_TIMEOUT_S = 10.0
_FILES_KEPT_FREE = 64
_GIVEN_UP = "the run was stopped"


@dataclass(frozen=True, slots=True)
class Overdue:
    """Ends a run once more than `allowed` open requests have waited longer than `ttft_s` without
    a byte of answer, or longer than `e2e_s` in all; None sets no such limit."""

    ttft_s: float | None
    e2e_s: float | None
    allowed: int


Follow = Callable[[LoadRequest, Exchange], tuple[LoadRequest, float] | None]


@dataclass(frozen=True, slots=True)
class LoadRun:
    """What one run sent and received. Times of the records count from the start of the run.

    wall_s: first intended send to the end of the last answer. send_span_s, intended_span_s: first
    to last send, really and as planned; None in a closed loop. cpu_frac: processor time of this
    process over wall time. peak_in_flight: most requests open at once. counted: how tokens were
    counted, see `stream.Answer`. unfinished: sent, but given up when the run was
    stopped; they are in no record. cut_off: ended by `Overdue`. server_output_tokens: sum of the
    usage that the server reported; None where an answer came without. turns: of each record,
    the place in its session, 0 for the first; empty where no session was asked for.
    """

    records: tuple[RequestRecord, ...]
    planned: int
    unfinished: int
    open_loop: bool
    wall_s: float
    intended_span_s: float | None
    send_span_s: float | None
    cpu_frac: float
    peak_in_flight: int
    connection_limit: int
    counted: tuple[str, ...]
    server_output_tokens: int | None
    unexpected_lengths: int
    cut_off: bool = False
    turns: tuple[int, ...] = ()

    @property
    def rate_achieved_frac(self) -> float | None:
        """Sent over asked rate; None in a closed loop or with one request."""
        if not self.intended_span_s or not self.send_span_s:
            return None
        return self.intended_span_s / self.send_span_s


def run_load(
    endpoint: Endpoint,
    planned: Sequence[LoadRequest],
    *,
    streams: int | None = None,
    timeout_s: float = 600.0,
    until_s: float | None = None,
    more: Callable[[], LoadRequest] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    on_progress: Callable[[int, int], None] = lambda sent, finished: None,
    overdue: Overdue | None = None,
    follow: Follow | None = None,
    began_at: float | None = None,
) -> LoadRun:
    """Send `planned`; `streams` requests at a time, or at their own times where it is None.

    timeout_s: of one request, from its intended send. until_s: no request is sent after it.
    more: makes further requests of a closed loop that has sent `planned` before `until_s`.
    should_stop: asked ten times a second; open requests are then given up and not recorded.
    overdue: looked at as often. on_progress: told as often how many requests were sent and how
    many are finished. follow: what a request is followed by once it is over, with the seconds until
    then; in a closed loop it keeps its stream. began_at: the start, in `perf_counter` seconds to
    come, where several processes share one.
    """
    if not planned:
        raise ValueError("the plan holds no requests")
    if streams is None and any(request.intended_s is None for request in planned):
        raise ValueError("an open loop needs an intended time for each request")
    driver = _Driver(
        endpoint,
        planned,
        streams=streams,
        timeout_s=timeout_s,
        until_s=until_s,
        more=more,
        overdue=overdue,
        follow=follow,
        began_at=began_at,
    )
    # A collection in the middle would stamp tokens late; the run makes no cycles worth collecting.
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(driver.run(should_stop, on_progress))
    finally:
        if collecting:
            gc.enable()
    return driver.result()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where there is one, else None for asyncio's own."""
    try:
        import uvloop
    except ImportError:
        # Not made for Windows; asyncio's own loop measures the same, at about half the rate.
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


class _Driver:
    def __init__(
        self,
        endpoint: Endpoint,
        planned: Sequence[LoadRequest],
        *,
        streams: int | None,
        timeout_s: float,
        until_s: float | None,
        more: Callable[[], LoadRequest] | None,
        overdue: Overdue | None,
        follow: Follow | None,
        began_at: float | None,
    ) -> None:
        self._endpoint, self._planned, self._streams = endpoint, list(planned), streams
        self._more, self._overdue, self._follow = more, overdue, follow
        self._awaited, self._began_at = 0, began_at
        self._timeout_s, self._until_s = timeout_s, until_s
        self._head = endpoint.head()
        self._payloads = [self._payload(request) for request in planned]
        self._exchanges: list[Exchange | None] = [None] * len(planned)
        self._intended = [0.0] * len(planned)
        self._idle: deque[Connection] = deque()
        self._waiting: deque[int] = deque()
        self._flying: dict[int, Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._unsent = deque(range(len(planned)))
        self._launched = self._unfinished = 0
        self._connections = self._opening = 0
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._limit = max(1, files - _FILES_KEPT_FREE) if streams is None else streams
        self._peak = 0
        self._began = self._cpu_began = self._ended = self._cpu_s = 0.0
        self._all_sent = self._stopped = self._cut_off = False
        self._finished = asyncio.Event()

    def _payload(self, request: LoadRequest) -> bytes:
        return self._head + str(len(request.body)).encode() + b"\r\n\r\n" + request.body

    async def run(
        self, should_stop: Callable[[], bool], on_progress: Callable[[int, int], None]
    ) -> None:
        await self._open_first()
        if self._began_at is not None:
            await asyncio.sleep(max(0.0, self._began_at - perf_counter()))
        self._began, self._cpu_began = self._began_at or perf_counter(), process_time()
        sender = asyncio.create_task(self._send_all())
        try:
            while not self._finished.is_set():
                try:
                    await asyncio.wait_for(self._finished.wait(), 0.1)
                except TimeoutError:
                    self._expire()
                    on_progress(self._launched, self._launched - self._unfinished)
                    self._cut_off = self._is_overdue()
                    if self._cut_off or should_stop():
                        break
                if sender.done():
                    sender.result()
        finally:
            self._stopped = True
            self._ended, self._cpu_s = perf_counter(), process_time() - self._cpu_began
            sender.cancel()
            for task in self._tasks:
                task.cancel()
            for connection in [*self._idle, *self._flying.values()]:
                connection.fail(_GIVEN_UP)

    async def _open_first(self) -> None:
        """A few connections before the clock starts, so that the first requests do not wait."""
        wanted = self._streams or min(16, self._limit, len(self._planned))
        made = await asyncio.gather(
            *(connect(self._endpoint, timeout_s=_CONNECT_TIMEOUT_S) for _ in range(wanted)),
            return_exceptions=True,
        )
        self._idle.extend(c for c in made if isinstance(c, Connection))
        self._connections = len(self._idle)

    async def _send_all(self) -> None:
        if self._streams is not None:
            for _ in range(min(self._streams, len(self._planned))):
                self._send_next()
            self._all_sent = True
            self._check_done()
            return
        spin_s = self._spin_s()
        # A copy: later turns are added to the plan meanwhile.
        for index, request in enumerate(tuple(self._planned)):
            at_s = request.intended_s or 0.0
            if self._until_s is not None and at_s > self._until_s:
                break
            due = self._began + at_s
            wait_s = due - perf_counter()
            if wait_s > spin_s:
                await asyncio.sleep(max(_TIMER_S, wait_s - spin_s))
            while perf_counter() < due:
                await asyncio.sleep(0)
            self._launch(index, due)
        self._all_sent = True
        self._check_done()

    def _send_next(self) -> None:
        """Closed loop: the next request, unless the time is up."""
        now = perf_counter()
        late = self._until_s is not None and now - self._began > self._until_s
        if self._stopped or late:
            return
        if not self._unsent and self._more is not None:
            self._unsent.append(self._add(self._more()))
        if self._unsent:
            self._launch(self._unsent.popleft(), now)

    def _add(self, request: LoadRequest) -> int:
        """Its index."""
        self._planned.append(request)
        self._payloads.append(self._payload(request))
        self._exchanges.append(None)
        self._intended.append(0.0)
        return len(self._planned) - 1

    def _goes_on(self, index: int) -> bool:
        """Whether the request is followed by the next turn of its session."""
        exchange = self._exchanges[index]
        if self._follow is None or self._stopped or exchange is None:
            return False
        followed = self._follow(self._planned[index], exchange)
        if followed is None:
            return False
        request, after_s = followed
        due = exchange.done + after_s
        if self._until_s is not None and due - self._began > self._until_s:
            return False
        self._awaited += 1
        task = asyncio.create_task(self._send_turn(self._add(request), due))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def _send_turn(self, index: int, due: float) -> None:
        wait_s = due - perf_counter()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        self._awaited -= 1
        self._launch(index, due)

    def _launch(self, index: int, intended: float) -> None:
        self._exchanges[index] = Exchange()
        self._intended[index] = intended
        self._launched += 1
        self._unfinished += 1
        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                self._send(index, connection)
                return
            self._connections -= 1
        self._waiting.append(index)
        if self._connections + self._opening < self._limit:
            self._opening += 1
            task = asyncio.create_task(self._open_for_waiting())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _open_for_waiting(self) -> None:
        try:
            connection = await connect(self._endpoint, timeout_s=_CONNECT_TIMEOUT_S)
        except (OSError, TimeoutError) as error:
            self._opening -= 1
            if self._waiting:
                reason = str(error) or type(error).__name__
                index = self._waiting.popleft()
                self._give_up(index, f"no connection: {reason}")
                # Without a pause a refused closed loop would spin through its plan.
                await asyncio.sleep(0.05 if self._streams else 0)
                self._over(index)
            return
        self._opening -= 1
        self._connections += 1
        if self._waiting:
            self._send(self._waiting.popleft(), connection)
        else:
            self._idle.append(connection)

    def _send(self, index: int, connection: Connection) -> None:
        exchange = self._exchanges[index]
        if exchange is None:
            raise RuntimeError(f"request {index} was not launched")
        self._flying[index] = connection
        self._peak = max(self._peak, len(self._flying))

        def finished(connection: Connection) -> None:
            self._flying.pop(index, None)
            if connection.open:
                if self._waiting:
                    self._send(self._waiting.popleft(), connection)
                else:
                    self._idle.append(connection)
            else:
                self._connections -= 1
            self._over(index)

        connection.send(self._payloads[index], exchange, finished)

    def _over(self, index: int) -> None:
        self._unfinished -= 1
        goes_on = self._goes_on(index)
        if self._streams is not None and not goes_on:
            self._send_next()
        self._check_done()

    def _check_done(self) -> None:
        if self._all_sent and self._unfinished == 0 and self._awaited == 0:
            self._finished.set()

    def _expire(self) -> None:
        now = perf_counter()
        for index, connection in list(self._flying.items()):
            if now - self._intended[index] > self._timeout_s:
                connection.fail(f"timed out after {self._timeout_s:g} s")

        while self._waiting and now - self._intended[self._waiting[0]] > self._timeout_s:
            index = self._waiting.popleft()
            self._give_up(index, "timed out while it waited for a connection")
            self._over(index)

    def _is_overdue(self) -> bool:
        limits = self._overdue
        if limits is None:
            return False
        now, late = perf_counter(), 0
        for index in (*self._flying, *self._waiting):
            waited_s, exchange = now - self._intended[index], self._exchanges[index]
            silent = exchange is None or not exchange.pieces
            late += (limits.ttft_s is not None and silent and waited_s > limits.ttft_s) or (
                limits.e2e_s is not None and waited_s > limits.e2e_s
            )
        return late > limits.allowed

    def _give_up(self, index: int, reason: str) -> None:
        """Record a request that never got a connection."""
        exchange = self._exchanges[index]
        if exchange is not None:
            exchange.error = reason
            exchange.sent = exchange.done = perf_counter()

    def _spin_s(self) -> float:
        """How long to wait awake before each send of an open loop."""
        last_s = self._planned[-1].intended_s or 0.0
        return min(_SPIN_S, _SPIN_FRAC * last_s / len(self._planned))

    def result(self) -> LoadRun:
        """Read everything that arrived; done once, after the run."""
        made = [
            (index, exchange)
            for index, exchange in enumerate(self._exchanges)
            if exchange is not None and exchange.done > 0 and exchange.sent > 0
            if exchange.error != _GIVEN_UP
        ]
        read = read_records([self._finished_one(index, x) for index, x in made], self._began)
        sends = [x.sent for _, x in made]
        intended = [self._intended[index] for index, _ in made]
        spans = len(made) > 1 and self._streams is None
        return LoadRun(
            records=read.records,
            planned=len(self._planned),
            unfinished=self._launched - len(made),
            open_loop=self._streams is None,
            wall_s=max((x.done for _, x in made), default=self._ended) - self._began,
            intended_span_s=max(intended) - min(intended) if spans else None,
            send_span_s=max(sends) - min(sends) if spans else None,
            cpu_frac=self._cpu_s / max(1e-9, self._ended - self._began),
            peak_in_flight=self._peak,
            connection_limit=self._limit,
            counted=read.counted,
            server_output_tokens=read.server_output_tokens,
            unexpected_lengths=read.unexpected_lengths,
            cut_off=self._cut_off,
            turns=tuple(self._planned[i].turn for i, _ in made) if self._follow else (),
        )

    def _finished_one(self, index: int, exchange: Exchange) -> Finished:
        request = self._planned[index]
        return Finished(
            intended=self._intended[index],
            sent=exchange.sent,
            status=exchange.status,
            pieces=exchange.pieces,
            error=exchange.error,
            input_tokens=request.input_tokens,
            output_tokens=request.output_tokens,
        )
