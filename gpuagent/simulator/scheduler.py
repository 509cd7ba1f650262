"""Continuous batching, one step after the other, as vLLM's scheduler does it.

Each step serves decodes first, then prefill chunks of admitted requests, then admits waiting ones
while a place in the batch, the token budget and the cache allow it. Where the cache is full the
request admitted last is preempted: its cache is dropped and computed again later.

Decodes cost no time of their own per request here: all of them advance by one token a step, so
ends and new cache blocks are looked up by step number.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from gpuagent.simulator.knobs import ServingKnobs
from gpuagent.simulator.machine import KV_BLOCK_TOKENS, Machine

_MAX_STEPS = 2_000_000
_STEPS_PER_TICK = 4096


@dataclass(frozen=True, slots=True)
class Arrival:
    """at_s: when it is sent. Lengths in tokens; output_tokens >= 1."""

    at_s: float
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Gauge:
    """The server's state at one moment; preemptions since the start."""

    at_s: float
    running: int
    waiting: int
    kv_frac: float
    preemptions: int


@dataclass(slots=True)
class Counters:
    """What a server's own metrics would say. Shares are of all steps.

    kv_peak_frac: highest use of the cache. eager_steps: decode steps without a graph.
    full_steps: steps with max_running requests while others waited. starved_steps: with requests
    that waited for room in the cache. mixed_steps: decode steps that carried prefill.
    """

    steps: int = 0
    preemptions: int = 0
    kv_blocks: int = 0
    kv_peak_frac: float = 0.0
    running_peak: int = 0
    eager_steps: int = 0
    full_steps: int = 0
    starved_steps: int = 0
    mixed_steps: int = 0
    prefill_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Served:
    """token_s[i]: when each output token of request i was out, seconds since the start.

    sent_s[i]: when it was sent. gauges: what was sampled; () where no sampling was asked for.
    """

    token_s: tuple[tuple[float, ...], ...]
    sent_s: tuple[float, ...]
    counters: Counters
    end_s: float
    gauges: tuple[Gauge, ...] = ()


@dataclass(slots=True, eq=False)
class _Request:
    index: int
    arrival: Arrival
    sent_s: float
    token_s: list[float] = field(default_factory=list)
    computed: int = 0
    blocks: int = 0
    decode_since: int = -1
    """Step in which it decodes first; -1 while its prompt is computed."""

    @property
    def known(self) -> int:
        """Tokens whose cache must exist before the next one: prompt and all generated."""
        return self.arrival.input_tokens + len(self.token_s)

    @property
    def left(self) -> int:
        return self.arrival.output_tokens - len(self.token_s)


def simulate(
    machine: Machine,
    knobs: ServingKnobs,
    arrivals: Sequence[Arrival],
    *,
    seed: int | None,
    streams: int | None = None,
    sample_s: float | None = None,
    most_samples: int = 4000,
    tick: Callable[[], None] = lambda: None,
) -> Served:
    """Serve `arrivals` to the end. seed None: without noise.

    streams: a closed loop with so many in flight; each end sends the next, whatever its at_s.
    sample_s: simulated seconds between two readings of the gauges, `most_samples` of them at most.
    tick: called now and then; what it raises ends the simulation.

    Raises StartRefused, or ValueError for a request that is longer than the machine's context.
    """
    for arrival in arrivals:
        if arrival.input_tokens + arrival.output_tokens > machine.max_context:
            raise ValueError(f"a request is longer than the context of {machine.max_context:,}")
    run = _Run(machine, knobs, arrivals, seed, streams)
    if sample_s is not None:
        run.sample_s, run.most_samples = sample_s, most_samples
    return run.finish(tick)


