"""Real traces: figures equal the independent reference, verdicts are the known answers."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import pytest

from gpuagent.traces.analyse import analyse_file
from gpuagent.traces.report import TraceReport
from tests.shared_data import SHARED, needs_shared

pytestmark = needs_shared
FOLDER = SHARED / "data" / "traces" if SHARED is not None else None
FIGURES: dict[str, Any] = (
    json.loads((FOLDER / "figures.json").read_text("utf-8")) if FOLDER is not None else {}
)
TIMELINES = [
    name
    for name in FIGURES
    if FOLDER is not None and (FOLDER / name).exists() and FIGURES[name]["exact"].get("per_device")
]
POINT = 1e-4  # 0.01 percentage points


@lru_cache(maxsize=32)
def report_of(name: str) -> TraceReport:
    assert FOLDER is not None
    return analyse_file(FOLDER / name)


@pytest.mark.parametrize("name", TIMELINES)
def test_times_equal_the_reference_within_a_hundredth_of_a_point(name: str) -> None:
    report = report_of(name)
    expected = FIGURES[name]["exact"]["per_device"]
    assert [device["id"] for device in report.devices] == [row["device"] for row in expected]
    for device, row in zip(report.devices, expected, strict=True):
        window = row["span_us"]
        assert device["window_s"] * 1e6 == pytest.approx(window, abs=0.01)
        for key, reference in (
            ("busy_frac", row["busy_us"]),
            ("idle_frac", row["idle_us"]),
            ("compute_frac", row["compute_union_us"]),
            ("comm_frac", row["comm_union_us"]),
            ("exposed_comm_frac", row["exposed_comm_us"]),
        ):
            assert device[key] == pytest.approx(reference / window, abs=POINT), key
        assert device["gpu_events"] == row["gpu_events"]
        assert device["kernels"] == row["kernels"]
        assert device["largest_gap_s"] * 1e6 == pytest.approx(row["largest_gap_us"], abs=0.01)
        assert sum(device["idle_causes"].values()) == pytest.approx(device["idle_frac"])


@pytest.mark.parametrize("name", TIMELINES)
def test_api_counts_and_times_equal_the_reference(name: str) -> None:
    api = report_of(name).api or {}
    exact = FIGURES[name]["exact"]
    for group in ("api_sync", "api_alloc_free", "api_launch", "api_memcpy"):
        for call, row in exact[group].items():
            assert api[call]["count"] == row["n"], call
            assert api[call]["time_s"] * 1e6 == pytest.approx(row["us"], abs=0.11), call


@pytest.mark.parametrize("name", TIMELINES)
def test_linking_graph_and_step_counts_equal_the_reference(name: str) -> None:
    host = report_of(name).host
    exact = FIGURES[name]["exact"]
    if host is None or host["launches"] is None or "graph_launches" not in exact:
        pytest.skip("the reference holds no launch figures for this file")
    launches = host["launches"]
    assert launches["graph_calls"] == exact["graph_launches"]
    assert launches["max_kernels_per_launch"] == exact["max_kernels_per_correlation"]
    linked = 100 * launches["events_linked_frac"]
    assert linked == pytest.approx(exact["kernels_with_launch_event_pct"], abs=0.01)


@pytest.mark.parametrize("name", TIMELINES)
def test_little_gpu_time_stays_without_a_class(name: str) -> None:
    classes = report_of(name).kernel_classes or {}
    assert classes.get("other", 0.0) + classes.get("triton", 0.0) < 0.05
    assert sum(classes.values()) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("name", "bottleneck"),
    [
        ("tl-h100-bert-small.json.gz", "launch_bound"),
        ("tl-b200-eager.json.gz", "launch_bound"),
        ("tl-h100-timesformer.json.gz", "busy"),
        ("hta-df-index.json.gz", "launch_bound"),
        ("hta-diff-control.json.gz", "communication_bound"),
        ("hta-alexnet-train.json.gz", "initialisation"),
        ("tl-vllm-decode-fullgraph.json.gz", "bandwidth_bound"),
        ("tl-sglang-qwen3-8b-decode.json.gz", "cannot_tell"),
        ("nsysai-healthy_1pct.sqlite", "busy"),
        ("hta-cpu-only.json.gz", "cannot_tell"),
        ("hta-distinfo-missing.json.gz", "cannot_tell"),
        ("hta-cupti-counters.json.gz", "cannot_tell"),
        ("nsysstats-rtx5090-dsocr-decode-cuda_gpu_kern_sum.csv", "bandwidth_bound"),
    ],
)
def test_the_verdict_is_the_known_answer(name: str, bottleneck: str) -> None:
    assert report_of(name).verdict.bottleneck == bottleneck


@pytest.mark.parametrize("name", ["nsysai-healthy_1pct.sqlite", "tl-vllm-decode-fullgraph.json.gz"])
def test_healthy_traces_yield_no_finding(name: str) -> None:
    assert report_of(name).findings == ()


def test_the_convnet_shows_idle_exposed_communication_and_fp32() -> None:
    codes = [finding.code for finding in report_of("hta-df-index.json.gz").findings]
    assert codes == ["launch_overhead", "communication", "tensor_cores"]


def test_custom_all_reduce_counts_as_communication() -> None:
    classes = report_of("tl-b200-eager.json.gz").kernel_classes or {}
    assert classes["comm"] == pytest.approx(0.1836, abs=1e-3)


def test_unfused_attention_is_recognised_from_softmax_between_matrix_products() -> None:
    report = report_of("tl-h100-timesformer.json.gz")
    assert report.findings[0].code == "unfused_attention"
    assert "43.4 %" in report.verdict.sentence


def test_step_labels_give_the_phase_split() -> None:
    decode = report_of("tl-vllm-decode-fullgraph.json.gz").phases
    assert [(row["phase"], row["query_tokens"], row["kv_tokens"]) for row in decode] == [
        ("decode", 32, 55086)
    ]
    prefill = report_of("tl-b200-eager.json.gz").phases
    assert [(row["phase"], row["query_tokens"]) for row in prefill] == [("prefill", 888)]


def test_the_decode_summary_shows_tiny_kernels_and_matrix_vector_products() -> None:
    report = report_of("nsysstats-rtx5090-dsocr-decode-cuda_gpu_kern_sum.csv")
    assert [finding.code for finding in report.findings] == ["matrix_vector", "tiny_kernels"]
    assert report.idle_frac is None
    classes = report.kernel_classes or {}
    assert classes["gemv"] == pytest.approx(0.496, abs=0.005)


def test_the_fullgraph_replay_is_attributed_through_one_launch() -> None:
    host = report_of("tl-vllm-decode-fullgraph.json.gz").host
    assert host is not None
    assert host["launches"]["kernels_in_graphs"] == 421
