from __future__ import annotations

import pytest

from advisor.rules.checks.k001_decode_below_roofline import check
from advisor.rules.rule import Finding, Verdict
from advisor.units import NBSP
from gpuagent.wire import EngineSettings
from tests.builders import (
    make_baseline_result,
    make_current,
    make_device,
    make_environment,
    make_evidence,
    make_loaded,
    make_shape,
    make_study_spec,
    make_trial,
    make_validity,
    make_variant,
)
from tests.inside_builders import make_gemm, make_kernels_result

# 269 MB of weights and 0.7 MB of cache at 12 GB/s: the floor of a step is 22.5 ms.
FLOOR_S = (134_515_008 * 2 + 32 * 23_040) / 12e9


def only(evidence) -> Finding:  # type: ignore[no-untyped-def]
    (finding,) = check(evidence)
    return finding


def test_a_slow_step_fails_with_both_times() -> None:
    finding = only(make_evidence(make_current(decode_s=0.09)))
    assert finding.verdict is Verdict.FAIL
    assert finding.title.startswith("Close the gap to memory bandwidth: a decode step takes 4.0")
    assert finding.evidence[0].value == pytest.approx(FLOOR_S / 0.09, rel=0.01)
    assert "ms (median, n = 75); reading 257\u00a0MiB at 12.0\u00a0GB/s" in finding.evidence[0].text
    assert finding.effect is not None
    assert finding.effect.basis == "modelled"
    assert -1 < finding.effect.change_frac < 0


def test_a_step_near_the_floor_passes() -> None:
    assert only(make_evidence(make_current(decode_s=0.03))).verdict is Verdict.PASS


@pytest.mark.parametrize(("factor", "verdict"), [(0.97, "pass"), (1.05, "fail")])
def test_half_of_the_bandwidth_is_the_threshold(factor: float, verdict: str) -> None:
    assert only(make_evidence(make_current(decode_s=2 * FLOOR_S * factor))).verdict == verdict


def test_faster_than_the_floor_is_explained() -> None:
    finding = only(make_evidence(make_current(decode_s=0.01)))
    assert finding.verdict is Verdict.PASS
    assert "processor's cache" in finding.title


def test_batching_is_told_beside_it() -> None:
    finding = only(make_evidence(make_current(decode_s=0.09)))
    assert finding.evidence[1].text.startswith("Batch 4 takes 1.3")


@pytest.mark.parametrize(
    ("evidence", "missing"),
    [
        (make_evidence(), "A valid baseline of the current settings"),
        (
            make_evidence(make_trial(make_baseline_result(), validity=make_validity("invalid"))),
            "A valid baseline of the current settings",
        ),
        (
            make_evidence(make_current(read_bandwidth_bytes_s=None)),
            "The read bandwidth of the device (not measured)",
        ),
        (make_evidence(make_current(cells=())), "Decode steps at batch 1"),
        (
            make_evidence(
                make_current(), spec=make_study_spec(current=EngineSettings(kv_cache=False))
            ),
            "A baseline with the KV cache on: without it a step is a prefill",
        ),
    ],
)
def test_what_is_missing_is_said(evidence, missing: str) -> None:  # type: ignore[no-untyped-def]
    finding = only(evidence)
    assert finding.verdict is Verdict.NOT_APPLICABLE
    assert finding.missing == missing


def test_the_change_follows_the_device() -> None:
    slow = make_baseline_result(decode_s=0.2)
    threads = make_trial(slow, environment=make_environment(threads=8))
    finding = only(make_evidence(threads))
    assert finding.change is not None
    assert finding.change.settings == {"threads": 2}
    narrow = only(make_evidence(make_trial(slow)))
    assert narrow.change is not None
    assert narrow.change.settings == {"dtype": "float32"}
    wide = only(make_evidence(make_trial(make_baseline_result("float32", decode_s=0.3))))
    assert wide.change is not None
    assert wide.change.settings == {}
    gpu = only(make_evidence(make_trial(slow), device=make_device("gpu")))
    assert gpu.change is not None
    assert "CUDA graph" in gpu.change.text


def test_an_embedding_table_of_its_own_is_not_read_every_step() -> None:
    tied = only(make_evidence(make_current(decode_s=0.09)))
    untied = only(
        make_evidence(make_current(decode_s=0.09), shape=make_shape(tie_word_embeddings=False))
    )
    assert tied.evidence[0].value is not None
    assert untied.evidence[0].value is not None
    assert untied.evidence[0].value < tied.evidence[0].value


def test_without_a_shape_all_stored_weights_count() -> None:
    assert only(make_evidence(make_current(decode_s=0.09), shape=None)).verdict is Verdict.FAIL


def test_float32_is_not_proposed_again_after_it_brought_nothing() -> None:
    slower = make_variant(itl_s=0.2, ttft_s=0.3)
    finding = only(make_evidence(make_current(decode_s=0.2), slower))
    assert finding.change is not None
    assert finding.change.settings == {}
    faster = only(make_evidence(make_current(decode_s=0.2), make_variant()))
    assert faster.change is not None
    assert faster.change.settings == {"dtype": "float32"}


SLOW_FLOAT32 = make_trial(
    make_baseline_result("float32", decode_s=0.12),
    role="current",
    settings=EngineSettings(dtype="float32"),
)


def with_kernels(eager_s: float, dtype: str = "float32") -> Finding:
    """Products of 28 ms, 5.6 ms at their ceilings, in a step of `eager_s`."""
    gemms = (make_gemm(dtype=dtype), make_gemm("lm_head", seconds=0.01, per_step=1, dtype=dtype))
    result = make_kernels_result(eager_s=eager_s, gemms=gemms, model=make_loaded(dtype))
    kernels = make_trial(result, ordinal=5, role="diagnosis")
    return only(make_evidence(SLOW_FLOAT32, kernels))


def test_where_the_gap_lies_is_told_from_the_kernels_of_the_same_dtype() -> None:
    finding = with_kernels(0.08)
    item = finding.evidence[-1]
    assert item.text.startswith(f"Of a step of 79.8{NBSP}ms in trial 5, 5.60{NBSP}ms are")
    assert f"22.3{NBSP}ms what they take above them (20{NBSP}% of the ceiling)" in item.text
    assert item.text.endswith("lie between them (1,675 operators, 1,220 allocations)")
    assert item.value == pytest.approx((0.08 - 0.028) / 0.08, rel=0.03)
    assert finding.change is not None
    assert finding.change.text.startswith("Compile the decode step")
    assert with_kernels(0.08, "bfloat16").evidence == finding.evidence[:-1]


def test_a_gap_inside_of_the_products_is_not_compiled_away() -> None:
    finding = with_kernels(0.035)
    assert finding.change is not None
    assert finding.change.text.startswith("Use weights of fewer bytes")


def test_products_that_take_longer_than_the_step_say_nothing() -> None:
    finding = with_kernels(0.02)
    assert len(finding.evidence) == 2
    assert finding.change is not None
    assert finding.change.text.startswith("Profile a decode step")
