from __future__ import annotations

import pytest

from gpuagent.experiments import verify
from gpuagent.wire import EngineSettings
from gpuagent.wire.trial import VerifyConfig
from tests.gpuagent.fakes import FakeClock, FakeEngine, fake_context, tiny_spec

CONFIG = VerifyConfig(
    candidate=EngineSettings(dtype="bfloat16"), pairs=6, requests_per_run=3, perplexity_tokens=600
)
SPEC = tiny_spec(config=CONFIG, settings=EngineSettings(dtype="float32"))


def run_both(clock: FakeClock, *, b_step_s: float = 0.005, **changes: object) -> tuple[object, ...]:
    a, b = FakeEngine(clock), FakeEngine(clock, step_s=b_step_s)
    spec = SPEC.model_copy(update=changes)
    context = fake_context(spec, clock=clock, engines={"float32": a, "bfloat16": b})
    return verify.run(context), context, a, b


def test_runs_are_interleaved_abba() -> None:
    result, *_ = run_both(FakeClock())
    assert "".join(run.side for run in result.runs) == "abbaabbaabba"
    assert [run.order for run in result.runs] == list(range(12))


def test_both_sides_of_a_pair_get_the_same_prompts_and_pairs_get_fresh_ones() -> None:
    _, _, a, b = run_both(FakeClock())
    prompts_a, prompts_b = a.prompts[-18:], b.prompts[-18:]
    assert prompts_a == prompts_b
    assert len(set(prompts_a)) == 18


def test_the_faster_side_shows_in_the_raw_requests() -> None:
    result, *_ = run_both(FakeClock(), b_step_s=0.005)
    gaps = {
        side: [
            later - earlier
            for run in result.runs
            if run.side == side
            for request in run.requests
            for earlier, later in zip(request.token_s, request.token_s[1:], strict=False)
        ]
        for side in "ab"
    }
    assert gaps["a"] == pytest.approx([0.01] * 72)
    assert gaps["b"] == pytest.approx([0.005] * 72)


def test_quality_of_both_sides_is_measured_on_the_same_text() -> None:
    result, *_ = run_both(FakeClock())
    assert result.perplexity_reason is None
    assert result.perplexity_a.text_sha256 == result.perplexity_b.text_sha256
    assert result.perplexity_a.tokens == result.perplexity_b.tokens == 598


def test_pairs_beyond_the_fifth_are_given_up_when_time_runs_out() -> None:
    # A pair takes 2 x 3 x (0.012 + 4 x 0.5) = about 12 s.
    clock = FakeClock()
    a, b = FakeEngine(clock, step_s=0.5), FakeEngine(clock, step_s=0.5)
    config = CONFIG.model_copy(update={"pairs": 20})
    spec = SPEC.model_copy(update={"config": config, "timeout_s": 120})
    context = fake_context(spec, clock=clock, engines={"float32": a, "bfloat16": b})
    result = verify.run(context)
    assert 10 <= len(result.runs) < 40
    assert len(result.runs) % 2 == 0
    assert "of 20 pairs" in context.facts.notes[0]
