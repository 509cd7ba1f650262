from __future__ import annotations

import pytest

from advisor.rules.checks.m001_kv_cache_ineffective import check
from advisor.rules.rule import Verdict
from gpuagent.wire import EngineSettings
from tests.builders import (
    make_baseline_result,
    make_current,
    make_evidence,
    make_kv_trial,
    make_shape,
    make_study_spec,
    make_trial,
    make_validity,
)

OFF = EngineSettings(dtype="bfloat16", kv_cache=False)
SPEC_OFF = make_study_spec(current=OFF)


def test_cache_off_fails_with_what_it_costs() -> None:
    (finding,) = check(make_evidence(make_kv_trial(), spec=SPEC_OFF))
    assert finding.verdict is Verdict.FAIL
    assert finding.title.startswith("Switch the KV cache on: decoding at 512 tokens takes 17")
    assert finding.change is not None
    assert finding.change.settings == {"kv_cache": True}
    assert finding.effect is not None
    assert finding.effect.change_frac == pytest.approx(1 / 17.3 - 1, abs=0.01)
    assert finding.evidence[0].n == 5
    assert "95\u00a0% interval" in finding.evidence[0].text


def test_cache_off_measured_by_two_baselines_alone() -> None:
    current = make_trial(make_baseline_result(itl_s=0.6), settings=OFF)
    on = make_trial(
        make_baseline_result(itl_s=0.04),
        ordinal=2,
        role="variant",
        settings=EngineSettings(dtype="bfloat16"),
    )
    (finding,) = check(make_evidence(current, on, spec=SPEC_OFF))
    assert finding.verdict is Verdict.FAIL
    assert finding.gain == pytest.approx(1.0)
    assert finding.evidence[0].trial_id == on.trial_id


def test_cache_off_without_measurement_is_not_applicable() -> None:
    (finding,) = check(make_evidence(make_current(), spec=SPEC_OFF))
    assert finding.verdict is Verdict.NOT_APPLICABLE
    assert finding.missing == "A kv_cache trial, or a baseline with the cache on"


def test_cache_off_that_costs_little_is_not_called_a_fault() -> None:
    (finding,) = check(make_evidence(make_kv_trial(uncached_s_per_token=0.00001), spec=SPEC_OFF))
    assert finding.verdict is Verdict.CANNOT_TELL


def test_a_working_cache_passes() -> None:
    (finding,) = check(make_evidence(make_current(), make_kv_trial()))
    assert finding.verdict is Verdict.PASS
    assert "512 tokens" in finding.title


@pytest.mark.parametrize(("uncached_s", "verdict"), [(0.0121, "pass"), (0.0117, "informative")])
def test_the_threshold_is_the_ratio_at_the_longest_context(uncached_s: float, verdict: str) -> None:
    # cached 60 ms; 1.2 × is 72 ms: 60 + 512 × per token.
    trial = make_kv_trial(cached_growth=1.0, uncached_s_per_token=uncached_s / 512)
    assert check(make_evidence(trial))[0].verdict == verdict


def test_a_cache_that_grows_like_recomputing_fails() -> None:
    trial = make_kv_trial(cached_growth=8.0, uncached_s_per_token=0.0009)
    (finding,) = check(make_evidence(trial))
    assert finding.verdict is Verdict.FAIL
    assert finding.title.startswith("Repair the KV cache")
    assert len(finding.evidence) == 2
    assert finding.change is not None


def test_eager_attention_is_named_as_the_knob_to_try() -> None:
    spec = make_study_spec(current=EngineSettings(attention="eager"))
    trial = make_kv_trial(cached_growth=8.0, uncached_s_per_token=0.0009)
    (finding,) = check(make_evidence(trial, spec=spec))
    assert finding.change is not None
    assert finding.change.settings == {"attention": "sdpa"}


def test_short_contexts_prove_nothing() -> None:
    trial = make_kv_trial(contexts=(32, 64), uncached_s_per_token=0.0)
    (finding,) = check(make_evidence(trial))
    assert finding.verdict is Verdict.CANNOT_TELL
    assert finding.missing == "A kv_cache trial up to 256 tokens or more"


def test_without_a_diagnosis_it_is_not_applicable() -> None:
    (finding,) = check(make_evidence(make_current()))
    assert finding.verdict is Verdict.NOT_APPLICABLE


def test_points_without_uncached_steps_are_missing_evidence() -> None:
    (finding,) = check(make_evidence(make_kv_trial(uncached_s_per_token=None)))
    assert finding.verdict is Verdict.NOT_APPLICABLE


def test_an_invalid_diagnosis_is_not_used() -> None:
    trial = make_kv_trial()
    assert trial.result is not None
    invalid = make_trial(
        trial.result.measurements, ordinal=2, role="diagnosis", validity=make_validity("invalid")
    )
    assert check(make_evidence(invalid))[0].verdict is Verdict.NOT_APPLICABLE


def test_cache_bytes_that_differ_from_the_formula_are_told() -> None:
    findings = check(make_evidence(make_kv_trial(bytes_per_token=46_080)))
    assert [f.verdict for f in findings] == [Verdict.PASS, Verdict.INFORMATIVE]
    assert findings[1].title == (
        "The cache takes 45.0\u00a0KiB per token where the formula says 22.5\u00a0KiB"
    )


@pytest.mark.parametrize(("factor", "count"), [(1.04, 1), (1.06, 2), (0.94, 2)])
def test_five_percent_of_cache_bytes_are_tolerated(factor: float, count: int) -> None:
    assert len(check(make_evidence(make_kv_trial(bytes_per_token=23_040 * factor)))) == count


def test_without_a_shape_the_bytes_are_not_judged() -> None:
    assert len(check(make_evidence(make_kv_trial(bytes_per_token=1.0), shape=None))) == 1
    wide = make_shape(num_key_value_heads=9)
    assert len(check(make_evidence(make_kv_trial(), shape=wide))) == 2
