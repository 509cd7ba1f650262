"""Every bottleneck class has a trace with that verdict, and traces that cannot answer abstain."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuagent.traces.analyse import analyse_file
from gpuagent.traces.report import TraceReport
from gpuagent.traces.verdict import CLASS_LABELS
from tests.gpuagent.traces import make
from tests.gpuagent.traces.make import ADD, GEMM, Kineto


def report_of(trace: Kineto, folder: Path) -> TraceReport:
    return analyse_file(trace.write(folder / "trace.json"))


@pytest.mark.parametrize("name", sorted(make.SCENARIOS))
def test_each_class_is_recognised_on_a_trace_made_for_it(name: str, tmp_path: Path) -> None:
    report = report_of(make.SCENARIOS[name](), tmp_path)
    assert report.verdict.bottleneck == name, report.verdict.sentence
    assert report.verdict.confidence in ("high", "medium")
    assert report.verdict.sentence.endswith(".")
    assert report.verdict.experiment


def test_every_class_but_abstention_has_a_scenario() -> None:
    assert set(make.SCENARIOS) | {"cannot_tell"} == set(CLASS_LABELS)


def test_every_evidence_row_names_its_denominator(tmp_path: Path) -> None:
    for scenario in make.SCENARIOS.values():
        for row in report_of(scenario(), tmp_path).verdict.evidence:
            assert row.of
            assert row.label


def test_a_healthy_trace_yields_no_finding(tmp_path: Path) -> None:
    report = report_of(make.busy(), tmp_path)
    assert report.findings == ()
    assert report.idle_frac == pytest.approx(0.005, abs=0.001)


@pytest.mark.parametrize(
    ("scenario", "code"),
    [
        ("launch_bound", "launch_overhead"),
        ("sync_bound", "synchronisation"),
        ("scheduler_bound", "step_border"),
        ("transfer_bound", "transfer"),
        ("communication_bound", "communication"),
        ("initialisation", "allocation"),
        ("fp32_compute", "tensor_cores"),
        ("bandwidth_bound", "matrix_vector"),
    ],
)
def test_the_first_finding_matches_the_verdict(scenario: str, code: str, tmp_path: Path) -> None:
    report = report_of(make.SCENARIOS[scenario](), tmp_path)
    assert report.findings
    assert report.findings[0].code == code
    assert report.findings[0].recoverable_frac is not None
    assert report.findings[0].recoverable_frac >= 0.02


def test_a_saturated_link_is_not_told_to_pin_memory(tmp_path: Path) -> None:
    report = report_of(make.transfer_bound(), tmp_path)
    assert "saturated" in report.verdict.sentence
    assert "pin" not in report.findings[0].change.lower().replace("pinning cannot help", "")


def test_unfused_attention_is_a_busy_gpu_with_that_finding(tmp_path: Path) -> None:
    report = report_of(make.unfused_attention(), tmp_path)
    assert report.verdict.bottleneck == "busy"
    assert "not fused" in report.verdict.sentence
    assert report.findings[0].code == "unfused_attention"


def test_a_softmax_before_a_top_k_is_a_router_not_attention(tmp_path: Path) -> None:
    trace, at = Kineto(), 1000.0
    for _ in range(30):
        for name in (GEMM, make.SOFTMAX, "void at::native::sbtopk::gatherTopK<float>(int)", GEMM):
            trace.launched(name, at, 50, call=at - 5000)
            at += 50
    assert "unfused_attention" not in {f.code for f in report_of(trace, tmp_path).findings}


def test_no_gpu_events_abstain_and_say_what_to_record(tmp_path: Path) -> None:
    trace = Kineto()
    for index in range(50):
        trace.event("cpu_op", "aten::mm", index * 100.0, 90.0)
    report = report_of(trace, tmp_path)
    assert report.verdict.bottleneck == "cannot_tell"
    assert "activities=[CPU, CUDA]" in report.verdict.sentence
    assert report.busy_frac is None
    assert report.kernel_classes is None
    assert report.cpu is not None
    assert report.cpu["classes"]["gemm"] == pytest.approx(1.0)


def test_counter_ranges_only_abstain(tmp_path: Path) -> None:
    trace = Kineto()
    for index in range(20):
        trace.event("cuda_profiler_range", "auto_range", index * 10.0, 5.0)
    report = report_of(trace, tmp_path)
    assert report.verdict.bottleneck == "cannot_tell"
    assert "counter" in report.verdict.sentence


def test_a_graph_capture_abstains(tmp_path: Path) -> None:
    trace = Kineto()
    trace.call("cudaStreamBeginCapture", 0, 5, correlation=9001)
    for index in range(400):
        trace.call("cudaLaunchKernel", 10 + 10 * index, 5, correlation=index)
    for index in range(6):
        trace.kernel(GEMM, 5000 + 100 * index, 50)
    report = report_of(trace, tmp_path)
    assert report.verdict.bottleneck == "cannot_tell"
    assert "capture" in report.verdict.sentence


def test_under_recorded_replays_abstain_instead_of_showing_idle(tmp_path: Path) -> None:
    trace, at = Kineto(), 1000.0
    for number in range(20):
        trace.call("cudaGraphLaunch", at - 50, 40, correlation=number)
        if number in (0, 19):
            for index in range(30):
                trace.kernel(GEMM, at + 10 * index, 9.9, correlation=number)
        at += 310
    report = report_of(trace, tmp_path)
    assert report.verdict.bottleneck == "cannot_tell"
    assert "20 graph launches" in report.verdict.sentence
    assert report.findings == ()


def test_a_wait_on_a_device_without_recorded_work_is_a_window_artefact(tmp_path: Path) -> None:
    trace = Kineto()
    for index in range(20):
        trace.launched(GEMM, 1000 + 100 * index, 99, call=900 + 100 * index)
    trace.call("cudaStreamSynchronize", 3010, 400_000)
    trace.launched(GEMM, 403_100, 50, call=403_050)
    report = report_of(trace, tmp_path)
    assert report.verdict.bottleneck == "cannot_tell"
    assert any(caveat.code == "window_artefact" for caveat in report.reliability)


def test_one_step_lowers_the_confidence_and_says_so(tmp_path: Path) -> None:
    many = report_of(make.launch_bound(), tmp_path)
    trace = make.launch_bound()
    trace.events = [e for e in trace.events if not e["name"].startswith("ProfilerStep#")]
    trace.step(1, 900, 8000)
    one = report_of(trace, tmp_path)
    assert (many.verdict.confidence, one.verdict.confidence) == ("high", "medium")
    assert "1 step" in one.verdict.confidence_reason


def test_a_second_cause_is_named_only_when_the_first_explains_less_than_half(
    tmp_path: Path,
) -> None:
    trace, at = Kineto(), 1000.0
    for number in range(60):
        kind = number % 5
        if kind < 2:  # the host is late
            trace.launched(GEMM, at, 50, call=at - 12)
        elif kind < 4:  # the host waited first
            trace.call("cudaStreamSynchronize", at - 120, 25)
            trace.launched(GEMM, at, 50, call=at - 12)
        else:  # queued long before
            trace.launched(GEMM, at, 50, call=at - 9000)
        at += 150
    report = report_of(trace, tmp_path)
    assert report.idle_causes is not None
    assert report.verdict.second is not None
    assert report.verdict.second != report.verdict.bottleneck


def test_a_missing_host_side_leaves_idle_exact_and_its_cause_open(tmp_path: Path) -> None:
    trace = Kineto()
    for index in range(50):
        trace.kernel(ADD, 100.0 * index, 50.0)
    report = report_of(trace, tmp_path)
    assert report.idle_frac == pytest.approx(49 * 50 / (49 * 100 + 50))
    assert report.api is None
    assert any(caveat.code == "gpu_only" for caveat in report.reliability)
