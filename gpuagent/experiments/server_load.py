"""What every experiment on a server needs: requests as bodies, a run that can be stopped, a scrape.

The load is the load tool's own driver; here it meets the trial: cancel, deadline, a server that
dies, and the server's gauges on the clock of the records.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gpuagent.engines.base import ServerMetrics, ServerReport, ServingEngine, Tick
from gpuagent.errors import AgentError
from gpuagent.experiments.requests import PlannedRequest, plan_requests
from gpuagent.load.client import Endpoint
from gpuagent.load.driver import LoadRun, Overdue, run_load
from gpuagent.load.plan import PATHS, Asked, LoadRequest, TextPrompts
from gpuagent.text import Passage
from gpuagent.wire import FailureReason, Workload
from gpuagent.wire.serving import MAX_TIMELINE, CountCheck, ServerTimeline

REQUEST_TIMEOUT_S = 600.0
_SCRAPE_S = 1.0
_SETTLE_S = 3.0


@dataclass(slots=True)
class Server:
    """A started server with what its start reported. Closed by the runner."""

    engine: ServingEngine
    report: ServerReport

    def endpoint(self) -> Endpoint:
        return Endpoint.parse(self.engine.url, PATHS["completions"], key=self.engine.key)


class Traffic:
    """Makes the workload's requests for one server; the same seed makes the same ones again."""

    def __init__(self, server: Server, workload: Workload, passage: Passage, *, seed: int) -> None:
        self._server, self._workload = server, workload
        engine = server.engine
        self._asked = Asked(engine.served_name, ignore_eos=engine.ignores_eos)
        encode = engine.encode if engine.encode("a") is not None else None
        shared = workload.shared_prefix_frac
        self._prompts = TextPrompts(
            passage.text,
            encode=encode,  # type: ignore[arg-type]
            shared_prefix_frac=shared,
            seed=seed,
        )

    def plan(
        self,
        *,
        count: int,
        seed: int,
        rate_per_s: float | None = None,
        paced: bool = True,
        most_output: int | None = None,
    ) -> list[LoadRequest]:
        """`count` requests at the workload's own rate, or at `rate_per_s`; paced=False: no times.

        most_output: generate no more tokens than that.

        Raises AgentError(config_error) where the workload does not fit the server's context.
        """
        rate = (rate_per_s or self._workload.request_rate_per_s) if paced else None
        workload = self._workload.model_copy(update={"request_rate_per_s": rate})
        planned = plan_requests(
            workload,
            count=count,
            seed=seed,
            source=self,
            max_context=self._server.report.max_context,
        )
        return [self._request(each, most_output) for each in planned]

    def take(self, tokens: int, rng: random.Random) -> tuple[int, ...] | str:
        """A prompt of `tokens` tokens that opens with an order of its own."""
        made = self._prompts.take(tokens, rng)
        if isinstance(made, str):
            return made
        if self._server.engine.token_prompts:
            return tuple(made)
        return self._server.engine.decode(made) or ""

    def _request(self, planned: PlannedRequest, most_output: int | None) -> LoadRequest:
        outputs = min(planned.output_tokens, most_output or planned.output_tokens)
        body = self._asked.body(planned.prompt, outputs)
        return LoadRequest(planned.intended_s, body, planned.input_tokens, outputs)


def send(
    server: Server,
    planned: Sequence[LoadRequest],
    *,
    tick: Tick,
    streams: int | None,
    until_s: float | None = None,
    overdue: Overdue | None = None,
    on_progress: Callable[[int, int], None] = lambda sent, finished: None,
) -> LoadRun:
    """Send `planned`; raises what `tick` raises, and the server's own failure where it is gone."""
    trouble: list[BaseException] = []

    def should_stop() -> bool:
        try:
            tick()
        except BaseException as error:  # noqa: BLE001  raised again below, outside of the loop
            trouble.append(error)
            return True
        failure = server.engine.failure()
        if failure is not None:
            trouble.append(failure)
        return failure is not None

    run = run_load(
        server.endpoint(),
        planned,
        streams=streams,
        timeout_s=REQUEST_TIMEOUT_S,
        until_s=until_s,
        should_stop=should_stop,
        on_progress=on_progress,
        overdue=overdue,
    )
    if not trouble:
        failure = server.engine.failure()
        trouble += [failure] if failure is not None else []
    if trouble:
        raise trouble[0]
    if run.records and all(record.error for record in run.records):
        raise AgentError(
            FailureReason.ENGINE_ERROR, f"every request failed: {run.records[0].error}"[:800]
        )
    return run


