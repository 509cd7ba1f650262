"""Rules on the experiments on the model itself: fails, passes, threshold, missing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from advisor.evidence import StudyEvidence
from advisor.recoverable import largest_losses
from advisor.rules.checks import (
    a001_attention_slower,
    k003_step_recoverable,
    m002_kv_cache_leak,
    p002_format_faster,
    p008_narrow_cache_worse,
    s002_padding_waste,
    v003_device_slower,
)
from advisor.rules.engine import evaluate
from advisor.rules.rule import Finding, Verdict
from advisor.rules.support_cache import fp8_cache_quality
from advisor.thresholds import MAX_PERPLEXITY_INCREASE
from gpuagent.wire import EngineSettings, Quantity, Samples
from gpuagent.wire.ceilings import Ceilings
from gpuagent.wire.inside import CacheDtype
from gpuagent.wire.trial import Measurements
from tests.builders import (
    START,
    make_current,
    make_device,
    make_evidence,
    make_kv_result,
    make_perplexity,
    make_trial,
    make_validity,
)
from tests.inside_builders import (
    make_attention_result,
    make_batching_result,
    make_cache_details,
    make_calibrate_result,
    make_ceilings,
    make_format,
    make_gemm,
    make_kernels_result,
    make_quantisation_result,
    make_variant,
)

CHECKS: dict[str, Callable[[StudyEvidence], list[Finding]]] = {
    rule.ID: rule.check
    for rule in (
        a001_attention_slower,
        k003_step_recoverable,
        p002_format_faster,
        p008_narrow_cache_worse,
        s002_padding_waste,
        v003_device_slower,
    )
}


def of(
    check: Callable[[StudyEvidence], list[Finding]], result: Measurements, **evidence: object
) -> list[Finding]:
    trial = make_trial(
        result, ordinal=2, role="diagnosis", settings=EngineSettings(dtype="float32")
    )
    return check(make_evidence(make_current(), trial, **evidence))


@pytest.mark.parametrize("rule_id", sorted(CHECKS))
def test_without_its_trial_a_rule_says_what_to_run(rule_id: str) -> None:
    (finding,) = CHECKS[rule_id](make_evidence(make_current()))
    assert finding.verdict is Verdict.NOT_APPLICABLE
    assert finding.missing


@pytest.mark.parametrize(
    "result",
    [
        make_kernels_result(),
        make_attention_result(),
        make_quantisation_result(),
        make_batching_result(),
    ],
    ids=lambda r: r.experiment,
)
def test_an_invalid_measurement_gives_no_advice(result: Measurements) -> None:
    trial = make_trial(result, ordinal=2, role="diagnosis", validity=make_validity("invalid"))
    found = [f for f in evaluate(make_evidence(make_current(), trial)) if f.rule_id in CHECKS]
    assert {f.verdict for f in found} == {Verdict.NOT_APPLICABLE}


# --- device ------------------------------------------------------------------------------------


def drift(now: Ceilings | None, **device: object) -> Finding:
    result = (
        make_calibrate_result()
        if now is None
        else make_calibrate_result().model_copy(update={"ceilings": now})
    )
    (finding,) = of(v003_device_slower.check, result, device=make_device(**device))
    return finding


EARLIER = make_ceilings(measured_at_s=START.timestamp() - 3600)


def test_the_first_calibration_only_informs() -> None:
    finding = drift(None)
    assert finding.verdict is Verdict.INFORMATIVE
    assert any("40.0 GB/s" in item.text.replace("\u00a0", " ") for item in finding.evidence)


@pytest.mark.parametrize(("read", "verdict"), [(36.1e9, Verdict.PASS), (35.9e9, Verdict.FAIL)])
def test_a_fall_of_more_than_a_tenth_fails(read: float, verdict: Verdict) -> None:
    finding = drift(make_ceilings(read=read), ceilings=make_ceilings(), ceilings_before=EARLIER)
    assert finding.verdict is verdict
    if verdict is Verdict.FAIL:
        assert "read bandwidth fell by 10" in finding.title


def test_another_device_or_a_later_calibration_is_no_comparison() -> None:
    other = make_ceilings(device="NVIDIA L4", measured_at_s=1.0, read=400e9)
    later = make_ceilings(measured_at_s=START.timestamp() + 10, read=400e9)
    assert drift(None, ceilings_before=other).verdict is Verdict.INFORMATIVE
    assert drift(None, ceilings=later).verdict is Verdict.INFORMATIVE


def test_without_a_common_ceiling_it_cannot_tell() -> None:
    earlier = make_ceilings(measured_at_s=1.0, entries=())
    assert drift(None, ceilings_before=earlier).verdict is Verdict.CANNOT_TELL


# --- kernels -----------------------------------------------------------------------------------


def test_a_compiled_step_that_is_faster_is_advised() -> None:
    failing, losses = of(k003_step_recoverable.check, make_kernels_result())
    assert failing.verdict is Verdict.FAIL
    assert "1.5" in failing.title
    assert failing.effect is not None
    assert failing.effect.change_frac == pytest.approx(-1 / 3, abs=0.02)
    assert losses.verdict is Verdict.INFORMATIVE
    assert 1 <= len(losses.evidence) <= 5


@pytest.mark.parametrize("compiled_s", [0.06, 0.058])
def test_a_step_within_noise_passes(compiled_s: float) -> None:
    finding = of(k003_step_recoverable.check, make_kernels_result(compiled_s=compiled_s))[0]
    assert finding.verdict is Verdict.PASS


def test_without_a_compiler_it_cannot_tell_and_says_why() -> None:
    finding = of(k003_step_recoverable.check, make_kernels_result(compiled_s=None))[0]
    assert finding.verdict is Verdict.CANNOT_TELL
    assert "no compiler" in finding.summary
    assert "CUDA" in finding.summary


def test_the_losses_are_those_of_the_loaded_dtype_sorted_and_recomputed_by_hand() -> None:
    losses = largest_losses(make_kernels_result())
    assert [loss.recoverable_s for loss in losses] == sorted(
        (loss.recoverable_s for loss in losses), reverse=True
    )
    # 60 products of 2 ms at 70 % of their ceiling.
    assert losses[0].step == "prefill"
    assert losses[0].recoverable_s == pytest.approx(60 * 2e-3 * 0.3, rel=0.05)
    assert not any("bfloat16" in loss.text for loss in losses)
    at_ceiling = make_kernels_result(gemms=(make_gemm(efficiency=1.1),), fused=(), compiled_s=None)
    assert largest_losses(at_ceiling) == ()


# --- attention ---------------------------------------------------------------------------------


def test_a_faster_exact_attention_is_advised_as_a_setting() -> None:
    failing, structures = of(a001_attention_slower.check, make_attention_result())
    assert failing.verdict is Verdict.FAIL
    assert failing.change is not None
    assert failing.change.settings == {"attention": "sdpa"}
    assert "4.5" in failing.title
    assert structures.verdict is Verdict.INFORMATIVE
    assert "keeps the quality" in structures.title
    assert any("perplexity 16,000" in item.text for item in structures.evidence)


@pytest.mark.parametrize(("per_token", "verdict"), [(23e-6, Verdict.PASS), (26e-6, Verdict.FAIL)])
def test_the_gain_must_pass_its_threshold(per_token: float, verdict: Verdict) -> None:
    result = make_attention_result(
        make_variant("eager", seconds_per_token=per_token), make_variant("sdpa")
    )
    assert of(a001_attention_slower.check, result)[0].verdict is verdict


def test_an_inexact_kernel_is_named_and_never_advised() -> None:
    result = make_attention_result(
        make_variant("eager", seconds_per_token=90e-6),
        make_variant("sdpa", seconds_per_token=89e-6),
        make_variant("fast", seconds_per_token=1e-6, error=1e-3),
    )
    first, inexact = of(a001_attention_slower.check, result)
    assert first.verdict is Verdict.PASS
    assert inexact.title.startswith("fast is less exact")


def test_with_one_implementation_alone_it_cannot_tell() -> None:
    result = make_attention_result(make_variant("eager"), make_variant("sdpa", reason="no kernel"))
    assert of(a001_attention_slower.check, result)[0].verdict is Verdict.CANNOT_TELL


# --- formats -----------------------------------------------------------------------------------


def test_the_fastest_format_that_keeps_quality_is_advised_and_the_worse_one_named() -> None:
    failing, worse = of(p002_format_faster.check, make_quantisation_result())
    assert failing.verdict is Verdict.FAIL
    assert "int8 weights" in failing.title
    assert failing.change is not None
    assert failing.change.text.startswith("Serve with int8 weights")
    assert any("190 of 200" in item.text for item in failing.evidence)
    assert worse.verdict is Verdict.INFORMATIVE
    assert "faster but worse" in worse.title


@pytest.mark.parametrize(
    ("perplexity", "verdict"),
    [(32.3, Verdict.FAIL), (32.4, Verdict.INFORMATIVE), (None, Verdict.CANNOT_TELL)],
)
def test_quality_decides(perplexity: float | None, verdict: Verdict) -> None:
    result = make_quantisation_result(
        make_format("float32", step_s=0.06, perplexity=32.0, reference=True),
        make_format(perplexity=perplexity),
    )
    (finding,) = of(p002_format_faster.check, result)
    assert finding.verdict is verdict


def test_a_slower_format_passes() -> None:
    result = make_quantisation_result(
        make_format("float32", step_s=0.02, reference=True), make_format(step_s=0.03)
    )
    (finding,) = of(p002_format_faster.check, result)
    assert finding.verdict is Verdict.PASS


def test_with_one_format_alone_the_rule_does_not_apply() -> None:
    result = make_quantisation_result(
        make_format("float32", reference=True), make_format(reason="no kernel")
    )
    (finding,) = of(p002_format_faster.check, result)
    assert finding.verdict is Verdict.NOT_APPLICABLE


# --- batching ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("saved", "verdict"), [(0.3, Verdict.FAIL), (0.08, Verdict.PASS)])
def test_padding_fails_from_a_tenth_of_the_time(saved: float, verdict: Verdict) -> None:
    padding, scaling = of(s002_padding_waste.check, make_batching_result(saved=saved))
    assert padding.verdict is verdict
    if verdict is Verdict.FAIL:
        assert "45" in padding.title
    assert scaling.verdict is Verdict.INFORMATIVE
    # Batch 8 at 1.3³ the step: 8 / 2.197.
    assert scaling.evidence[0].value == pytest.approx(8 / 1.3**3, rel=0.05)


def test_padding_that_was_not_timed_both_ways_is_open() -> None:
    finding = of(s002_padding_waste.check, make_batching_result(padding=()))[0]
    assert finding.verdict is Verdict.CANNOT_TELL


# --- cache -------------------------------------------------------------------------------------

# One cache of 512 tokens in the builder's result.
CACHE_BYTES = 512 * 23_040


@pytest.mark.parametrize(
    ("share", "verdict"),
    [(0.0, Verdict.PASS), (0.09, Verdict.PASS), (0.11, Verdict.FAIL), (1.0, Verdict.FAIL)],
)
def test_memory_that_rises_with_each_generation_is_a_leak(share: float, verdict: Verdict) -> None:
    result = make_kv_result(details=make_cache_details(leak_bytes=share * CACHE_BYTES))
    leak, forms = of(m002_kv_cache_leak.check, result)
    assert leak.verdict is verdict
    assert leak.evidence[0].value == pytest.approx(share, abs=1e-9)
    assert forms.verdict is Verdict.INFORMATIVE
    assert "384 of 512" in forms.title
    texts = [item.text for item in forms.evidence]
    assert any("optimum-quanto" in text for text in texts)
    assert any("static cache takes 0.90" in text for text in texts)


def test_without_a_memory_counter_a_leak_is_not_known() -> None:
    details = make_cache_details(held_bytes=Samples(values=()), held_reason="no counter")
    leak = of(m002_kv_cache_leak.check, make_kv_result(details=details))[0]
    assert leak.verdict is Verdict.CANNOT_TELL
    assert leak.summary == "no counter"


def test_an_engine_elsewhere_has_no_details() -> None:
    (finding,) = of(m002_kv_cache_leak.check, make_kv_result())
    assert finding.verdict is Verdict.NOT_APPLICABLE


# --- narrower caches ---------------------------------------------------------------------------


def with_float8(value: float | None, *, reason: str | None = None) -> Measurements:
    """A float8 cache of half the bytes; the model's own has a perplexity of 20."""
    details = make_cache_details()
    own = details.forms[0].model_copy(update={"perplexity": make_perplexity(20.0)})
    float8 = CacheDtype(
        dtype="float8_e4m3fn",
        seconds=Samples(values=(0.1,) * 5),
        cache_bytes=Quantity(value=5e6),
        perplexity=make_perplexity(value) if value is not None else None,
        perplexity_reason=reason,
    )
    forms = (own, *details.forms[1:])
    return make_kv_result(
        details=details.model_copy(update={"forms": forms, "dtypes": (details.dtypes[0], float8)})
    )


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        (19.9, Verdict.PASS),
        (20.0, Verdict.PASS),
        (20.0 * (1 + MAX_PERPLEXITY_INCREASE.value) * 0.9999, Verdict.PASS),
        (20.0 * (1 + MAX_PERPLEXITY_INCREASE.value) * 1.0001, Verdict.INFORMATIVE),
    ],
)
def test_a_narrower_cache_is_judged_by_its_perplexity(value: float, verdict: Verdict) -> None:
    (finding,) = of(p008_narrow_cache_worse.check, with_float8(value))
    assert finding.verdict is verdict
    (item,) = finding.evidence
    assert "float8_e4m3fn holds 50 % of the bytes of bfloat16" in item.text
    assert item.value == pytest.approx(value / 20 - 1)
    assert item.n == 2047


def test_a_narrower_cache_without_a_perplexity_cannot_be_judged() -> None:
    (finding,) = of(p008_narrow_cache_worse.check, with_float8(None, reason="random weights"))
    assert finding.verdict is Verdict.CANNOT_TELL
    assert finding.summary == "random weights"


def test_no_narrower_cache_ran() -> None:
    result = make_kv_result(details=make_cache_details())
    (finding,) = of(p008_narrow_cache_worse.check, result)
    assert finding.verdict is Verdict.INFORMATIVE
    assert not finding.evidence


def test_advice_on_an_fp8_cache_says_what_was_measured() -> None:
    def said(*results: Measurements) -> str | None:
        trials = [make_trial(r, ordinal=2 + i, role="diagnosis") for i, r in enumerate(results)]
        return fp8_cache_quality(make_evidence(make_current(), *trials))

    assert said() == said(with_float8(None)) == "check quality"
    assert said(with_float8(20.1)) == "perplexity +0.5% in trial 2"
    assert said(with_float8(30.0)) is None
