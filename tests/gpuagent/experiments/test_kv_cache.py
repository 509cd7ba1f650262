from __future__ import annotations

import pytest

from gpuagent.errors import AgentError
from gpuagent.experiments import kv_cache
from gpuagent.wire import FailureReason
from gpuagent.wire.trial import KvCacheConfig
from tests.gpuagent.fakes import FakeClock, FakeEngine, fake_context, fake_report, tiny_spec

CONFIG = KvCacheConfig(context_tokens=(64, 16, 128), decode_steps=4)


def test_uncached_steps_cost_the_context_and_cached_ones_do_not() -> None:
    clock = FakeClock()
    result = kv_cache.run(fake_context(tiny_spec(config=CONFIG), clock=clock))
    assert [point.context_tokens for point in result.points] == [16, 64, 128]
    for point in result.points:
        assert point.cached_step_s.values == pytest.approx([0.01] * 20)
        assert point.uncached_step_s.values == pytest.approx([0.001 * point.context_tokens] * 10)
        assert point.uncached_reason is None


def test_cache_bytes_are_those_of_the_context_and_memory_grows_by_them() -> None:
    clock = FakeClock()
    result = kv_cache.run(fake_context(tiny_spec(config=CONFIG), clock=clock))
    assert [point.cache_bytes for point in result.points] == [16_000, 64_000, 128_000]
    memory = [point.memory_bytes.value for point in result.points]
    assert memory == [1_016_000, 1_064_000, 1_128_000]
    assert result.bytes_after_release.value == 0


def test_what_would_take_too_long_without_the_cache_is_left_out_with_the_reason() -> None:
    clock = FakeClock()
    engine = FakeEngine(clock, prefill_s_per_token=0.05)
    result = kv_cache.run(fake_context(tiny_spec(config=CONFIG), clock=clock, engine=engine))
    short, middle, long = result.points
    assert short.uncached_step_s.n == 10
    assert middle.uncached_step_s.n == 5
    assert long.uncached_step_s.n == 0
    assert "takes about 6.4 s" in (long.uncached_reason or "")
    assert long.cached_step_s.n == 20


def test_contexts_beyond_the_model_are_left_out_and_noted() -> None:
    context = fake_context(
        tiny_spec(config=CONFIG), clock=FakeClock(), report=fake_report(max_context=100)
    )
    result = kv_cache.run(context)
    assert [point.context_tokens for point in result.points] == [16, 64]
    assert "128" in context.facts.notes[0]


def test_a_model_too_short_for_two_contexts_is_refused() -> None:
    context = fake_context(
        tiny_spec(config=CONFIG), clock=FakeClock(), report=fake_report(max_context=30)
    )
    with pytest.raises(AgentError, match="context_tokens") as caught:
        kv_cache.run(context)
    assert caught.value.reason is FailureReason.CONFIG_ERROR
