from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuagent.simulator import (
    MACHINES,
    Arrival,
    Machine,
    ServingKnobs,
    StartRefused,
    simulate,
)
from gpuagent.simulator.scheduler import _Run

QUIET = replace(MACHINES["qwen3-32b-2xh100"], noise_cov=0.0)
# A cache of few blocks: one full context and a little more.
TINY = replace(QUIET, max_context=512, memory_bytes=37.3e9, other_bytes=0.0, weight_bytes=32.8e9)


def arrivals(n: int, *, rate: float = 4.0, inputs: int = 300, outputs: int = 40) -> list[Arrival]:
    rng, at_s, found = random.Random(5), 0.0, []
    for _ in range(n):
        at_s += rng.expovariate(rate)
        found.append(Arrival(at_s, rng.randint(1, 2 * inputs), rng.randint(1, 2 * outputs)))
    return found


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 40),
    running=st.sampled_from([1, 2, 7, 64]),
    budget=st.sampled_from([64, 100, 513, 4096]),
    rate=st.sampled_from([0.5, 20.0, 1e6]),
    streams=st.sampled_from([None, 1, 5]),
)
def test_every_request_gets_its_tokens_in_order_and_all_blocks_come_back(
    seed: int, n: int, running: int, budget: int, rate: float, streams: int | None
) -> None:
    rng, at_s, asked = random.Random(seed), 0.0, []
    for _ in range(n):
        at_s += rng.expovariate(rate)
        inputs = rng.randint(1, 300)
        asked.append(Arrival(at_s, inputs, rng.randint(1, 500 - inputs)))
    machine = replace(TINY, kv_bytes_per_token=4_400_000, activation_bytes_per_token=0.0)
    knobs = ServingKnobs(
        max_running=running,
        max_batched_tokens=budget,
        memory_share_frac=0.97,
        cuda_graphs=False,
    )
    run = _Run(machine, knobs, asked, seed, streams)
    run.sample_s, run.most_samples = 0.5, 60
    served = run.finish()
    assert run.free == run.total
    assert run.decoding == run.context == 0
    assert not any(run.block_due)
    assert served.counters.running_peak <= running
    for arrival, sent_s, times in zip(asked, served.sent_s, served.token_s, strict=True):
        assert len(times) == arrival.output_tokens
        assert streams is not None or sent_s == arrival.at_s
        assert times[0] > sent_s
        assert all(b > a for a, b in itertools.pairwise(times))

    def in_flight(at_s: float) -> int:
        spans = zip(served.sent_s, served.token_s, strict=True)
        return sum(sent_s <= at_s < times[-1] for sent_s, times in spans)

    # A closed loop never has more in flight; the gauges count exactly those.
    assert streams is None or max(map(in_flight, served.sent_s)) == min(streams, n)
    assert len(served.gauges) == min(60, math.ceil(served.end_s / 0.5))
    for gauge in served.gauges:
        assert gauge.running + gauge.waiting == in_flight(gauge.at_s)
        assert 0 <= gauge.kv_frac <= 1
    assert served.gauges[-1].preemptions <= served.counters.preemptions


def test_a_cache_that_is_too_small_preempts_and_computes_again() -> None:
    machine = replace(TINY, kv_bytes_per_token=4_400_000, activation_bytes_per_token=0.0)
    knobs = ServingKnobs(
        max_running=32, max_batched_tokens=512, memory_share_frac=0.97, cuda_graphs=False
    )
    asked = [Arrival(0.0, 100, 300) for _ in range(12)]
    served = simulate(machine, knobs, asked, seed=None)
    assert served.counters.preemptions > 0
    assert served.counters.kv_peak_frac > 0.9
    assert served.counters.prefill_tokens > 12 * 100
    roomy = simulate(QUIET, knobs, asked, seed=None)
    assert roomy.counters.preemptions == 0
    assert roomy.end_s < served.end_s


