"""The Kineto reader: old and new spellings, exact times, graph replays, and broken events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuagent.traces.analyse import analyse_file
from gpuagent.traces.errors import TraceError
from gpuagent.traces.kineto import read_kineto
from gpuagent.traces.limits import Limits
from gpuagent.traces.model import MEMCPY, MEMSET, Trace
from tests.gpuagent.traces.make import GEMM, PAGEABLE, Kineto


def load(trace: Kineto, folder: Path) -> Trace:
    return read_kineto(trace.write(folder / "trace.json"))


def test_object_list_gzip_and_indentation_give_the_same_trace(tmp_path: Path) -> None:
    trace = Kineto()
    for index in range(300):
        trace.launched(GEMM, 100.0 * index, 50.5, call=100.0 * index - 10)
    plain = read_kineto(trace.write(tmp_path / "a.json"))
    zipped = read_kineto(trace.write(tmp_path / "a.json.gz", indent=2))
    bare = tmp_path / "b.json"
    bare.write_text(json.dumps(trace.events))
    for other in (zipped, read_kineto(bare)):
        assert other.gpu.start.tolist() == plain.gpu.start.tolist()
        assert other.gpu.end.tolist() == plain.gpu.end.tolist()
        assert other.gpu.launch.tolist() == plain.gpu.launch.tolist()
    assert plain.devices[0].name == "NVIDIA H100 80GB HBM3"
    assert plain.devices[0].compute_capability == (9, 0)


def test_old_category_names_are_accepted(tmp_path: Path) -> None:
    trace = Kineto()
    trace.event("Kernel", GEMM, 10, 5, device=0, stream=7, correlation=1)
    trace.event("Memcpy", PAGEABLE, 20, 5, device=0, stream=7, bytes=4096)
    trace.event("Memset", "Memset (Device)", 30, 5, device=0, stream=7)
    trace.event("Runtime", "cudaLaunchKernel", 1, 5, correlation=1)
    trace.event("Operator", "aten::mm", 0, 8)
    found = load(trace, tmp_path)
    assert found.gpu.kind.tolist() == [0, MEMCPY, MEMSET]
    assert found.gpu.launch.tolist() == [0, -1, -1]
    assert found.gpu.copy_bytes.tolist() == [-1, 4096, -1]
    assert len(found.ops) == 1


def test_annotations_and_sync_events_on_gpu_tracks_are_not_work(tmp_path: Path) -> None:
    trace = Kineto()
    trace.kernel(GEMM, 0, 10)
    trace.kernel(GEMM, 90, 10)
    trace.event("gpu_user_annotation", "ProfilerStep#1", 0, 100, device=0, stream=7)
    trace.event("cuda_sync", "Stream Sync", 10, 80, device=0, stream=7)
    report = analyse_file(trace.write(tmp_path / "t.json"))
    assert report.idle_frac == pytest.approx(0.8)


def test_events_without_times_of_their_own_do_not_stretch_the_window(tmp_path: Path) -> None:
    trace = Kineto()
    trace.kernel(GEMM, 1_000_000, 10)
    trace.kernel(GEMM, 1_000_010, 10)
    trace.events.append({"ph": "M", "name": "process_name", "ts": 0, "pid": 0, "args": {}})
    trace.events.append({"ph": "i", "name": "Iteration Start", "ts": 5, "pid": 0, "s": "g"})
    report = analyse_file(trace.write(tmp_path / "t.json"))
    assert report.window_s == pytest.approx(20e-6)


def test_nanoseconds_survive_in_epoch_microseconds(tmp_path: Path) -> None:
    base = "1709171155487891"
    events = ",".join(
        f'{{"ph": "X", "cat": "kernel", "name": "k", "ts": {base}.{frac}, "dur": 0.100, '
        '"args": {"device": 0, "stream": 7}}'
        for frac in ("000", "105", "317")
    )
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [' + events + "]}")
    start = read_kineto(path).gpu.start
    assert (start - start[0]).tolist() == [0, 105, 317]
    assert int(start[0]) == 1709171155487891000


def test_relative_float_times_are_exact_to_the_nanosecond(tmp_path: Path) -> None:
    trace = Kineto()
    for index in range(1000):
        trace.kernel(GEMM, round(6520618853487.683 + index * 0.125, 3), 0.117)
    gpu = load(trace, tmp_path).gpu
    assert set((gpu.end - gpu.start).tolist()) == {117}
    assert set((gpu.start[1:] - gpu.start[:-1]).tolist()) <= {124, 125, 126}


def test_one_graph_launch_owns_all_its_kernels(tmp_path: Path) -> None:
    trace = Kineto()
    trace.call("cudaGraphLaunch", 0, 40, correlation=5)
    for index in range(400):
        trace.kernel(GEMM, 100 + index, 0.9, correlation=5)
    found = load(trace, tmp_path)
    assert (found.gpu.launch == 0).all()
    report = analyse_file(tmp_path / "trace.json")
    assert report.host is not None
    assert report.host["launches"]["kernels_in_graphs"] == 400
    assert report.host["launches"]["median_kernels_per_replay"] == 400


def test_device_and_stream_fall_back_to_process_and_thread(tmp_path: Path) -> None:
    trace = Kineto()
    for pid in (3, 3, 5):
        trace.event("kernel", GEMM, 10 * pid, 5, pid=pid, tid=9)
    found = load(trace, tmp_path)
    assert [device.id for device in found.devices] == [3, 5]
    assert found.gpu.stream.tolist() == [9, 9, 9]


def test_a_device_that_is_not_listed_takes_the_common_description(tmp_path: Path) -> None:
    trace = Kineto("AMD Instinct MI300X")
    trace.kernel(GEMM, 0, 10, device=2)
    assert load(trace, tmp_path).devices[0].name == "AMD Instinct MI300X"
    trace.meta["deviceProperties"].append({"id": 1, "name": "Another"})
    assert load(trace, tmp_path).devices[0].name is None


def test_broken_events_are_counted_and_left_out(tmp_path: Path) -> None:
    trace = Kineto()
    trace.kernel(GEMM, 0, 10)
    good = dict(trace.events[0])
    for change in (
        {"ts": "soon"},
        {"ts": None},
        {"ts": 1e300},
        {"ts": float("nan")},
        {"dur": float("inf")},
        {"name": ["a"], "args": []},
        {"args": {"device": [1], "stream": {}}},
    ):
        trace.events.append({**good, **change})
    trace.events += [None, 7, "x", [], {"ph": "X"}]  # type: ignore[list-item]
    path = tmp_path / "t.json"
    path.write_text(json.dumps(trace.document()))
    found = read_kineto(path)
    assert len(found.gpu) >= 1
    assert found.facts.malformed >= 6
    report = analyse_file(path)
    assert any(caveat.code == "malformed_events" for caveat in report.reliability)


def test_a_negative_length_counts_as_empty(tmp_path: Path) -> None:
    trace = Kineto()
    trace.kernel(GEMM, 10, -5)
    trace.kernel(GEMM, 20, 5)
    assert (load(trace, tmp_path).gpu.end >= load(trace, tmp_path).gpu.start).all()


@pytest.mark.parametrize("text", ["{}", '{"nodes": []}', "[]"])
def test_json_that_is_no_trace_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(TraceError) as caught:
        read_kineto(path)
    assert caught.value.code == "not_a_trace"


def test_too_many_gpu_events_are_refused_not_trimmed(tmp_path: Path) -> None:
    trace = Kineto()
    for index in range(50):
        trace.kernel(GEMM, index, 1)
    with pytest.raises(TraceError) as caught:
        read_kineto(trace.write(tmp_path / "t.json"), Limits(gpu_events=10))
    assert "10" in caught.value.message


def test_long_and_many_names_are_bounded(tmp_path: Path) -> None:
    trace = Kineto()
    for index in range(60):
        trace.kernel("x" * 5000 + str(index) if index < 2 else f"k{index}", index, 1)
    found = read_kineto(trace.write(tmp_path / "t.json"), Limits(names=20))
    assert len(found.names) <= 21
    assert max(map(len, found.names)) <= 1024
    assert found.facts.names_dropped > 0


FIELD = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
EVENT = st.fixed_dictionaries(
    {
        "ph": st.sampled_from(["X", "M", "s"]),
        "cat": st.sampled_from(
            ["kernel", "gpu_memcpy", "cuda_runtime", "cpu_op", "user_annotation", "overhead"]
        )
        | FIELD,
    },
    optional={
        "name": st.sampled_from([GEMM, PAGEABLE, "cudaLaunchKernel", "ProfilerStep#1"]) | FIELD,
        "ts": st.floats(-1e6, 1e6) | FIELD,
        "dur": st.floats(-10, 1e4) | FIELD,
        "pid": FIELD | st.lists(FIELD, max_size=1),
        "tid": FIELD,
        "args": FIELD
        | st.dictionaries(
            st.sampled_from(["device", "stream", "correlation", "bytes"]),
            FIELD | st.lists(FIELD, max_size=1),
        ),
    },
)


@settings(max_examples=150, deadline=None)
@given(st.lists(EVENT, max_size=12))
def test_any_events_give_a_report_or_a_refusal(
    tmp_path_factory: pytest.TempPathFactory, events: list[dict[str, Any]]
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "t.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    report = analyse_file(path)
    json.dumps(report.as_dict(), allow_nan=False)
    if report.idle_frac is not None and report.idle_causes is not None:
        assert sum(report.idle_causes.values()) == pytest.approx(report.idle_frac)
