"""Rules on attention: fails with evidence, passes, not applicable, at the threshold."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.evidence import TrialEvidence
from advisor.rules.checks import (
    a002_attention_eager,
    a003_context_beyond_trained,
    a004_attention_dominates_prefill,
    a005_window_not_freed,
)
from advisor.rules.rule import Verdict
from gpuagent.wire import EngineSettings, LengthSpec, SimulatedModel
from tests.builders import (
    make_baseline_result,
    make_current,
    make_evidence,
    make_loaded,
    make_shape,
    make_study_spec,
    make_trial,
    make_workload,
)
from tests.inside_builders import make_attention_result
from tests.rule_checks import (
    LLAMA_8B,
    LOOSE_TTFT,
    TIGHT_TTFT,
    aiming_at,
    assert_says_what_is_missing,
    invalid,
    one,
    text_of,
    through_engine,
)

EAGER = make_loaded(attention="eager")
SDPA = make_loaded(attention="sdpa")
MISTRAL = {
    "architectures": ["MistralForCausalLM"],
    "model_type": "mistral",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 32768,
    "sliding_window": 4096,
}


@pytest.mark.parametrize(
    "module",
    [
        a002_attention_eager,
        a003_context_beyond_trained,
        a004_attention_dominates_prefill,
        a005_window_not_freed,
    ],
    ids=lambda module: module.ID,
)
def test_without_its_evidence_a_rule_says_what_is_missing(module: Any) -> None:
    assert_says_what_is_missing(one(module, shape=None, device=None))


# --- eager attention ---------------------------------------------------------------------------


def prompts(tokens: int, answer: int = 16) -> dict[str, Any]:
    lengths = {"input_tokens": LengthSpec(mean=tokens), "output_tokens": LengthSpec(mean=answer)}
    return {"spec": make_study_spec(workload=make_workload(**lengths))}


def with_attention(name: str, ordinal: int, **result: Any) -> TrialEvidence:
    """A baseline that differs from the current settings in nothing but attention."""
    return make_trial(
        make_baseline_result(loaded=make_loaded(attention=name), seed=ordinal, **result),
        ordinal=ordinal,
        role="variant",
        settings=EngineSettings.model_validate({"dtype": "bfloat16", "attention": name}),
    )


@pytest.mark.parametrize(("tokens", "verdict"), [(511, Verdict.INFORMATIVE), (512, Verdict.FAIL)])
def test_eager_attention_fails_from_prompts_of_512_tokens_on(tokens: int, verdict: Verdict) -> None:
    finding = one(a002_attention_eager, make_current(loaded=EAGER), **prompts(tokens))
    assert finding.verdict is verdict
    if verdict is Verdict.FAIL:
        # 9 heads × 512² × 4 bytes.
        assert finding.evidence[1].value == 9 * 512**2 * 4
        assert finding.change is not None
        assert finding.change.settings == {"attention": "sdpa"}
        assert finding.confidence == "medium"


def test_long_answers_write_no_square_of_scores() -> None:
    finding = one(a002_attention_eager, make_current(loaded=EAGER), **prompts(64, answer=2000))
    assert finding.verdict is Verdict.INFORMATIVE
    assert finding.evidence[1].value == 9 * 64**2 * 4


def test_a_faster_fused_baseline_is_measured_proof_whatever_the_length() -> None:
    slower = with_attention("sdpa", 3, ttft_s=0.15, itl_s=0.06)
    assert one(a002_attention_eager, make_current(loaded=EAGER), slower).verdict is Verdict.PASS
    faster = with_attention("sdpa", 3, ttft_s=0.1, itl_s=0.04)
    for shape in (make_shape(), None):
        finding = one(a002_attention_eager, make_current(loaded=EAGER), faster, shape=shape)
        assert finding.verdict is Verdict.FAIL
        assert finding.confidence == "high"
        assert finding.gain > 0
        assert finding.evidence[-1].value == pytest.approx(2 / 3, abs=0.02)


def test_fused_attention_passes_and_a_comparison_is_left_to_its_own_rule() -> None:
    assert one(a002_attention_eager, make_current(loaded=SDPA)).verdict is Verdict.PASS
    diagnosis = make_trial(make_attention_result(), ordinal=2, role="diagnosis")
    finding = one(a002_attention_eager, make_current(loaded=EAGER), diagnosis, **prompts(2000))
    assert finding.verdict is Verdict.NOT_APPLICABLE


def test_attention_of_an_invalid_measurement_is_not_judged() -> None:
    assert_says_what_is_missing(one(a002_attention_eager, invalid(loaded=EAGER), **prompts(2000)))


# --- trained context ---------------------------------------------------------------------------


@pytest.mark.parametrize(("answer", "verdict"), [(192, Verdict.PASS), (193, Verdict.FAIL)])
def test_requests_may_be_as_long_as_the_trained_context(answer: int, verdict: Verdict) -> None:
    finding = one(a003_context_beyond_trained, **prompts(8000, answer))
    assert finding.verdict is verdict
    assert finding.evidence[0].value == 8000 + answer
    if verdict is Verdict.FAIL:
        assert "8,192" in text_of(finding)
        assert finding.change is not None
        assert finding.change.settings == {}


def test_the_cut_of_a_distribution_is_its_longest_request() -> None:
    long_tail = LengthSpec(kind="lognormal", mean=1000, p95=3000, maximum=8192)
    spec = make_study_spec(workload=make_workload(input_tokens=long_tail))
    assert one(a003_context_beyond_trained, spec=spec).verdict is Verdict.FAIL


# --- share of attention ------------------------------------------------------------------------


def test_attention_outweighs_the_weights_of_llama_8b_at_131072_tokens_and_not_at_1024() -> None:
    # 4 × 32 layers × 32 heads × 128 × tokens / 2 per token, against 2 × 6.98e9 weights without
    # lookup and head. With the head at every token, which no engine computes, it would be 2.3.
    for tokens, ratio in ((131_072, 2.46), (1024, 0.019)):
        spec = aiming_at(TIGHT_TTFT, input_tokens=LengthSpec(mean=tokens))
        finding = one(
            a004_attention_dominates_prefill, make_current(), shape=make_shape(**LLAMA_8B), **spec
        )
        share = finding.evidence[0].value
        assert share is not None
        assert share / (1 - share) == pytest.approx(ratio, rel=0.03)
        assert finding.verdict is (Verdict.FAIL if ratio > 1 else Verdict.PASS)


def crossing(**fields: Any) -> int:
    """The shortest prompt of the default model whose attention outweighs its weights."""
    low, high = 64, 100_000
    while high - low > 1:
        middle = (low + high) // 2
        spec = aiming_at(input_tokens=LengthSpec(mean=middle))
        value = one(a004_attention_dominates_prefill, **spec, **fields).evidence[0].value
        low, high = (middle, high) if value is not None and value <= 0.5 else (low, middle)
    return high


def test_the_share_fails_above_one_half_and_names_where_both_are_equal() -> None:
    first = crossing()
    below = one(
        a004_attention_dominates_prefill, **aiming_at(input_tokens=LengthSpec(mean=first - 1))
    )
    above = one(a004_attention_dominates_prefill, **aiming_at(input_tokens=LengthSpec(mean=first)))
    assert below.verdict is Verdict.PASS
    assert above.verdict is Verdict.FAIL
    assert f"near {round(first, -2):,} tokens" in text_of(above)


def test_a_dominant_attention_within_the_targets_is_only_told() -> None:
    long_prompt = LengthSpec(mean=50_000)
    for target, verdict in ((TIGHT_TTFT, Verdict.FAIL), (LOOSE_TTFT, Verdict.INFORMATIVE)):
        spec = aiming_at(target, input_tokens=long_prompt)
        finding = one(a004_attention_dominates_prefill, make_current(), **spec)
        assert finding.verdict is verdict
    unmeasured = one(
        a004_attention_dominates_prefill, **aiming_at(TIGHT_TTFT, input_tokens=long_prompt)
    )
    assert unmeasured.verdict is Verdict.INFORMATIVE


# --- windows -----------------------------------------------------------------------------------


def test_windows_save_cache_beyond_their_length_and_nothing_below() -> None:
    shape = make_shape(**MISTRAL)
    long = one(a005_window_not_freed, shape=shape, **prompts(16_000, 384))
    assert long.verdict is Verdict.INFORMATIVE
    assert "75 %" in text_of(long)
    assert one(a005_window_not_freed, shape=shape, **prompts(2000)).verdict is Verdict.PASS
    assert_says_what_is_missing(one(a005_window_not_freed, **prompts(16_000)))


@pytest.mark.parametrize(("tokens", "verdict"), [(4551, Verdict.PASS), (4552, Verdict.INFORMATIVE)])
def test_a_tenth_of_the_cache_is_worth_telling(tokens: int, verdict: Verdict) -> None:
    # 1 - 4096 / tokens exceeds 0.1 from 4,552 tokens on.
    finding = one(a005_window_not_freed, shape=make_shape(**MISTRAL), **prompts(tokens - 16))
    assert finding.verdict is verdict
    assert finding.change is None


# --- simulated ---------------------------------------------------------------------------------


def test_nothing_is_said_about_the_attention_of_a_simulated_engine() -> None:
    spec = make_study_spec(engine="simulated", model=SimulatedModel(name="qwen3-32b-2xh100"))
    trial = make_current(loaded=make_loaded(attention="simulated"))
    evidence = make_evidence(trial, spec=spec, shape=None)
    assert_says_what_is_missing(through_engine("attention-eager", evidence))
