"""Rules on memory: fails with evidence, passes, threshold, missing evidence."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.rules.checks import (
    m003_model_exceeds_memory,
    m004_memory_headroom_small,
    m005_kv_capacity_short,
    m006_kv_cache_idle,
    m007_context_exceeds_memory,
    m008_weights_crowd_cache,
    m009_kv_heads_ungrouped,
    m010_memory_above_formula,
    m011_memory_fragmented,
)
from advisor.rules.rule import Finding, Verdict
from advisor.rules.support import predict
from gpuagent.wire import EngineSettings, LengthSpec, SlaTarget
from gpuagent.wire.trial import MemorySnapshot
from tests.builders import (
    make_baseline_result,
    make_current,
    make_device,
    make_evidence,
    make_failure,
    make_loaded,
    make_profile_result,
    make_shape,
    make_study_spec,
    make_trial,
    make_validity,
    make_workload,
)

GIB = 1024**3
LLAMA_70B = {
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}
LLAMA_8B = {
    **LLAMA_70B,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
}


def text_of(finding: Finding) -> str:
    words = [finding.title, finding.summary, *(item.text for item in finding.evidence)]
    return " ".join(words).replace("\u00a0", " ")


def one(module: Any, *trials: TrialEvidence, **fields: Any) -> Finding:
    (finding,) = module.check(make_evidence(*trials, **fields))
    assert isinstance(finding, Finding)
    return finding


def at_rate(rate: float = 4.0, **workload: Any) -> Any:
    return make_study_spec(workload=make_workload(request_rate_per_s=rate, **workload))


def on_gpu(**fields: Any) -> dict[str, Any]:
    return {"device": make_device("gpu"), **fields}


INVALID = make_trial(make_baseline_result(), validity=make_validity("invalid"))


@pytest.mark.parametrize(
    "module",
    [
        m003_model_exceeds_memory,
        m004_memory_headroom_small,
        m005_kv_capacity_short,
        m006_kv_cache_idle,
        m007_context_exceeds_memory,
        m008_weights_crowd_cache,
        m009_kv_heads_ungrouped,
        m010_memory_above_formula,
        m011_memory_fragmented,
    ],
    ids=lambda module: module.ID,
)
def test_without_its_evidence_a_rule_says_what_is_missing(module: Any) -> None:
    finding = one(module, shape=None, device=None)
    assert finding.verdict is Verdict.NOT_APPLICABLE
    assert finding.missing


# --- fit ---------------------------------------------------------------------------------------


def test_a_model_that_does_not_fit_names_the_format_that_does() -> None:
    spec = make_study_spec(current=EngineSettings(dtype="float32"))
    shape = make_shape(**LLAMA_8B)
    device = make_device("gpu", name="L4", memory_bytes=24 * GIB)
    finding = one(m003_model_exceeds_memory, spec=spec, shape=shape, device=device)
    assert finding.verdict is Verdict.FAIL
    assert "weights 29.9 GiB" in text_of(finding)
    assert finding.change is not None
    assert finding.change.settings == {"dtype": "bfloat16"}
    evidence = make_evidence(spec=spec, shape=shape, device=device)
    then = predict(evidence, dtype="bfloat16")
    assert then is not None
    assert then.memory.fits


def test_a_model_that_16_bit_does_not_help_is_advised_fewer_bits() -> None:
    device = make_device("gpu", name="L4", memory_bytes=24 * GIB)
    oom = make_trial(failure=make_failure())
    finding = one(m003_model_exceeds_memory, oom, shape=make_shape(**LLAMA_70B), device=device)
    assert finding.verdict is Verdict.FAIL
    assert finding.confidence == "high"
    assert "ran out of memory" in text_of(finding)
    assert finding.change is not None
    assert finding.change.settings == {}


def test_a_model_that_fits_passes_and_one_that_runs_is_believed() -> None:
    finding = one(m003_model_exceeds_memory)
    assert finding.verdict is Verdict.PASS
    tiny = make_device(memory_bytes=GIB)
    assert one(m003_model_exceeds_memory, device=tiny).verdict is Verdict.FAIL
    assert one(m003_model_exceeds_memory, make_current(), device=tiny).verdict is (
        Verdict.INFORMATIVE
    )


# --- headroom ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "verdict"), [(0.9, Verdict.PASS), (0.901, Verdict.FAIL)])
def test_a_tenth_of_memory_stays_free(share: float, verdict: Verdict) -> None:
    peak = share * make_device().memory_bytes
    finding = one(m004_memory_headroom_small, make_current(peak_memory_bytes=peak))
    assert finding.verdict is verdict
    assert finding.evidence[0].value == pytest.approx(share)


def test_headroom_needs_a_valid_reading() -> None:
    for trial in (INVALID, make_current(peak_memory_bytes=None)):
        assert one(m004_memory_headroom_small, trial).verdict is Verdict.NOT_APPLICABLE


# --- cache and load ----------------------------------------------------------------------------


def test_more_sequences_in_flight_than_fit_fails_by_littles_law() -> None:
    # One answer takes 0.15 + 15 × 0.06 = 1.05 s, so 1,000 a second keep about 1,050 in flight.
    device = make_device("gpu", name="L4", memory_bytes=24 * GIB)
    fields = {"shape": make_shape(**LLAMA_8B), "device": device}
    finding = one(m005_kv_capacity_short, make_current(), spec=at_rate(1000), **fields)
    assert finding.verdict is Verdict.FAIL
    sequences, room = (item.value for item in finding.evidence)
    assert sequences == pytest.approx(1050, abs=12)
    assert room is not None
    assert room < 1050
    assert finding.change is not None
    assert "fp8 cache holds" in finding.change.text
    assert one(m005_kv_capacity_short, make_current(), spec=at_rate(400), **fields).verdict is (
        Verdict.PASS
    )


def test_an_fp8_cache_holds_twice_the_tokens() -> None:
    evidence = make_evidence(shape=make_shape(**LLAMA_8B), **on_gpu())
    full, half = predict(evidence), predict(evidence, kv_dtype="fp8")
    assert full is not None
    assert half is not None
    assert half.memory.kv_capacity_tokens == pytest.approx(
        2 * full.memory.kv_capacity_tokens, abs=32
    )
    assert half.weight_bytes == full.weight_bytes


def test_a_cache_for_hundreds_of_times_the_load_is_told_idle() -> None:
    finding = one(m006_kv_cache_idle, make_current(), spec=at_rate(1), **on_gpu())
    assert finding.verdict is Verdict.INFORMATIVE
    assert finding.change is not None
    busy = one(
        m006_kv_cache_idle,
        make_current(),
        spec=at_rate(100_000),
        shape=make_shape(**LLAMA_8B),
        **on_gpu(),
    )
    assert busy.verdict is Verdict.PASS
    cpu = one(m006_kv_cache_idle, make_current(), spec=at_rate(1))
    assert cpu.verdict is Verdict.NOT_APPLICABLE


# --- context -----------------------------------------------------------------------------------


def asking(tokens: int) -> Any:
    return make_study_spec(workload=make_workload(input_tokens=LengthSpec(mean=tokens)))


def test_the_advised_context_passes_our_own_fit() -> None:
    device = make_device("gpu", name="L4", memory_bytes=24 * GIB)
    shape = make_shape(**{**LLAMA_8B, "max_position_embeddings": 10_485_760})
    finding = one(m007_context_exceeds_memory, spec=asking(4000), shape=shape, device=device)
    assert finding.verdict is Verdict.INFORMATIVE
    assert finding.change is not None
    assert "4,096" in finding.change.text
    evidence = make_evidence(spec=asking(4000), shape=shape, device=device)
    found = predict(evidence, context=4096)
    assert found is not None
    assert found.fits
    too_long = one(m007_context_exceeds_memory, spec=asking(900_000), shape=shape, device=device)
    assert too_long.verdict is Verdict.FAIL
    fits = too_long.evidence[0].value
    assert fits is not None
    exactly = predict(evidence, context=int(fits))
    # Not one token more: the plan also depends on the length that it is made for.
    beyond = predict(evidence, context=int(fits * 1.1))
    assert exactly is not None
    assert exactly.fits
    assert beyond is not None
    assert not beyond.fits


def test_a_limit_that_fits_passes() -> None:
    assert one(m007_context_exceeds_memory, **on_gpu()).verdict is Verdict.PASS
    without = make_shape(max_position_embeddings=None)
    if without.max_context is None:
        finding = one(m007_context_exceeds_memory, shape=without, **on_gpu())
        assert finding.verdict is Verdict.NOT_APPLICABLE


# --- weights -----------------------------------------------------------------------------------


def heavy(share: float, dtype: str = "float32", **fields: Any) -> TrialEvidence:
    loaded = make_loaded(dtype, stored_weight_bytes=int(share * 80 * GIB))
    return make_current(loaded=loaded, peak_memory_bytes=70e9, **fields)


MEMORY_TARGET = SlaTarget(metric="memory_bytes", statistic="peak", limit=40e9)


@pytest.mark.parametrize(("share", "verdict"), [(0.6, Verdict.PASS), (0.61, Verdict.FAIL)])
def test_weights_that_crowd_out_the_cache(share: float, verdict: Verdict) -> None:
    spec = make_study_spec(targets=(MEMORY_TARGET,))
    finding = one(m008_weights_crowd_cache, heavy(share), spec=spec, **on_gpu())
    assert finding.verdict is verdict
    if verdict is Verdict.FAIL:
        assert finding.change is not None
        assert finding.change.settings == {"dtype": "bfloat16"}


def test_heavy_weights_of_a_load_that_fits_are_only_told() -> None:
    assert one(m008_weights_crowd_cache, heavy(0.8), **on_gpu()).verdict is Verdict.INFORMATIVE
    spec = make_study_spec(targets=(MEMORY_TARGET,))
    narrow = one(m008_weights_crowd_cache, heavy(0.8, "bfloat16"), spec=spec, **on_gpu())
    assert narrow.change is not None
    assert narrow.change.settings == {}


def test_a_model_without_grouped_heads_is_right_and_large() -> None:
    own = one(m009_kv_heads_ungrouped)
    assert own.verdict is Verdict.PASS
    mha = make_shape(num_attention_heads=64, num_key_value_heads=64, hidden_size=8192)
    finding = one(m009_kv_heads_ungrouped, shape=mha)
    assert finding.verdict is Verdict.INFORMATIVE
    assert "8.0 times" in text_of(finding)
    small = make_shape(num_attention_heads=8, num_key_value_heads=8, hidden_size=512)
    assert one(m009_kv_heads_ungrouped, shape=small).verdict is Verdict.PASS


# --- peaks -------------------------------------------------------------------------------------


def test_memory_that_no_formula_explains() -> None:
    explained = one(m010_memory_above_formula, make_current(peak_memory_bytes=1.1e9))
    assert explained.verdict is Verdict.PASS
    most = explained.evidence[1].value
    assert most is not None
    at = make_current(peak_memory_bytes=1.25 * most)
    assert one(m010_memory_above_formula, at).verdict is Verdict.PASS
    above = one(m010_memory_above_formula, make_current(peak_memory_bytes=1.3 * most))
    assert above.verdict is Verdict.FAIL
    assert "weights 257 MiB" in text_of(above)


def profiled(**memory: Any) -> StudyEvidence:
    fields: dict[str, Any] = {
        "allocated_peak_bytes": 40 * GIB,
        "reserved_peak_bytes": 44 * GIB,
        "fragmentation_frac": 1 - 40 / 44,
        "segments": 90,
        "largest_free_bytes": GIB,
        "alloc_retries": 0,
        "ooms": 0,
    }
    result = make_profile_result(memory=MemorySnapshot(**{**fields, **memory}), memory_reason=None)
    trial = make_trial(result, ordinal=2, role="diagnosis")
    return make_evidence(make_current(), trial, **on_gpu())


@pytest.mark.parametrize(
    ("memory", "verdict"),
    [
        ({}, Verdict.PASS),
        ({"alloc_retries": 1}, Verdict.FAIL),
        ({"reserved_peak_bytes": 48 * GIB}, Verdict.PASS),
        ({"reserved_peak_bytes": 49 * GIB}, Verdict.FAIL),
    ],
)
def test_fragmentation_by_retries_or_a_tenth_of_the_device(
    memory: dict[str, Any], verdict: Verdict
) -> None:
    (finding,) = m011_memory_fragmented.check(profiled(**memory))
    assert finding.verdict is verdict
    if verdict is Verdict.FAIL:
        assert finding.change is not None
        assert "expandable_segments" in finding.change.text


def test_a_profile_without_a_snapshot_says_why() -> None:
    trial = make_trial(make_profile_result(), ordinal=2, role="diagnosis")
    (finding,) = m011_memory_fragmented.check(make_evidence(make_current(), trial))
    assert finding.verdict is Verdict.NOT_APPLICABLE
    assert "no CUDA device" in str(finding.missing)
