"""Name rules: every row of the table has examples and wins them; spelling does not matter."""

from __future__ import annotations

from typing import Any

import pytest

from gpuagent.traces.kernel_names import (
    CLASS_LABELS,
    Kernel,
    canonical,
    kernel_of,
    rule_table,
    short_name,
    tensor_core_of,
)

TABLE = rule_table()
CLASS_ROWS = [(row["id"], row) for row in TABLE["classes"]]
CORE_ROWS = [(row["id"], row) for row in TABLE["tensor_cores"]]


@pytest.mark.parametrize(("rule", "row"), CLASS_ROWS, ids=[name for name, _ in CLASS_ROWS])
def test_each_class_rule_wins_its_examples(rule: str, row: dict[str, Any]) -> None:
    assert row["examples"]
    for example in row["examples"]:
        found = kernel_of(example)
        assert (found.rule, found.kernel_class) == (rule, row["class"]), example


@pytest.mark.parametrize(("rule", "row"), CORE_ROWS, ids=[name for name, _ in CORE_ROWS])
def test_each_tensor_core_rule_wins_its_examples(rule: str, row: dict[str, Any]) -> None:
    assert row["examples"]
    for example in row["examples"]:
        assert tensor_core_of(example) == (row["verdict"], rule), example


def test_the_table_is_well_formed() -> None:
    rows = TABLE["classes"] + TABLE["tensor_cores"]
    assert len({row["id"] for row in rows}) == len(rows)
    assert {row["class"] for row in TABLE["classes"]} <= set(CLASS_LABELS)
    assert {row["evidence"] for row in rows} <= {"T", "P", "K"}
    allowed = {"id", "class", "verdict", "starts", "any", "word", "none", "regex", "evidence"}
    for row in rows:
        assert set(row) <= allowed | {"examples"}, row["id"]
        for key in ("any", "none", "starts"):
            assert all(token == token.lower() for token in row.get(key, ())), row["id"]


@pytest.mark.parametrize(
    ("name", "kernel_class", "tensor_core"),
    [
        # what peers get wrong
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_ffma__5x_cublas", "gemm", "no"),
        ("nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NTT", "gemm", "yes"),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float>", "gemm", "unknown"),
        ("void gemv2T_kernel_val<int, int, float>", "gemv", "not_applicable"),
        ("void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>", "comm", "not_applicable"),
        # substrings that must not decide
        ("void myns::prefill_mask_kernel<float>", "other", "not_applicable"),
        ("setTensorProperties_kernel", "other", "not_applicable"),
        ("void fbgemm_gpu::permute_2D_data_kernel<false>", "embedding", "not_applicable"),
        # mangled
        ("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16b", "norm", "not_applicable"),
        ("", "other", "not_applicable"),
    ],
)
def test_known_traps(name: str, kernel_class: str, tensor_core: str) -> None:
    found = kernel_of(name)
    assert (found.kernel_class, found.tensor_core) == (kernel_class, tensor_core)


def test_nsight_and_kineto_spellings_are_one_name() -> None:
    nsight = (
        "void at::native::<unnamed>::vectorized_layer_norm_kernel<float, float, (bool)0>"
        "(int, T2, const T1 *, T2 &)"
    )
    kineto = (
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>"
        "(int, T2, const T1*, T2&)"
    )
    assert canonical(nsight) == canonical(kineto)
    lambdas = "f<(int)128, at::x::[lambda(float) (instance 1)]>::operator ()()"
    assert canonical(lambdas) == "f<128, at::x::{lambda(float)#1}>::operator()()"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void at::native::elementwise_kernel<128, 4>(int)", "at::native::elementwise_kernel"),
        ("std::enable_if<!T7, void>::type internal::gemvx::kernel<int>", "internal::gemvx::kernel"),
        ("Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pinned -> Device)"),
        ("(anonymous namespace)::f(int)", "f"),
        ("<script>alert(1)</script>", "<script>alert"),
    ],
)
def test_short_names_drop_arguments(name: str, short: str) -> None:
    assert short_name(name) == short


def test_short_names_are_bounded() -> None:
    assert len(short_name("x" * 5000)) == 80


def test_a_hostile_name_is_classified_quickly() -> None:
    for name in ("_" * 100_000, "triton_poi_fused" + "_add_copy" * 20_000, "a(" * 50_000):
        assert isinstance(kernel_of(name), Kernel)
