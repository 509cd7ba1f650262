"""Rules on a serving engine's own counters: fails, passes, threshold, within targets, missing."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.rules.checks import (
    k020_steps_without_graph,
    m012_kv_cache_starved,
    s010_batch_limit_full,
    s011_prefill_chunks,
)
from advisor.rules.rule import Finding, Verdict
from advisor.thresholds import (
    BATCH_FULL_MAX,
    CACHE_STARVED_MAX,
    STEPS_EAGER_MAX,
    STEPS_MIXED_MAX,
)
from gpuagent.wire import EngineSettings, SimulatedModel, SlaTarget
from tests.builders import (
    make_baseline_result,
    make_current,
    make_evidence,
    make_study_spec,
    make_trial,
    make_validity,
    make_verification,
    make_workload,
)
from tests.rule_checks import (
    LOOSE_ITL,
    LOOSE_TTFT,
    TIGHT_ITL,
    TIGHT_TTFT,
    assert_says_what_is_missing,
    make_counters,
    one,
    text_of,
    through_engine,
)

MODULES = (
    s010_batch_limit_full,
    m012_kv_cache_starved,
    k020_steps_without_graph,
    s011_prefill_chunks,
)


def served(
    module: Any,
    *targets: SlaTarget,
    settings: EngineSettings | None = None,
    prompt: int = 600,
    **counters: Any,
) -> Finding:
    """The finding where the current settings were served with these counters."""
    settings = settings or EngineSettings()
    spec = make_study_spec(
        engine="simulated",
        model=SimulatedModel(name="qwen3-32b-2xh100"),
        targets=targets or (TIGHT_TTFT,),
        current=settings,
        workload=make_workload(request_rate_per_s=4.0, input_tokens={"mean": prompt}),
    )
    measured = make_baseline_result(arrivals="poisson", cells=(), server=make_counters(**counters))
    trial = make_trial(measured, settings=settings)
    return one(module, trial, spec=spec)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.ID)
def test_without_counters_a_rule_says_what_is_missing(module: Any) -> None:
    assert_says_what_is_missing(one(module))
    assert_says_what_is_missing(one(module, make_current()))


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.ID)
def test_one_request_after_the_other_is_no_load(module: Any) -> None:
    trial = make_current(arrivals="closed_loop", server=make_counters())
    assert_says_what_is_missing(one(module, trial))


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.ID)
def test_a_moderate_load_passes(module: Any) -> None:
    assert served(module).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("module", "counter", "limit"),
    [
        (s010_batch_limit_full, "full_frac", BATCH_FULL_MAX.value),
        (m012_kv_cache_starved, "starved_frac", CACHE_STARVED_MAX.value),
        (k020_steps_without_graph, "eager_frac", STEPS_EAGER_MAX.value),
        (s011_prefill_chunks, "mixed_frac", STEPS_MIXED_MAX.value),
    ],
    ids=lambda value: getattr(value, "ID", None),
)
def test_at_the_threshold_a_rule_passes_and_above_it_speaks(
    module: Any, counter: str, limit: float
) -> None:
    settings = EngineSettings(max_batched_tokens=256)
    at = served(module, settings=settings, **{counter: limit})
    assert at.verdict is Verdict.PASS
    above = served(module, settings=settings, **{counter: limit + 0.001})
    assert above.verdict is Verdict.FAIL
    assert above.evidence[0].value == pytest.approx(limit + 0.001)
    assert above.evidence[0].n == 1000
    assert above.change is not None


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.ID)
def test_within_the_targets_nothing_has_to_change(module: Any) -> None:
    finding = served(
        module,
        LOOSE_TTFT,
        LOOSE_ITL,
        full_frac=0.5,
        starved_frac=0.5,
        eager_frac=0.5,
        mixed_frac=0.5,
    )
    assert finding.verdict is Verdict.INFORMATIVE
    assert finding.change is None


def test_a_full_batch_asks_for_twice_the_places() -> None:
    finding = served(s010_batch_limit_full, full_frac=0.6, running_peak=8)
    assert finding.change is not None
    assert finding.change.settings == {"max_running": 16}
    assert "60 % of 1,000 steps 8 requests ran" in text_of(finding)


def test_one_request_thrown_out_is_enough() -> None:
    finding = served(m012_kv_cache_starved, preemptions=1)
    assert finding.verdict is Verdict.FAIL
    assert "fp8" in text_of(finding)
    already = served(m012_kv_cache_starved, preemptions=1, settings=EngineSettings(kv_dtype="fp8"))
    assert "fp8" not in text_of(already)


@pytest.mark.parametrize(
    ("perplexity", "said"),
    [(18.09, "perplexity +0.5% in trial 4"), (19.0, None), (None, "check quality")],
)
def test_the_verification_tells_what_a_cache_in_fp8_costs(
    perplexity: float | None, said: str | None
) -> None:
    tried = make_verification(
        candidate=EngineSettings(kv_dtype="fp8"), perplexity_a=18.0, perplexity_b=perplexity
    )
    measured = make_baseline_result(
        arrivals="poisson", cells=(), server=make_counters(preemptions=1)
    )
    spec = make_study_spec(engine="vllm", targets=(TIGHT_TTFT,), current=EngineSettings())
    now = make_trial(measured, settings=EngineSettings())
    finding = one(m012_kv_cache_starved, now, tried, spec=spec)
    assert finding.verdict is Verdict.FAIL
    assert finding.change is not None
    assert ("fp8" in finding.change.text) is (said is not None)
    assert (said or "") in finding.change.text


def test_graphs_that_are_off_are_switched_on_and_others_are_captured_larger() -> None:
    off = served(
        k020_steps_without_graph, eager_frac=1.0, settings=EngineSettings(cuda_graphs=False)
    )
    assert off.change is not None
    assert off.change.settings == {"cuda_graphs": True}
    larger = served(k020_steps_without_graph, eager_frac=0.4, running_peak=700)
    assert larger.change is not None
    assert larger.change.settings == {}
    assert "700 requests" in larger.change.text


def test_which_target_is_missed_decides_the_direction_of_the_chunks() -> None:
    small = EngineSettings(max_batched_tokens=256)
    up = served(s011_prefill_chunks, TIGHT_TTFT, LOOSE_ITL, settings=small, mixed_frac=0.8)
    assert up.change is not None
    assert up.change.settings == {"max_batched_tokens": 2048}
    large = EngineSettings(max_batched_tokens=8192)
    down = served(s011_prefill_chunks, LOOSE_TTFT, TIGHT_ITL, settings=large, mixed_frac=0.8)
    assert down.change is not None
    assert down.change.settings == {"max_batched_tokens": 4096}
    both = served(s011_prefill_chunks, TIGHT_TTFT, TIGHT_ITL, settings=small, mixed_frac=0.8)
    assert both.verdict is Verdict.CANNOT_TELL
    assert both.change is None


def test_a_prompt_that_fits_one_step_does_not_ask_for_larger_ones() -> None:
    large = EngineSettings(max_batched_tokens=8192)
    finding = served(s011_prefill_chunks, TIGHT_TTFT, settings=large, mixed_frac=0.8)
    assert finding.verdict is Verdict.INFORMATIVE


def test_an_invalid_measurement_gives_no_advice() -> None:
    result = make_baseline_result(
        arrivals="poisson", server=make_counters(full_frac=0.9, starved_frac=0.9)
    )
    trial = make_trial(result, validity=make_validity("invalid"))
    for module in MODULES:
        finding = through_engine(module.ID, make_evidence(trial))
        assert finding.verdict is Verdict.NOT_APPLICABLE
