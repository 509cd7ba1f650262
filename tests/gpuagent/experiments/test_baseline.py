from __future__ import annotations

import math
from typing import Any

import pytest

from gpuagent.experiments import baseline
from gpuagent.wire import LengthSpec, Workload
from gpuagent.wire.trial import BaselineConfig
from tests.gpuagent.fakes import (
    FakeClock,
    FakeEngine,
    fake_context,
    fake_report,
    seeded_jitter,
    tiny_spec,
)


def test_every_cell_holds_all_raw_samples() -> None:
    clock = FakeClock()
    spec = tiny_spec()
    result = baseline.run(fake_context(spec, clock=clock))
    assert [(c.batch, c.input_tokens) for c in result.cells] == [(1, 8), (1, 16), (2, 8), (2, 16)]
    for cell in result.cells:
        assert cell.prefill_s.n == 5
        assert cell.decode_step_s.n == 5 * 3
        assert cell.prefill_s.values == pytest.approx([0.001 * cell.batch * cell.input_tokens] * 5)
        assert cell.decode_step_s.values == pytest.approx([0.01] * 15)


def test_cells_are_interleaved_over_the_repeats() -> None:
    clock = FakeClock()
    engine = FakeEngine(clock)
    config = BaselineConfig(batch_sizes=(1,), input_tokens=(3, 5, 7), decode_steps=2)
    workload = Workload(
        preset="chat",
        input_tokens=LengthSpec(mean=9),
        output_tokens=LengthSpec(mean=1),
        requests=1,
    )
    baseline.run(
        fake_context(tiny_spec(config=config, workload=workload), clock=clock, engine=engine)
    )
    lengths = [len(p) for p in engine.prompts if len(p) in (3, 5, 7)]
    assert len(lengths) == 15
    for repeat in range(5):
        assert sorted(lengths[repeat * 3 : repeat * 3 + 3]) == [3, 5, 7]


def test_warm_up_and_load_stay_out_of_the_warm_numbers() -> None:
    clock = FakeClock()
    result = baseline.run(fake_context(tiny_spec(), clock=clock))
    assert result.cold.import_s == 1.0
    assert result.cold.load_s == 2.0
    assert result.cold.first_request_ttft_s == pytest.approx(0.012)
    assert result.cold.warmup_iterations >= 3
    assert result.requests[0].intended_s == pytest.approx(0.0)


def test_perplexity_is_the_exponential_of_the_mean_log_likelihood() -> None:
    clock = FakeClock()
    engine = FakeEngine(clock, nll_per_token=1.5)
    result = baseline.run(fake_context(tiny_spec(), clock=clock, engine=engine))
    assert result.perplexity is not None
    assert result.perplexity.value == pytest.approx(math.exp(1.5))
    assert result.perplexity.tokens == 2048 - 4
    assert result.perplexity.window_tokens == 512


def test_random_weights_have_no_perplexity_but_the_reason() -> None:
    report = fake_report(random_weights=True)
    result = baseline.run(fake_context(tiny_spec(), clock=FakeClock(), report=report))
    assert result.perplexity is None
    assert "random weights" in (result.perplexity_reason or "")


def test_an_overflowing_model_has_no_perplexity_but_the_reason() -> None:
    clock = FakeClock()
    engine = FakeEngine(clock, nll_per_token=math.nan)
    result = baseline.run(fake_context(tiny_spec(), clock=clock, engine=engine))
    assert result.perplexity is None
    assert "not finite in float32" in (result.perplexity_reason or "")


def test_energy_is_joules_over_generated_tokens() -> None:
    clock = FakeClock()

    class TenWatts:
        reason: str | None = None

        def read_j(self) -> float | None:
            return 10 * clock.now()

    result = baseline.run(fake_context(tiny_spec(), clock=clock, energy=TenWatts()))
    # One request: 12 prompt tokens at 1 ms and 4 further tokens at 10 ms, 5 tokens out.
    assert result.joules_per_token.value == pytest.approx(10 * (0.012 + 0.04) / 5)
    assert result.cells[0].joules_per_token.value == pytest.approx(10 * (0.008 + 0.03) / 4)