def test_one_request_alone_takes_what_the_machine_says() -> None:
    (times,) = simulate(QUIET, ServingKnobs(), [Arrival(0.0, 1000, 3)], seed=None).token_s
    assert times[0] == pytest.approx(QUIET.eager_s + 1000 * QUIET.prefill_token_s)
    step = QUIET.base_s + QUIET.sequence_s + 1000 * QUIET.context_token_s
    assert times[1] - times[0] == pytest.approx(step)


def test_launching_without_graphs_costs_every_step() -> None:
    asked = arrivals(20)
    eager = simulate(QUIET, ServingKnobs(cuda_graphs=False), asked, seed=None)
    graphs = simulate(QUIET, ServingKnobs(), asked, seed=None)
    assert eager.end_s > graphs.end_s
    assert eager.counters.eager_steps > graphs.counters.eager_steps


def test_a_graph_below_the_running_batch_is_not_used() -> None:
    asked = [Arrival(0.0, 10, 50) for _ in range(20)]
    served = simulate(QUIET, ServingKnobs(graph_max_batch=4), asked, seed=None)
    assert served.counters.eager_steps > 40


def test_smaller_chunks_shorten_the_longest_gap_and_delay_the_first_token() -> None:
    asked = [Arrival(0.0, 50, 200), Arrival(1.0, 6000, 5)]
    knobs = ServingKnobs(max_running=64)
    small = simulate(QUIET, replace(knobs, max_batched_tokens=512), asked, seed=None)
    large = simulate(QUIET, knobs, asked, seed=None)

    def longest(served: object) -> float:
        return max(b - a for a, b in itertools.pairwise(served.token_s[0]))  # type: ignore[attr-defined]

    assert longest(small) < longest(large) / 3
    assert small.token_s[1][0] > large.token_s[1][0]


def test_few_places_make_requests_wait() -> None:
    asked = arrivals(60, rate=50)
    few = simulate(QUIET, ServingKnobs(max_running=2), asked, seed=None)
    assert few.counters.full_steps > 0
    assert few.end_s > simulate(QUIET, ServingKnobs(), asked, seed=None).end_s


def test_the_same_seed_gives_the_same_run_and_another_one_differs() -> None:
    machine, asked = MACHINES["gpt-oss-120b-h200"], arrivals(20)
    first = simulate(machine, ServingKnobs(), asked, seed=1)
    assert first.token_s == simulate(machine, ServingKnobs(), asked, seed=1).token_s
    assert first.token_s != simulate(machine, ServingKnobs(), asked, seed=2).token_s


@pytest.mark.parametrize(
    ("knobs", "kind", "told"),
    [
        (ServingKnobs(max_running=4096, max_batched_tokens=2048), "config_error", "at least"),
        (ServingKnobs(max_running=0), "config_error", "above 0"),
        (
            ServingKnobs(chunked_prefill=False, max_batched_tokens=4096),
            "config_error",
            "chunked",
        ),
        (ServingKnobs(memory_share_frac=1.5), "config_error", "between"),
        (ServingKnobs(memory_share_frac=0.99), "out_of_memory", "no room"),
        (ServingKnobs(memory_share_frac=0.4), "cache_too_small", "fewer than one request"),
    ],
)
def test_what_does_not_start_says_why(knobs: ServingKnobs, kind: str, told: str) -> None:
    with pytest.raises(StartRefused, match=told) as refused:
        simulate(QUIET, knobs, arrivals(2), seed=None)
    assert refused.value.kind == kind


def test_an_fp8_cache_holds_twice_the_tokens() -> None:
    plain = QUIET.kv_blocks(ServingKnobs())
    assert QUIET.kv_blocks(ServingKnobs(kv_dtype="fp8")) == pytest.approx(2 * plain, abs=1)


def test_a_request_beyond_the_context_is_refused() -> None:
    with pytest.raises(ValueError, match="context"):
        simulate(QUIET, ServingKnobs(), [Arrival(0.0, 8000, 800)], seed=None)


@pytest.mark.parametrize("machine", MACHINES.values(), ids=list(MACHINES))
def test_every_machine_runs_the_engines_defaults(machine: Machine) -> None:
    served = simulate(machine, ServingKnobs(), arrivals(10), seed=0)
    assert served.end_s > 0
    assert machine.source