class _Run:
    def __init__(
        self,
        machine: Machine,
        knobs: ServingKnobs,
        arrivals: Sequence[Arrival],
        seed: int | None,
        streams: int | None = None,
    ) -> None:
        self.machine, self.knobs = machine, knobs
        self.total = self.free = machine.kv_blocks(knobs)
        self.rng = random.Random(seed) if seed is not None else None  # noqa: S311  noise
        # Two runs of one configuration differ as a whole, too.
        self.factor = math.exp(self.rng.gauss(0.0, machine.noise_cov / 2)) if self.rng else 1.0
        self.requests = [
            _Request(i, a, a.at_s if streams is None else 0.0) for i, a in enumerate(arrivals)
        ]
        self.coming = deque(sorted(self.requests, key=lambda r: (r.sent_s, r.index)))
        # In a closed loop these are not sent before another one ends.
        self.held: deque[_Request] = deque()
        while streams is not None and len(self.coming) > streams:
            self.held.appendleft(self.coming.pop())
        self.sample_s, self.most_samples = math.inf, 0
        self.gauges: list[Gauge] = []
        self.waiting: deque[_Request] = deque()
        self.running: list[_Request] = []
        self.prefilling: list[_Request] = []
        self.ends: dict[int, list[_Request]] = {}
        self.decoding = self.context = 0
        # How many decodes need a new block in steps of each remainder.
        self.block_due = [0] * KV_BLOCK_TOKENS
        self.step, self.now = 0, 0.0
        self.stamps: list[float] = []
        self.counters = Counters(kv_blocks=self.total)

    def finish(self, tick: Callable[[], None] = lambda: None) -> Served:
        while self.coming or self.waiting or self.running:
            if self.step % _STEPS_PER_TICK == 0:
                tick()
            self._arrive()
            self._one_step()
            if self.step > _MAX_STEPS:
                raise ValueError("the simulation does not end: fewer or shorter requests")
        self.counters.steps = self.step
        tokens = tuple(tuple(request.token_s) for request in self.requests)
        sent = tuple(request.sent_s for request in self.requests)
        return Served(tokens, sent, self.counters, self.now, tuple(self.gauges))

    def _arrive(self) -> None:
        if not self.running and not self.waiting and self.coming:
            self.now = max(self.now, self.coming[0].sent_s)
            self._read_gauges(0.0)
        while self.coming and self.coming[0].sent_s <= self.now:
            self.waiting.append(self.coming.popleft())

    def _one_step(self) -> None:
        knobs, counters = self.knobs, self.counters
        while self.free < self.block_due[self.step % KV_BLOCK_TOKENS]:
            self._preempt()
        self.free -= self.block_due[self.step % KV_BLOCK_TOKENS]
        budget = knobs.max_batched_tokens - self.decoding
        chunks: list[tuple[_Request, int]] = []
        for request in self.prefilling:
            budget = self._chunk(request, budget, chunks)
        budget = self._admit(budget, chunks)
        prefill = sum(tokens for _, tokens in chunks)
        graph = knobs.cuda_graphs and prefill == 0 and self.decoding <= knobs.graph_max_batch
        seconds = self.machine.step_s(
            prefill=prefill, sequences=self.decoding, context=self.context, graph=graph
        )
        if self.rng is not None:
            seconds *= self.factor * math.exp(self.rng.gauss(0.0, self.machine.noise_cov))
        self.now += seconds
        self.stamps.append(self.now)
        used = 1 - self.free / self.total
        counters.running_peak = max(counters.running_peak, len(self.running))
        counters.kv_peak_frac = max(counters.kv_peak_frac, used)
        self._read_gauges(used)
        counters.prefill_tokens += prefill
        counters.eager_steps += self.decoding > 0 and not graph
        counters.mixed_steps += self.decoding > 0 and prefill > 0
        self.context += self.decoding
        for request in self.ends.pop(self.step, ()):
            self._end(request)
        for request, tokens in chunks:
            request.computed += tokens
            if request.computed == request.known:
                self._first_token(request)
        self.step += 1

    def _read_gauges(self, kv_frac: float) -> None:
        """What held from the reading before until now. A request waits from when it is sent on."""
        while len(self.gauges) < self.most_samples:
            at_s = len(self.gauges) * self.sample_s
            if at_s >= self.now:
                return
            late = sum(1 for _ in takewhile(lambda r: r.sent_s <= at_s, self.coming))  # noqa: B023
            waiting = len(self.waiting) + late
            self.gauges.append(
                Gauge(at_s, len(self.running), waiting, kv_frac, self.counters.preemptions)
            )

    def _chunk(self, request: _Request, budget: int, chunks: list[tuple[_Request, int]]) -> int:
        wanted = request.known - request.computed
        tokens = min(wanted, budget) if self.knobs.chunked_prefill else wanted
        if 0 < tokens <= budget:
            chunks.append((request, tokens))
            budget -= tokens
        return budget

    def _admit(self, budget: int, chunks: list[tuple[_Request, int]]) -> int:
        while self.waiting:
            request = self.waiting[0]
            if len(self.running) >= self.knobs.max_running:
                self.counters.full_steps += 1
                break
            blocks = math.ceil(request.known / KV_BLOCK_TOKENS)
            if blocks > self.free:
                self.counters.starved_steps += 1
                break
            before = budget
            budget = self._chunk(request, budget, chunks)
            if budget == before:
                break
            self.waiting.popleft()
            self.free -= blocks
            request.blocks = blocks
            self.running.append(request)
            self.prefilling.append(request)
        return budget

    def _first_token(self, request: _Request) -> None:
        """The prompt is computed: the step that did so gives a token, decoding begins."""
        self.prefilling.remove(request)
        request.token_s.append(self.now)
        if request.left == 0:
            self._leave(request)
            return
        held = request.known - 1
        request.decode_since = self.step + 1
        self.decoding += 1
        self.context += held
        self.block_due[self._due(request)] += 1
        self.ends.setdefault(self.step + request.left, []).append(request)

    def _due(self, request: _Request) -> int:
        """Remainder of the steps in which the request's next token starts a new block."""
        held = request.computed
        return (request.decode_since + (-held) % KV_BLOCK_TOKENS) % KV_BLOCK_TOKENS

    def _stop_decoding(self, request: _Request, steps: int) -> None:
        """Write the tokens of `steps` decode steps down and take it out of the sums."""
        since = request.decode_since
        request.token_s.extend(self.stamps[since : since + steps])
        self.decoding -= 1
        self.context -= request.computed + steps
        self.block_due[self._due(request)] -= 1
        due = (-request.computed) % KV_BLOCK_TOKENS
        request.blocks += max(0, math.ceil((steps - due) / KV_BLOCK_TOKENS))

    def _end(self, request: _Request) -> None:
        self._stop_decoding(request, self.step + 1 - request.decode_since)
        self._leave(request)

    def _leave(self, request: _Request) -> None:
        """It has all its tokens; in a closed loop its client sends the next one now."""
        self._release(request)
        if self.held:
            following = self.held.popleft()
            following.sent_s = self.now
            self.coming.append(following)

    def _release(self, request: _Request) -> None:
        self.running.remove(request)
        self.free += request.blocks
        request.blocks = request.computed = 0
        request.decode_since = -1

    def _preempt(self) -> None:
        victim = self.running[-1]
        self.counters.preemptions += 1
        if victim.decode_since >= 0:
            self.ends[victim.decode_since + victim.left - 1].remove(victim)
            self._stop_decoding(victim, self.step - victim.decode_since)
        else:
            self.prefilling.remove(victim)
        self._release(victim)
        self.waiting.appendleft(victim)
