"""Rules on number formats: fails with evidence, passes, not applicable, at the threshold."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.evidence import TrialEvidence
from advisor.rules.checks import (
    p003_quality_lost,
    p004_float32_on_gpu,
    p005_float16_on_cpu,
    p006_format_without_arithmetic,
    p007_quality_unmeasured,
)
from advisor.rules.rule import Verdict
from gpuagent.wire import EngineSettings, SimulatedModel
from gpuagent.wire.ceilings import Ceilings
from tests.builders import (
    make_baseline_result,
    make_current,
    make_device,
    make_evidence,
    make_loaded,
    make_shape,
    make_study_spec,
    make_trial,
    make_validity,
    make_variant,
    make_verify_result,
)
from tests.inside_builders import make_ceiling, make_ceilings
from tests.rule_checks import (
    GIB,
    TIGHT_ITL,
    TIGHT_TTFT,
    aiming_at,
    assert_says_what_is_missing,
    invalid,
    on_gpu,
    one,
    text_of,
    through_engine,
)


@pytest.mark.parametrize(
    "module",
    [
        p003_quality_lost,
        p004_float32_on_gpu,
        p005_float16_on_cpu,
        p006_format_without_arithmetic,
        p007_quality_unmeasured,
    ],
    ids=lambda module: module.ID,
)
def test_without_its_evidence_a_rule_says_what_is_missing(module: Any) -> None:
    assert_says_what_is_missing(one(module, shape=None, device=None))


def in_dtype(dtype: str, **result: Any) -> TrialEvidence:
    return make_trial(
        make_baseline_result(dtype, **result),
        settings=EngineSettings.model_validate({"dtype": dtype}),
    )


def invalid_variant(perplexity: float) -> TrialEvidence:
    return make_trial(
        make_baseline_result("float32", perplexity=perplexity),
        ordinal=3,
        role="variant",
        settings=EngineSettings(dtype="float32"),
        validity=make_validity("invalid"),
    )


# --- lost quality ------------------------------------------------------------------------------


@pytest.mark.parametrize(("own", "verdict"), [(18.179, Verdict.PASS), (18.2, Verdict.FAIL)])
def test_a_format_may_raise_perplexity_by_one_per_cent(own: float, verdict: Verdict) -> None:
    finding = one(p003_quality_lost, make_current(perplexity=own), make_variant(perplexity=18.0))
    assert finding.verdict is verdict
    assert [item.value for item in finding.evidence] == [own, 18.0]
    if verdict is Verdict.FAIL:
        assert finding.title.startswith("Compare answers in float32")


def test_the_best_of_several_formats_is_the_measure() -> None:
    others = (make_variant(perplexity=18.0), make_variant("float16", ordinal=4, perplexity=17.0))
    finding = one(p003_quality_lost, make_current(perplexity=18.1), *others)
    assert finding.verdict is Verdict.FAIL
    assert "float16" in finding.title


def test_quality_is_compared_on_valid_trials_of_the_same_text_alone() -> None:
    current = make_current(perplexity=30.0)
    assert_says_what_is_missing(one(p003_quality_lost, current))
    assert_says_what_is_missing(one(p003_quality_lost, current, make_variant(perplexity=None)))
    assert_says_what_is_missing(one(p003_quality_lost, current, invalid_variant(18.0)))
    assert_says_what_is_missing(one(p003_quality_lost, make_variant(perplexity=18.0)))


# --- float32 on a GPU --------------------------------------------------------------------------


def test_float32_on_a_gpu_is_to_be_halved() -> None:
    finding = one(p004_float32_on_gpu, in_dtype("float32"), **on_gpu(), **aiming_at(TIGHT_ITL))
    assert finding.verdict is Verdict.FAIL
    assert finding.change is not None
    assert finding.change.settings == {"dtype": "bfloat16"}
    assert finding.effect is not None
    assert (finding.effect.low, finding.effect.high) == (-0.5, 0.0)
    assert finding.effect.basis == "modelled"
    assert finding.gain > 0


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("Tesla T4", "float16"),  # compute capability 7.5
        ("NVIDIA A100-SXM4-80GB", "bfloat16"),  # 8.0
        ("Accelerator 9000", "bfloat16"),
    ],
)
def test_cards_before_ampere_get_float16(name: str, dtype: str) -> None:
    finding = one(p004_float32_on_gpu, in_dtype("float32"), **on_gpu(name=name))
    assert finding.change is not None
    assert finding.change.settings == {"dtype": dtype}


def test_calibrated_rates_are_shown_where_there_are_some() -> None:
    ceilings = make_ceilings(float32=60e12, bfloat16=900e12)
    finding = one(p004_float32_on_gpu, in_dtype("float32"), **on_gpu(ceilings=ceilings))
    assert "900 TFLOP/s in bfloat16 and 60.0 in float32" in text_of(finding)


def test_16_bit_passes_and_a_measured_comparison_is_left_to_its_own_rule() -> None:
    assert one(p004_float32_on_gpu, make_current(), **on_gpu()).verdict is Verdict.PASS
    compared = one(p004_float32_on_gpu, in_dtype("float32"), make_variant("bfloat16"), **on_gpu())
    assert compared.verdict is Verdict.NOT_APPLICABLE
    assert "dtype-slower" in (compared.missing or "")
    assert_says_what_is_missing(one(p004_float32_on_gpu, in_dtype("float32")))
    assert_says_what_is_missing(
        one(p004_float32_on_gpu, invalid(loaded=make_loaded("float32")), **on_gpu())
    )


def test_the_host_s_gpu_is_not_that_of_a_simulation() -> None:
    spec = make_study_spec(engine="simulated", model=SimulatedModel(name="qwen3-32b-2xh100"))
    evidence = make_evidence(in_dtype("float32"), spec=spec, shape=None, **on_gpu())
    assert_says_what_is_missing(through_engine("float32-on-gpu", evidence))


# --- float16 on a processor --------------------------------------------------------------------


def with_float16(rate: float) -> Ceilings:
    plain = make_ceilings(float32=200e9)
    return plain.model_copy(
        update={"entries": (*plain.entries, make_ceiling("gemm", rate, "float16"))}
    )


def test_float16_on_a_processor_is_to_be_widened() -> None:
    finding = one(p005_float16_on_cpu, in_dtype("float16"))
    assert finding.verdict is Verdict.FAIL
    assert finding.confidence == "medium"
    assert finding.change is not None
    assert finding.change.settings == {"dtype": "float32"}


@pytest.mark.parametrize(("rate", "verdict"), [(190e9, Verdict.PASS), (189e9, Verdict.FAIL)])
def test_a_processor_with_float16_arithmetic_is_believed(rate: float, verdict: Verdict) -> None:
    device = make_device(ceilings=with_float16(rate))
    finding = one(p005_float16_on_cpu, in_dtype("float16"), device=device)
    assert finding.verdict is verdict
    assert finding.evidence[1].value == pytest.approx(rate / 200e9)
    if verdict is Verdict.FAIL:
        assert finding.confidence == "high"


def test_other_formats_pass_and_a_measured_comparison_is_left_to_its_own_rule() -> None:
    assert one(p005_float16_on_cpu, make_current()).verdict is Verdict.PASS
    compared = one(p005_float16_on_cpu, in_dtype("float16"), make_variant())
    assert compared.verdict is Verdict.NOT_APPLICABLE
    assert_says_what_is_missing(one(p005_float16_on_cpu, in_dtype("float16"), **on_gpu()))
    assert_says_what_is_missing(one(p005_float16_on_cpu, invalid(loaded=make_loaded("float16"))))


# --- arithmetic of a checkpoint ----------------------------------------------------------------

FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3"}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128}
A100 = {"name": "NVIDIA A100-SXM4-80GB", "memory_bytes": 80 * GIB}


def quantised(config: dict[str, Any]) -> dict[str, Any]:
    return {"shape": make_shape(quantization_config=config)}


@pytest.mark.parametrize(
    ("config", "gpu", "verdict"),
    [
        (FP8, {}, Verdict.PASS),  # Hopper has FP8
        (FP8, A100, Verdict.INFORMATIVE),
        (AWQ, A100, Verdict.PASS),  # weights of 4 bit, products in 16
    ],
)
def test_a_format_without_arithmetic_saves_memory_only(
    config: dict[str, Any], gpu: dict[str, Any], verdict: Verdict
) -> None:
    finding = one(p006_format_without_arithmetic, **quantised(config), **on_gpu(**gpu))
    assert finding.verdict is verdict
    if verdict is Verdict.INFORMATIVE:
        assert finding.title.startswith("fp8 saves memory only")
        assert finding.change is not None
        assert finding.change.settings == {}


def test_only_quantised_checkpoints_on_a_known_gpu_are_compared() -> None:
    assert_says_what_is_missing(one(p006_format_without_arithmetic, **on_gpu()))
    assert_says_what_is_missing(one(p006_format_without_arithmetic, **quantised(FP8)))
    unknown = on_gpu(name="Accelerator 9000")
    assert_says_what_is_missing(one(p006_format_without_arithmetic, **quantised(FP8), **unknown))


# --- unmeasured quality ------------------------------------------------------------------------


def test_a_format_without_a_score_leaves_quality_open() -> None:
    finding = one(p007_quality_unmeasured, make_current(), make_variant(perplexity=None))
    assert finding.verdict is Verdict.CANNOT_TELL
    assert "float32: random weights" in text_of(finding)
    assert finding.missing


def test_scored_formats_pass_and_one_format_alone_is_not_compared() -> None:
    scored = one(p007_quality_unmeasured, make_current(), make_variant())
    assert scored.verdict is Verdict.PASS
    assert_says_what_is_missing(one(p007_quality_unmeasured, make_current(perplexity=None)))
    unusable = one(
        p007_quality_unmeasured, make_current(), invalid_variant(18.0), **aiming_at(TIGHT_TTFT)
    )
    assert_says_what_is_missing(unusable)


def test_a_cache_in_another_format_is_scored_by_the_verification() -> None:
    today = EngineSettings(dtype="bfloat16")
    narrow = today.model_copy(update={"kv_dtype": "fp8"})
    unscored = make_baseline_result(perplexity=None)
    trials = (
        make_trial(unscored, settings=today),
        make_trial(unscored, settings=narrow, ordinal=2, role="variant"),
    )
    open_ = one(p007_quality_unmeasured, *trials)
    assert open_.verdict is Verdict.CANNOT_TELL
    assert "bfloat16 with a cache in fp8" in open_.evidence[1].text
    gate = make_verify_result(narrow)
    proof = make_trial(gate, settings=today, ordinal=3, role="verification")
    assert one(p007_quality_unmeasured, *trials, proof).verdict is Verdict.PASS
    blind = make_trial(
        make_verify_result(narrow, perplexity_b=None),
        settings=today,
        ordinal=3,
        role="verification",
    )
    assert one(p007_quality_unmeasured, *trials, blind).verdict is Verdict.CANNOT_TELL