@dataclass(slots=True)
class _Scrape:
    at: float
    seen: ServerMetrics | None
    memory_bytes: int | None


@dataclass(slots=True)
class Scraper:
    """Asks the server for its counters once a second, beside the load and off its clock's way.

    `with scraper:` around the measured window; `began` is the window's start in perf_counter time.
    """

    engine: ServingEngine
    scrapes: list[_Scrape] = field(default_factory=list)
    before: ServerMetrics | None = None
    after: ServerMetrics | None = None
    began: float = 0.0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Scraper:
        self.before = self.engine.metrics()
        self.began = time.perf_counter()
        self._thread = threading.Thread(target=self._loop, name="scrape", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
        if exc_info[0] is None:
            self.after = self._settled()

    def _loop(self) -> None:
        while not self._stop.is_set() and len(self.scrapes) < MAX_TIMELINE:
            at = time.perf_counter()
            self.scrapes.append(_Scrape(at, self.engine.metrics(), self.engine.memory_bytes()))
            self._stop.wait(max(0.05, _SCRAPE_S - (time.perf_counter() - at)))

    def _settled(self) -> ServerMetrics | None:
        """The counters once nothing runs any more: gauges and counters lag by a step or two."""
        deadline = time.perf_counter() + _SETTLE_S
        seen = self.engine.metrics()
        while seen is not None and seen.running and time.perf_counter() < deadline:
            time.sleep(0.2)
            seen = self.engine.metrics()
        return seen

    def timeline(self) -> ServerTimeline | None:
        """None where the server never answered with counters."""
        if not any(scrape.seen for scrape in self.scrapes):
            return None
        start = self.before.preemptions if self.before is not None else None

        def column(name: str) -> tuple[float | None, ...]:
            return tuple(None if s.seen is None else getattr(s.seen, name) for s in self.scrapes)

        return ServerTimeline(
            at_s=tuple(max(0.0, s.at - self.began) for s in self.scrapes),
            running=column("running"),
            waiting=column("waiting"),
            kv_frac=column("kv_frac"),
            preemptions=tuple(
                None if value is None or start is None else max(0.0, value - start)
                for value in column("preemptions")
            ),
        )

    def peak_memory_bytes(self) -> int | None:
        return max((s.memory_bytes for s in self.scrapes if s.memory_bytes), default=None)

    def increase(self, name: str) -> float | None:
        """Of a counter over the window; None where it is missing on either side."""
        if self.before is None or self.after is None:
            return None
        first, last = getattr(self.before, name), getattr(self.after, name)
        return None if first is None or last is None else max(0.0, last - first)


def reconcile(run: LoadRun, scraper: Scraper) -> tuple[CountCheck, ...]:
    """What client and server counted over the same window, or what is missing for it."""
    good = [record for record in run.records if record.error is None]
    client = {
        "requests": len(good),
        "output_tokens": sum(record.output_tokens for record in good),
        "input_tokens": sum(record.input_tokens for record in good),
    }
    found = []
    for what, mine in client.items():
        theirs = scraper.increase(what)
        reason = None
        if theirs is None:
            reason = f"the server's metrics have no counter for {what.replace('_', ' ')}"
            if scraper.before is None:
                reason = "the server answered no request for its metrics"
        found.append(
            CountCheck.model_validate(
                {
                    "what": what,
                    "client": mine,
                    "server": None if theirs is None else round(theirs),
                    "reason": reason,
                }
            )
        )
    return tuple(found)
