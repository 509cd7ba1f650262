"""Copies, steps and phases, fusion runs, tiny kernels, tensor cores, CPU work, timeline."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuagent.traces.analyse import analyse_file
from gpuagent.traces.copies import direction_of
from gpuagent.traces.report import TraceReport
from gpuagent.traces.thresholds import link_gb_s
from gpuagent.traces.timeline import MOST_BARS
from tests.gpuagent.traces.make import ADD, GEMM, PAGEABLE, PINNED, SGEMM, TO_HOST, Kineto


def report_of(trace: Kineto, folder: Path) -> TraceReport:
    return analyse_file(trace.write(folder / "t.json"))


def filled(count: int = 30) -> Kineto:
    trace = Kineto()
    for index in range(count):
        trace.launched(GEMM, 100.0 * index, 99, call=100.0 * index - 200)
    return trace


# --- copies ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "HtoD"),
        ("[CUDA memcpy Device-to-Host]", "DtoH"),
        ("[CUDA memcpy DtoD]", "DtoD"),
        ("Memcpy PtoP (Device -> Device)", "PtoP"),
        ("CopyHostToDevice", "other"),
    ],
)
def test_directions_are_read_from_any_spelling(name: str, direction: str) -> None:
    assert direction_of(name) == direction


def test_copies_are_split_by_direction_with_rate_and_pageable_time(tmp_path: Path) -> None:
    trace = filled()
    size = 4 << 20
    for name, start, length in ((PINNED, 5000, 100), (PAGEABLE, 6000, 400), (TO_HOST, 7000, 200)):
        trace.event("gpu_memcpy", name, start, length, device=0, stream=9, bytes=size)
    rows = {row["direction"]: row for row in report_of(trace, tmp_path).copies}
    assert rows["HtoD"]["count"] == 2
    assert rows["HtoD"]["pageable_s"] == pytest.approx(400e-6)
    assert rows["HtoD"]["gb_s"] == pytest.approx(2 * size / 500e-6 / 1e9)
    assert rows["DtoH"]["link_frac"] == pytest.approx(size / 200e-6 / 1e9 / 50.0)


def test_copies_without_a_size_have_no_rate(tmp_path: Path) -> None:
    trace = filled()
    trace.event("gpu_memcpy", "Memcpy HtoD (Host -> Device)", 5000, 100, device=0, stream=9)
    row = report_of(trace, tmp_path).copies[0]
    assert row["gb_s"] is None
    assert row["size_bytes"] is None
    assert row["pageable_s"] is None


def test_links_of_unknown_gpus_are_unknown() -> None:
    assert link_gb_s("NVIDIA H100 80GB HBM3") == 50.0
    assert link_gb_s("NVIDIA L40S") == 25.0
    assert link_gb_s("Some Accelerator") is None
    assert link_gb_s(None) is None


# --- steps and phases --------------------------------------------------------------------------


def test_steps_tile_the_run_from_start_to_start(tmp_path: Path) -> None:
    trace = filled()
    for number, start in enumerate((0, 1000, 2000)):
        trace.step(number, start, 900)
    steps = report_of(trace, tmp_path).steps
    assert steps is not None
    assert steps["count"] == 3
    assert steps["p50_s"] == pytest.approx(1000e-6)
    assert steps["p99_s"] is None  # three steps say nothing about the hundredth


@pytest.mark.parametrize(
    ("label", "phase", "query", "keys"),
    [
        ("execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55sqsq32)", "decode", 32, 55),
        ("execute_context_1(888_788544)_generation_0(0)", "prefill", 888, 788544),
        ("execute_3_context_1(sq8sk8)_generation_2(sq2sk90)", "mixed", 10, 98),
        ("step[DECODE bs=32]", "decode", 32, None),
        ("step[EXTEND bs=2 toks=512]", "prefill", 512, None),
        ("prefill", "prefill", None, None),
    ],
)
def test_phases_come_from_step_labels(
    label: str, phase: str, query: int | None, keys: int | None, tmp_path: Path
) -> None:
    trace = filled()
    trace.event("user_annotation", label, -250, 1000)
    rows = report_of(trace, tmp_path).phases
    assert [(r["phase"], r["query_tokens"], r["kv_tokens"]) for r in rows] == [(phase, query, keys)]


def test_gpu_time_belongs_to_the_phase_that_launched_it(tmp_path: Path) -> None:
    trace = Kineto()
    for index in range(10):  # launched in the prefill range, run after it
        trace.launched(GEMM, 1000 + 100 * index, 100, call=10 + index)
    for index in range(10):
        trace.launched(ADD, 2000 + 50 * index, 50, call=510 + index)
    trace.event("user_annotation", "prefill", 0, 400)
    trace.event("user_annotation", "decode", 500, 400)
    rows = {row["phase"]: row for row in report_of(trace, tmp_path).phases}
    assert rows["prefill"]["gpu_s"] == pytest.approx(1000e-6)
    assert rows["decode"]["gpu_s"] == pytest.approx(500e-6)
    assert rows["prefill"]["gpu_frac"] == pytest.approx(2 / 3)


def test_nested_labels_of_one_phase_count_once(tmp_path: Path) -> None:
    trace = filled()
    trace.event("user_annotation", "decode", -300, 5000)
    trace.event("user_annotation", "decode", -200, 100)
    row = report_of(trace, tmp_path).phases[0]
    assert row["steps"] == 1
    assert row["gpu_frac"] == pytest.approx(1.0)


# --- kernels -----------------------------------------------------------------------------------


def test_repeated_runs_of_light_kernels_are_fusion_candidates(tmp_path: Path) -> None:
    norm = "void vllm::rms_norm_kernel<float>(float*)"
    trace, at = Kineto(), 0.0
    for _ in range(50):
        for name, length in ((GEMM, 20), (ADD, 5), (norm, 5), (ADD, 5)):
            trace.launched(name, at, length, call=at - 1000)
            at += length + 1
    candidate = report_of(trace, tmp_path).fusion[0]
    assert candidate["repeats"] == 50
    assert len(candidate["kernels"]) == 3
    assert candidate["saved_s"] == pytest.approx(50 * 2 * (1e-6 + 1e-6))
    assert candidate["saved_most_s"] == pytest.approx(candidate["saved_s"] + 50 * 10e-6)


def test_runs_inside_a_graph_have_no_launches_left_to_save(tmp_path: Path) -> None:
    trace, at = Kineto(), 0.0
    for number in range(5):
        trace.call("cudaGraphLaunch", at - 50, 10, correlation=number)
        for name in (GEMM, ADD, ADD) * 5:
            trace.kernel(name, at, 5, correlation=number)
            at += 5
    candidate = report_of(trace, tmp_path).fusion[0]
    assert candidate["in_graph"]
    assert candidate["saved_s"] == 0.0


def test_tiny_kernels_are_counted_by_number_and_by_time(tmp_path: Path) -> None:
    trace = Kineto()
    for index in range(10):
        trace.launched(GEMM, 200.0 * index, 5 if index < 8 else 100, call=200.0 * index - 500)
    tiny = report_of(trace, tmp_path).tiny_kernels
    assert tiny is not None
    assert tiny["count_frac"] == pytest.approx(0.8)
    assert tiny["time_frac"] == pytest.approx(40 / 240)


def test_tensor_cores_have_three_values_and_matrix_vector_kernels_stay_out(tmp_path: Path) -> None:
    trace = Kineto()
    names = (GEMM, SGEMM, "void splitKreduce_kernel<float>", "void gemv2T_kernel_val<int>")
    for index, name in enumerate(names * 3):
        trace.launched(name, 100.0 * index, 50, call=100.0 * index - 500)
    report = report_of(trace, tmp_path)
    assert report.tensor_core == {
        "yes": pytest.approx(1 / 3),
        "no": pytest.approx(1 / 3),
        "unknown": pytest.approx(1 / 3),
    }
    assert report.matrix is not None
    assert report.matrix["gemv_frac"] == pytest.approx(0.25)
    assert report.matrix["decided_yes_frac"] == pytest.approx(0.5)


def test_without_matrix_work_the_tensor_core_answer_is_empty(tmp_path: Path) -> None:
    trace = Kineto()
    for index in range(10):
        trace.launched(ADD, 100.0 * index, 50, call=100.0 * index - 500)
    assert report_of(trace, tmp_path).tensor_core == {"yes": None, "no": None, "unknown": None}


def test_kernels_whose_times_scatter_are_listed(tmp_path: Path) -> None:
    trace = Kineto()
    for index in range(20):
        trace.launched(GEMM, 2000.0 * index, 1900 if index % 7 == 0 else 10, call=-100 + index)
    rows = report_of(trace, tmp_path).variance
    assert len(rows) == 1
    assert rows[0]["cov"] > 1


# --- CPU operators -----------------------------------------------------------------------------


def test_operators_are_charged_for_their_own_time_per_thread(tmp_path: Path) -> None:
    trace = Kineto()
    trace.event("cpu_op", "aten::linear", 0, 100)
    trace.event("cpu_op", "aten::addmm", 10, 80)
    trace.event("cpu_op", "aten::copy_", 20, 30)
    trace.event("cpu_op", "aten::softmax", 0, 50, tid=2)
    cpu = report_of(trace, tmp_path).cpu
    assert cpu is not None
    own = {row["name"]: row["self_s"] for row in cpu["top"]}
    assert own["aten::linear"] == pytest.approx(20e-6)
    assert own["aten::addmm"] == pytest.approx(50e-6)
    assert own["aten::copy_"] == pytest.approx(30e-6)
    assert own["aten::softmax"] == pytest.approx(50e-6)
    assert cpu["self_s"] == pytest.approx(150e-6)
    assert cpu["busy_frac"] == pytest.approx(1.0)
    assert cpu["threads"] == 2


# --- timeline and JSON -------------------------------------------------------------------------


def test_the_timeline_shows_the_busiest_window(tmp_path: Path) -> None:
    trace = Kineto()
    trace.launched(GEMM, 0, 10, call=-10)
    for index in range(100):
        trace.launched(GEMM, 200_000 + 500.0 * index, 499, call=199_000 + index)
    timeline = report_of(trace, tmp_path).timeline
    assert timeline is not None
    assert timeline["start_s"] == pytest.approx(0.2)
    assert timeline["length_s"] <= 0.050001
    lanes = {bar["lane"] for bar in timeline["bars"]}
    assert "GPU 0 stream 7" in lanes
    assert all(0 <= bar["start_ns"] <= bar["end_ns"] <= 50_000_000 for bar in timeline["bars"])


def test_the_timeline_is_bounded(tmp_path: Path) -> None:
    trace = Kineto()
    for index in range(12_000):
        trace.launched(GEMM if index % 2 else ADD, 2.0 * index, 1.5, call=2.0 * index - 10)
    timeline = report_of(trace, tmp_path).timeline
    assert timeline is not None
    assert len(timeline["bars"]) <= 2 * MOST_BARS
    assert timeline["left_out"] > 0


def test_the_promised_keys_are_there_and_absent_values_are_null(tmp_path: Path) -> None:
    promised = {
        *("verdict", "reliability", "window_s", "busy_frac", "idle_frac", "idle_causes"),
        *("memcpy_frac", "exposed_memcpy_frac", "comm_frac", "kernel_classes", "tensor_core"),
        *("top_kernels", "api", "devices", "findings"),
    }
    full = report_of(filled(), tmp_path).as_dict()
    empty_trace = Kineto()
    empty_trace.event("cpu_op", "aten::mm", 0, 10)
    empty = report_of(empty_trace, tmp_path).as_dict()
    for table in (full, empty):
        assert promised <= set(table)
        assert {"class", "confidence", "sentence"} <= set(table["verdict"])
        json.dumps(table, allow_nan=False)
    assert {"yes", "no", "unknown"} == set(full["tensor_core"])
    for key in ("window_s", "busy_frac", "idle_frac", "kernel_classes", "tensor_core", "api"):
        assert empty[key] is None, key


def test_several_devices_are_reported_apart_and_weighted_by_time(tmp_path: Path) -> None:
    trace = Kineto()
    for index in range(10):
        trace.kernel(GEMM, 100.0 * index, 100, device=0)
        trace.kernel(GEMM, 300.0 * index, 150, device=1)
    report = report_of(trace, tmp_path)
    assert [device["id"] for device in report.devices] == [0, 1]
    assert report.devices[0]["idle_frac"] == pytest.approx(0.0)
    assert report.devices[1]["idle_frac"] == pytest.approx(9 * 150 / 2850)
    assert report.window_s == pytest.approx(2850e-6)
    assert report.busy_frac == pytest.approx((1000 + 1500) / (1000 + 2850))


def test_exposed_communication_and_copies_are_what_no_compute_hides(tmp_path: Path) -> None:
    nccl = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    trace = Kineto()
    for index in range(6):
        trace.kernel(GEMM, 100.0 * index, 60)
        trace.kernel(nccl, 100.0 * index + 40, 60, stream=20)
    trace.event("gpu_memcpy", PINNED, 600, 40, device=0, stream=9, bytes=1000)
    device = report_of(trace, tmp_path).devices[0]
    assert device["window_s"] == pytest.approx(640e-6)
    assert device["comm_frac"] == pytest.approx(360 / 640)
    assert device["exposed_comm_frac"] == pytest.approx(240 / 640)
    assert device["comm_overlap_frac"] == pytest.approx(1 / 3)
    assert device["exposed_memcpy_frac"] == pytest.approx(40 / 640)
    assert device["idle_frac"] == 0.0
