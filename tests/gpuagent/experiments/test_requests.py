from __future__ import annotations

import itertools
import random
import statistics

import pytest

from gpuagent.errors import AgentError
from gpuagent.experiments.requests import PromptSource, draw_length, plan_requests
from gpuagent.wire import FailureReason, LengthSpec, Workload

SOURCE = PromptSource(stream=list(range(100)), vocab_size=256)


def workload(rate: float | None = None, **lengths: LengthSpec) -> Workload:
    return Workload(
        preset="chat",
        input_tokens=lengths.get("inputs", LengthSpec(mean=20)),
        output_tokens=lengths.get("outputs", LengthSpec(mean=10)),
        request_rate_per_s=rate,
    )


def test_a_lognormal_length_has_the_mean_and_p95_of_its_spec() -> None:
    spec = LengthSpec(kind="lognormal", mean=200, p95=500)
    rng = random.Random(1)
    drawn = sorted(draw_length(spec, rng) for _ in range(20_000))
    assert statistics.fmean(drawn) == pytest.approx(200, rel=0.03)
    assert drawn[int(0.95 * len(drawn))] == pytest.approx(500, rel=0.04)


def test_lengths_are_cut_at_the_maximum_and_never_below_one() -> None:
    spec = LengthSpec(kind="lognormal", mean=2, p95=6, maximum=5)
    rng = random.Random(1)
    drawn = {draw_length(spec, rng) for _ in range(2000)}
    assert min(drawn) == 1
    assert max(drawn) == 5


def test_the_same_seed_plans_the_same_requests_and_another_seed_does_not() -> None:
    def plan(seed: int) -> list[object]:
        return list(
            plan_requests(workload(2.0), count=20, seed=seed, source=SOURCE, max_context=None)
        )

    assert plan(3) == plan(3)
    assert plan(3) != plan(4)


def test_poisson_arrivals_have_the_rate_and_exponential_gaps() -> None:
    planned = plan_requests(workload(5.0), count=5000, seed=1, source=SOURCE, max_context=None)
    times = [request.intended_s or 0.0 for request in planned]
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert statistics.fmean(gaps) == pytest.approx(0.2, rel=0.05)
    # The deviation of an exponential distribution equals its mean.
    assert statistics.stdev(gaps) == pytest.approx(0.2, rel=0.08)


def test_a_closed_loop_has_no_arrival_times() -> None:
    planned = plan_requests(workload(), count=3, seed=1, source=SOURCE, max_context=None)
    assert [request.intended_s for request in planned] == [None, None, None]


def test_a_text_that_is_too_short_starts_over() -> None:
    prompt = SOURCE.take(250, random.Random(0))
    assert len(prompt) == 250
    assert all((b - a) % 100 == 1 for a, b in itertools.pairwise(prompt))


def test_without_a_text_prompts_are_ids_of_the_vocabulary() -> None:
    prompt = PromptSource(stream=None, vocab_size=7).take(500, random.Random(0))
    assert set(prompt) == set(range(7))


def test_a_drawn_length_beyond_the_context_is_cut() -> None:
    long = LengthSpec(kind="lognormal", mean=40, p95=140)
    planned = plan_requests(workload(inputs=long), count=500, seed=1, source=SOURCE, max_context=64)
    assert max(len(r.prompt) + r.output_tokens for r in planned) == 64


def test_a_workload_beyond_the_context_is_refused_with_both_numbers() -> None:
    with pytest.raises(AgentError, match=r"20 input and 10 output.*context of 16") as caught:
        plan_requests(workload(), count=1, seed=1, source=SOURCE, max_context=16)
    assert caught.value.reason is FailureReason.CONFIG_ERROR
