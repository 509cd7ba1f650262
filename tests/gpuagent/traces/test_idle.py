"""Idle causes of single gaps, and that every nanosecond lands exactly once."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuagent.traces.analyse import analyse_file
from tests.gpuagent.traces.make import GEMM, NCCL, PAGEABLE, TO_HOST, Kineto


def causes(trace: Kineto, folder: Path) -> dict[str, float]:
    """Idle microseconds by cause."""
    report = analyse_file(trace.write(folder / "t.json"))
    assert report.idle_causes is not None
    assert report.window_s is not None
    assert report.idle_frac == pytest.approx(sum(report.idle_causes.values()))
    window_us = report.window_s * 1e6
    return {k: round(v * window_us, 3) for k, v in report.idle_causes.items() if v > 0}


def pair(trace: Kineto, gap_us: float, call: float, second: str = GEMM, **fields: object) -> None:
    """Work until 1000 µs, then one gap of `gap_us` before the second event."""
    trace.launched(GEMM, 0, 1000, call=-10)
    trace.launched(second, 1000 + gap_us, 100, call=call, **fields)  # type: ignore[arg-type]


def test_a_late_launch_is_the_hosts(tmp_path: Path) -> None:
    trace = Kineto()
    pair(trace, 200, call=1195)
    assert causes(trace, tmp_path) == {"host_launch": 200.0}


def test_a_launch_before_the_gap_is_not_the_hosts(tmp_path: Path) -> None:
    trace = Kineto()
    pair(trace, 4, call=500)
    assert causes(trace, tmp_path) == {"kernel_gap": 4.0}
    trace = Kineto()
    pair(trace, 500, call=500)
    assert causes(trace, tmp_path) == {"unattributed": 500.0}
    trace = Kineto()
    pair(trace, 500, call=500, second=NCCL)
    assert causes(trace, tmp_path) == {"communication": 500.0}


def test_a_slow_launch_call_is_launch_time(tmp_path: Path) -> None:
    trace = Kineto()
    pair(trace, 300, call=900, call_length=400, api="cudaGraphLaunch")
    assert causes(trace, tmp_path) == {"host_launch": 300.0}


def test_waiting_as_the_gpu_runs_dry_makes_the_whole_restart_its_consequence(
    tmp_path: Path,
) -> None:
    trace = Kineto()
    trace.call("cudaStreamSynchronize", 100, 910)
    pair(trace, 200, call=1190)
    found = causes(trace, tmp_path)
    assert found == {"sync": 190.0, "host_launch": 10.0}


def test_a_wait_of_another_thread_is_no_cause(tmp_path: Path) -> None:
    trace = Kineto()
    trace.call("cudaStreamSynchronize", 100, 1000, tid=2)
    pair(trace, 200, call=1195)
    assert causes(trace, tmp_path) == {"host_launch": 200.0}


def test_allocation_inside_the_gap_is_taken_out_first(tmp_path: Path) -> None:
    trace = Kineto()
    trace.call("cudaMalloc", 1010, 100)
    pair(trace, 200, call=1195)
    assert causes(trace, tmp_path) == {"allocation": 100.0, "host_launch": 100.0}


def test_staging_of_pageable_copies_is_transfer(tmp_path: Path) -> None:
    trace = Kineto()
    trace.call("cudaMemcpyAsync", 1010, 150, correlation=99)
    trace.event("gpu_memcpy", PAGEABLE, 1150, 10, device=0, stream=7, correlation=99)
    pair(trace, 200, call=1195)
    assert causes(trace, tmp_path) == {"host_launch": 50.0, "transfer": 140.0}


def test_a_blocking_copy_to_the_host_is_a_wait(tmp_path: Path) -> None:
    trace = Kineto()
    trace.call("cudaMemcpy", 900, 115, correlation=99)
    trace.event("gpu_memcpy", TO_HOST, 1000, 10, device=0, stream=7, correlation=99)
    trace.launched(GEMM, 0, 1000, call=-10)
    trace.launched(GEMM, 1210, 100, call=1205)
    assert causes(trace, tmp_path) == {"sync": 195.0, "host_launch": 5.0}


def test_host_work_across_a_step_border_is_told_apart(tmp_path: Path) -> None:
    trace = Kineto()
    trace.step(1, -20, 1100)
    trace.step(2, 1100, 500)
    pair(trace, 200, call=1195)
    assert causes(trace, tmp_path) == {"step_border": 195.0, "host_launch": 5.0}


def test_profiler_overhead_is_nobodys_fault(tmp_path: Path) -> None:
    trace = Kineto()
    trace.event("overhead", "CUPTI: Buffer Flush", 1050, 60)
    pair(trace, 200, call=1195)
    found = causes(trace, tmp_path)
    assert found["profiler"] == 60.0
    assert found["host_launch"] == 140.0


def test_overlapping_streams_leave_no_gap(tmp_path: Path) -> None:
    trace = Kineto()
    trace.launched(GEMM, 0, 100, call=-10, stream=7)
    trace.launched(GEMM, 50, 100, call=-9, stream=8)
    trace.launched(GEMM, 150, 100, call=-8, stream=7)
    assert causes(trace, tmp_path) == {}


def test_waiting_is_the_longest_thread_and_never_a_sum(tmp_path: Path) -> None:
    trace = Kineto()
    trace.launched(GEMM, 0, 1000, call=-10)
    trace.launched(GEMM, 1000, 1000, call=-5)
    for tid in range(5):
        trace.call("cudaDeviceSynchronize", 0, 1900, tid=10 + tid)
    host = analyse_file(trace.write(tmp_path / "t.json")).host
    assert host is not None
    assert host["sync_max_thread_frac"] == pytest.approx(0.95)
    assert host["sync_threads"] == 5


def test_a_full_queue_is_no_launch_overhead(tmp_path: Path) -> None:
    trace = Kineto()
    for index in range(20):
        trace.launched(GEMM, 1000.0 * index, 1000, call=1000.0 * index - 950, call_length=300)
    host = analyse_file(trace.write(tmp_path / "t.json")).host
    assert host is not None
    assert host["launches"]["waiting_calls"] == 19
    assert host["launches"]["waiting_s"] == pytest.approx(19 * 300e-6)


def test_the_first_allocation_of_each_kind_is_kept_apart(tmp_path: Path) -> None:
    trace = Kineto()
    trace.launched(GEMM, 0, 10, call=-5)
    trace.call("cudaMalloc", 20, 100)
    trace.call("cudaMalloc", 200, 10)
    trace.call("cudaFree", 300, 10)
    trace.launched(GEMM, 1000, 10, call=990)
    trace.step(1, -10, 500)
    trace.step(2, 500, 600)
    host = analyse_file(trace.write(tmp_path / "t.json")).host
    assert host is not None
    assert (host["alloc_calls"], host["alloc_steady_calls"]) == (3, 1)
    assert host["alloc_calls_per_step"] == pytest.approx(0.5)
    assert host["alloc_steady_s"] == pytest.approx(10e-6)
