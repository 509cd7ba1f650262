"""GPUs are found by the names people and drivers use, and carry dense rates with a source."""

from __future__ import annotations

import pytest

from advisor.catalog import UnknownNameError, cpu_host, find_gpu, list_gpus


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("H100 SXM", "H100 SXM"),
        ("h100_sxm", "H100 SXM"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("nvidia h200", "H200 SXM"),
        ("b200_sxm", "B200"),
        ("gb200", "GB200 (per GPU)"),
        ("Tesla T4", "T4"),
        ("a100", "A100 SXM4 80GB"),
        ("cpu", "CPU server (DDR5, 8 channels)"),
    ],
)
def test_a_gpu_is_found_by_name_alias_or_driver_string(typed: str, name: str) -> None:
    assert find_gpu(typed).name == name


def test_an_unknown_gpu_lists_close_names() -> None:
    with pytest.raises(UnknownNameError) as caught:
        find_gpu("RTX 4091")
    assert "RTX 4090" in caught.value.suggestions
    assert "RTX 4090" in str(caught.value)


def test_every_row_has_a_source_memory_and_bandwidth() -> None:
    for gpu in list_gpus():
        assert gpu.source, gpu.name
        assert gpu.confidence in ("high", "medium", "low")
        assert gpu.memory_bytes > 0
        assert gpu.bandwidth_bytes_s > 1e10
        assert 0.85 * gpu.memory_bytes < gpu.usable_bytes <= 1.03 * gpu.memory_bytes, gpu.name
        assert gpu.dense_flops("bf16") > 0


def test_no_name_or_alias_means_two_gpus() -> None:
    for gpu in list_gpus():
        for alias in (gpu.name, *gpu.aliases):
            assert find_gpu(alias) is gpu, alias


@pytest.mark.parametrize(
    ("gpu", "sparse_fp8"), [("H100 SXM", 3958e12), ("L4", 485e12), ("RTX 5090", 838e12 * 2)]
)
def test_rates_are_dense_not_the_sparse_headline(gpu: str, sparse_fp8: float) -> None:
    assert find_gpu(gpu).dense_flops("fp8") < 0.6 * sparse_fp8


@pytest.mark.parametrize("gpu", ["H100 SXM", "H200 SXM", "L4", "L40S"])
def test_fp8_is_twice_bf16_on_hopper_and_ada(gpu: str) -> None:
    spec = find_gpu(gpu)
    assert spec.dense_flops("fp8") == pytest.approx(2 * spec.dense_flops("bf16"), rel=0.02)


def test_a_chip_without_fp8_runs_it_at_its_16_bit_rate() -> None:
    a100 = find_gpu("A100")
    assert not a100.supports("fp8")
    assert a100.dense_flops("fp8") == a100.dense_flops("bf16")


def test_a_cpu_host_is_a_device_with_its_own_memory_and_cores() -> None:
    host = cpu_host(memory_bytes=16 * 1024**3, cores=2)
    assert host.usable_bytes == 16 * 1024**3
    assert host.dense_flops("bf16") < find_gpu("cpu").dense_flops("bf16")


@pytest.mark.parametrize("name", [gpu.name for gpu in list_gpus()])
def test_every_chip_has_a_rate_for_float32(name: str) -> None:
    assert find_gpu(name).dense_flops("fp32") > 0