def test_without_a_counter_energy_is_null_with_the_reason() -> None:
    result = baseline.run(fake_context(tiny_spec(), clock=FakeClock()))
    assert result.joules_per_token.value is None
    assert result.joules_per_token.reason == "no counter in a test"


def test_the_peak_of_a_cell_is_its_own() -> None:
    result = baseline.run(fake_context(tiny_spec(), clock=FakeClock()))
    peaks = {(c.batch, c.input_tokens): c.peak_memory_bytes.value for c in result.cells}
    assert peaks[(1, 8)] == 1_000_000 + 8 * 1000
    assert peaks[(2, 16)] == 1_000_000 + 32 * 1000
    assert result.peak_memory_bytes.value == 1_000_000 + 32 * 1000


def test_the_slowest_cells_are_left_out_when_they_would_not_fit_and_it_says_so() -> None:
    clock = FakeClock()
    engine = FakeEngine(clock, prefill_s_per_token=0.2, step_s=0.1)
    context = fake_context(tiny_spec(timeout_s=60), clock=clock, engine=engine)
    result = baseline.run(context)
    assert 1 <= len(result.cells) < 4
    assert all(cell.prefill_s.n == 5 for cell in result.cells)
    assert any("left out" in note for note in context.facts.notes)


def test_requests_stop_at_the_time_limit_and_the_plan_is_remembered() -> None:
    clock = FakeClock()
    engine = FakeEngine(clock, prefill_s_per_token=0.1, step_s=0.5)
    workload = Workload(
        preset="chat",
        input_tokens=LengthSpec(mean=12),
        output_tokens=LengthSpec(mean=5),
        requests=100,
    )
    config = BaselineConfig(batch_sizes=(1,), input_tokens=(8,), decode_steps=2)
    context = fake_context(
        tiny_spec(timeout_s=100, workload=workload, config=config), clock=clock, engine=engine
    )
    result = baseline.run(context)
    assert 5 < len(result.requests) < 40
    assert context.facts.planned_requests == 100
    assert clock.now() < context.deadline + 5


def test_progress_never_goes_back_and_ends_near_one() -> None:
    clock = FakeClock()
    events: list[tuple[Any, ...]] = []
    engine = FakeEngine(clock, step_s=0.2, jitter=seeded_jitter(1))
    baseline.run(fake_context(tiny_spec(), clock=clock, engine=engine, events=events))
    fractions = [event[2] for event in events]
    assert fractions == sorted(fractions)
    assert fractions[-1] > 0.8
    assert {event[0] for event in events} >= {"warmup", "measure", "quality", "finish"}


def test_repeats_of_a_steady_engine_agree() -> None:
    clock = FakeClock()
    context = fake_context(tiny_spec(), clock=clock)
    baseline.run(context)
    assert context.facts.repeat_ratios == pytest.approx([1.0] * 5)
    assert context.facts.warmup_stable is True


def test_idle_power_is_taken_off_the_energy_of_a_token() -> None:
    clock = FakeClock()
    engine = FakeEngine(clock)

    class Working:
        """Ten watts at rest, thirty more while the engine has run (its prompts tell)."""

        reason = None

        def read_j(self) -> float | None:
            return 10 * clock.now() + 5 * len(engine.prompts)

    result = baseline.run(fake_context(tiny_spec(), clock=clock, engine=engine, energy=Working()))
    assert result.idle_power_w.value == pytest.approx(10)
    assert result.joules_per_token.value is not None
    tokens = sum(r.output_tokens for r in result.requests)
    expected = result.joules_per_token.value - 10 * result.window_s / tokens
    assert result.net_joules_per_token.value == pytest.approx(expected)
    # 5 J for each prompt, 5 tokens a prompt.
    assert result.net_joules_per_token.value == pytest.approx(1.0, rel=0.01)


def test_without_a_counter_idle_power_has_the_reason() -> None:
    clock = FakeClock()
    result = baseline.run(fake_context(tiny_spec(), clock=clock))
    assert result.idle_power_w.value is None
    assert result.net_joules_per_token.reason == result.idle_power_w.reason
