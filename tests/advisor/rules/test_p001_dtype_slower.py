from __future__ import annotations

import pytest

from advisor.rules.checks.p001_dtype_slower import check
from advisor.rules.rule import Verdict
from gpuagent.wire import EngineSettings, SlaTarget
from tests.builders import (
    make_baseline_result,
    make_current,
    make_device,
    make_evidence,
    make_study_spec,
    make_trial,
    make_validity,
    make_variant,
    make_verification,
)


def test_a_faster_dtype_fails_the_current_one() -> None:
    current, variant = make_current(itl_s=0.06), make_variant(itl_s=0.0316, ttft_s=0.08)
    (finding,) = check(make_evidence(current, variant))
    assert finding.verdict is Verdict.FAIL
    assert finding.title == ("Serve in float32: bfloat16 decodes 1.9\u00a0× slower on this CPU")
    assert finding.change is not None
    assert finding.change.settings == {"dtype": "float32"}
    assert finding.effect is not None
    assert (finding.effect.metric, finding.effect.better) == ("e2e_s", True)
    assert finding.effect.change_frac == pytest.approx(-0.47, abs=0.02)
    assert finding.effect.low is not None
    assert finding.effect.low < finding.effect.change_frac
    assert (finding.effect.from_trial, finding.effect.to_trial) == (
        current.trial_id,
        variant.trial_id,
    )
    assert finding.gain == pytest.approx(1.0)
    assert "measured once" in finding.confidence_reason
    assert len(finding.evidence) == 3
    assert "Perplexity 18.00 becomes 18.00" in finding.summary


def test_on_a_gpu_the_device_is_named() -> None:
    (finding,) = check(make_evidence(make_current(), make_variant(), device=make_device("gpu")))
    assert "on this GPU" in finding.title


def test_the_fastest_dtype_passes() -> None:
    (finding,) = check(
        make_evidence(make_current(itl_s=0.03, ttft_s=0.08), make_variant(itl_s=0.06, ttft_s=0.15))
    )
    assert finding.verdict is Verdict.PASS
    assert finding.title == "bfloat16 is the fastest dtype measured here (against float32)"


@pytest.mark.parametrize(("factor", "verdict"), [(0.97, "pass"), (0.92, "fail")])
def test_five_percent_are_noise_between_two_trials(factor: float, verdict: str) -> None:
    variant = make_variant(itl_s=0.06 * factor, ttft_s=0.15 * factor)
    (finding,) = check(make_evidence(make_current(), variant))
    assert finding.verdict == verdict
    if verdict == "pass":
        assert finding.title == "bfloat16 and float32 answer equally fast within noise"


def test_lost_quality_forbids_the_advice() -> None:
    (finding,) = check(make_evidence(make_current(perplexity=18.0), make_variant(perplexity=18.5)))
    assert finding.verdict is Verdict.INFORMATIVE
    assert "not recommended: perplexity rises by 2.8\u00a0%" in finding.title
    assert finding.change is None


@pytest.mark.parametrize(("perplexity", "verdict"), [(18.17, "fail"), (18.19, "informative")])
def test_one_percent_of_perplexity_is_the_limit(perplexity: float, verdict: str) -> None:
    findings = check(make_evidence(make_current(), make_variant(perplexity=perplexity)))
    assert findings[0].verdict == verdict


def test_unmeasured_quality_is_said() -> None:
    (finding,) = check(make_evidence(make_current(perplexity=None), make_variant(perplexity=None)))
    assert finding.verdict is Verdict.FAIL
    assert "Quality was not measured." in finding.summary


def test_a_memory_target_forbids_the_advice() -> None:
    goal = SlaTarget(metric="memory_bytes", statistic="peak", limit=1.2e9)
    evidence = make_evidence(
        make_current(peak_memory_bytes=1.1e9),
        make_variant(peak_memory_bytes=1.4e9),
        spec=make_study_spec(targets=(goal,)),
    )
    (finding,) = check(evidence)
    assert finding.verdict is Verdict.INFORMATIVE
    assert "over the target" in finding.title


def test_of_several_faster_dtypes_the_fastest_allowed_one_is_taken() -> None:
    fastest = make_variant("float16", ordinal=4, itl_s=0.02, ttft_s=0.05, perplexity=30.0)
    findings = check(make_evidence(make_current(), make_variant(), fastest))
    assert [f.verdict for f in findings] == [Verdict.INFORMATIVE, Verdict.FAIL]
    assert findings[1].change is not None
    assert findings[1].change.settings == {"dtype": "float32"}


def test_an_ab_trial_raises_the_confidence_or_withdraws_the_advice() -> None:
    verified = check(make_evidence(make_current(), make_variant(), make_verification(ratio=0.5)))
    assert verified[0].confidence == "high"
    refuted = check(
        make_evidence(make_current(), make_variant(), make_verification(ratio=1.3, ttft_ratio=1.3))
    )
    assert refuted[0].verdict is Verdict.INFORMATIVE
    assert "Contradicted by A/B" in refuted[0].title


@pytest.mark.parametrize(
    ("trials", "missing"),
    [
        ((), "A valid baseline of the current settings"),
        ((make_variant(),), "A valid baseline of the current settings"),
        ((make_current(),), "A baseline that differs in nothing but its dtype"),
        (
            (make_trial(make_baseline_result(), validity=make_validity("invalid")), make_variant()),
            "A valid baseline of the current settings",
        ),
        (
            (
                make_current(),
                make_trial(
                    make_baseline_result("float32"),
                    ordinal=2,
                    role="variant",
                    settings=EngineSettings(dtype="float32", kv_cache=False),
                ),
            ),
            "A baseline that differs in nothing but its dtype",
        ),
    ],
)
def test_what_is_missing_is_said(trials, missing: str) -> None:  # type: ignore[no-untyped-def]
    (finding,) = check(make_evidence(*trials))
    assert finding.verdict is Verdict.NOT_APPLICABLE
    assert finding.missing == missing


def test_without_requests_the_decode_step_decides() -> None:
    (finding,) = check(make_evidence(make_current(requests=()), make_variant(requests=())))
    assert finding.verdict is Verdict.FAIL
    assert finding.effect is not None
    assert finding.effect.metric == "itl_s"
