"""A real profile of a two-layer model, and what runs where nsys exists."""

from __future__ import annotations

import gzip
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from gpuagent.engines.base import LoadReport
from gpuagent.errors import AgentError, CancelledByServer
from gpuagent.experiments import profile
from gpuagent.isolate import _artifacts_of
from gpuagent.profilers import nsys as nsys_module
from gpuagent.profilers.memory import convert
from gpuagent.profilers.recorded import recorded_trace
from gpuagent.runner import run_trial
from gpuagent.traces.analyse import analyse_file
from gpuagent.wire import FailureReason, TrialResult
from gpuagent.wire.trial import ProfileConfig, ProfileResult
from tests.gpuagent.fakes import FakeClock, FakeEngine, fake_context, fake_report, tiny_spec
from tests.gpuagent.traces.make import GEMM, launch_bound, nsys

SECRET = "hf_PlantedSecret0123456789"
CONFIG = ProfileConfig(input_tokens=16)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> tuple[TrialResult, Path]:
    """One profile of a real model on the CPU, with its work folder."""
    folder = tmp_path_factory.mktemp("work")
    found = run_trial(
        tiny_spec(config=CONFIG),
        emit=lambda *_, **__: None,
        should_cancel=lambda: False,
        model_roots=(),
        work_dir=folder,
    )
    return found, folder


def test_a_cpu_profile_is_labelled_and_tells_its_overhead(result: tuple[TrialResult, Path]) -> None:
    measured = result[0].measurements
    assert isinstance(measured, ProfileResult)
    (trace,) = measured.traces
    assert trace.work == "cpu"
    assert trace.bottleneck == "cpu_work"
    assert trace.idle_frac.value is None
    assert trace.idle_frac.reason
    assert any(row.name.startswith("aten::") for row in trace.shares)
    assert sum(row.frac for row in trace.shares) <= 1.000001
    steps = CONFIG.prefill_steps * CONFIG.decode_steps
    assert len(measured.profiled_step_s.values) == steps
    assert len(measured.decode_step_s.values) == CONFIG.repeats * steps
    assert measured.overhead_ratio.value is not None
    assert measured.memory is None
    assert measured.memory_reason
    assert measured.nsys_reason


def test_the_announced_file_is_a_trace_with_phases_and_nothing_else(
    result: tuple[TrialResult, Path],
) -> None:
    found, folder = result
    (artifact,) = _artifacts_of(found)
    assert [path.name for path in folder.iterdir()] == [artifact.name]
    assert (folder / artifact.name).stat().st_size == artifact.size_bytes
    report = analyse_file(folder / artifact.name)
    steps = CONFIG.prefill_steps * (1 + CONFIG.decode_steps)
    assert report.steps is not None
    assert report.steps["count"] == steps
    assert {row["phase"]: row["steps"] for row in report.phases} == {
        "prefill": CONFIG.prefill_steps,
        "decode": CONFIG.prefill_steps * CONFIG.decode_steps,
    }
    text = gzip.decompress((folder / artifact.name).read_bytes()).decode()
    assert "layer_0" in text
    assert "layer_1" in text


def test_another_experiments_config_is_refused() -> None:
    with pytest.raises(AgentError, match="not profile"):
        profile.run(fake_context(tiny_spec(), clock=FakeClock()))


def test_a_secret_in_a_recording_stays_on_the_machine(tmp_path: Path) -> None:
    document = launch_bound()
    document.meta |= {"env": {"HF_TOKEN": SECRET}, "hostname": SECRET}
    document.event("user_annotation", f"token={SECRET}", 1.0, 2.0)
    raw = tmp_path / "raw.json"
    raw.write_text(json.dumps(document.document()))
    trace, reason = recorded_trace(raw, tmp_path / "trace-torch.json.gz", "torch")
    assert reason is None
    assert trace is not None
    assert trace.work == "gpu"
    assert trace.bottleneck == "launch_bound"
    assert trace.findings[0].recoverable_s.value is not None
    assert not raw.exists()
    kept = gzip.decompress((tmp_path / "trace-torch.json.gz").read_bytes()).decode()
    assert SECRET not in kept + trace.model_dump_json()


def test_a_recording_that_cannot_be_read_gives_a_reason_and_leaves_nothing(tmp_path: Path) -> None:
    raw = tmp_path / "raw.json"
    raw.write_text("{}" + SECRET)
    trace, reason = recorded_trace(raw, tmp_path / "out", "torch")
    assert trace is None
    assert reason is not None
    assert list(tmp_path.iterdir()) == []


# --- nsys --------------------------------------------------------------------------------------


def fake_nsys(folder: Path, body: str) -> str:
    """A stand-in for the binary: notes its arguments, then does what `body` says."""
    path = folder / "nsys"
    path.write_text(
        f'#!/bin/sh\necho "$@" > {folder}/arguments\n'
        'while [ "$1" != "-o" ]; do shift; done\nout="$2"\n' + body
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def on_cuda(monkeypatch: pytest.MonkeyPatch, binary: str) -> LoadReport:
    monkeypatch.setattr(profile, "find_nsys", lambda: binary)
    report = fake_report()
    model = report.model.model_copy(update={"device": "cuda:0 NVIDIA H100"})
    return LoadReport(
        **{
            **{name: getattr(report, name) for name in LoadReport.__slots__},
            "model": model,
        }
    )


def under_nsys(tmp_path: Path, report: LoadReport, **context: Any) -> tuple[Any, Any]:
    clock = FakeClock()
    made = fake_context(
        tiny_spec(config=CONFIG), clock=clock, engine=FakeEngine(clock), report=report, **context
    )
    loaded = made.open_engine(made.spec.settings)
    progress = profile.Progress(emit=made.emit, clock=clock, phases={"finish": 1.0})
    return profile._under_nsys(made, CONFIG, loaded, tmp_path, progress)


def test_nsys_runs_the_marked_steps_and_its_export_is_scrubbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = [(i * 100, i * 100 + 90, 0, 7, i, 77, GEMM) for i in range(20)]
    sql = [
        "CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT)",
        f"INSERT INTO META_DATA_CAPTURE VALUES ('ENV:HF_TOKEN', '{SECRET}')",
    ]
    export = nsys(tmp_path / "ready.db", kernels=kernels, sql=sql)
    binary = fake_nsys(tmp_path, f'cp {export} "$out.sqlite"; echo x > "$out.nsys-rep"\n')
    work = tmp_path / "work"
    work.mkdir()
    trace, reason = under_nsys(work, on_cuda(monkeypatch, binary))
    assert reason is None
    assert trace.recorder == "nsys"
    assert trace.artifact.name == "trace-nsys.sqlite"
    assert SECRET.encode() not in (work / trace.artifact.name).read_bytes()
    assert sorted(path.name for path in work.iterdir()) == ["nsys", "trace-nsys.sqlite"]
    spec = json.loads((work / "nsys" / "spec.json").read_text())
    assert spec["config"]["recorder"] == "marks"
    arguments = (tmp_path / "arguments").read_text()
    for flag in (
        "--cuda-graph-trace=node",
        "--trace-fork-before-exec=true",
        "--capture-range=cudaProfilerApi",
        "-m gpuagent.child",
    ):
        assert flag in arguments


def test_a_failing_nsys_is_a_reason_and_not_a_failed_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binary = fake_nsys(tmp_path, "echo no permission; exit 3\n")
    work = tmp_path / "work"
    work.mkdir()
    trace, reason = under_nsys(work, on_cuda(monkeypatch, binary))
    assert trace is None
    assert "code 3" in reason
    assert "no permission" in reason


def test_without_binary_device_or_time_nsys_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile, "find_nsys", lambda: None)
    assert "path" in under_nsys(tmp_path, fake_report())[1]
    monkeypatch.setattr(profile, "find_nsys", lambda: "/bin/true")
    assert "CUDA" in under_nsys(tmp_path, fake_report())[1]


def test_a_cancel_ends_nsys(tmp_path: Path) -> None:
    binary = fake_nsys(tmp_path, "exec sleep 60\n")

    def cancelled() -> None:
        raise CancelledByServer

    with pytest.raises(CancelledByServer):
        nsys_module.record(binary, tmp_path / "out", ["true"], timeout_s=50, tick=cancelled)
    with pytest.raises(AgentError) as late:
        nsys_module.record(binary, tmp_path / "out", ["true"], timeout_s=0, tick=lambda: None)
    assert late.value.reason is FailureReason.TIMED_OUT


# --- memory ------------------------------------------------------------------------------------


def test_a_snapshot_becomes_numbers() -> None:
    stats = {
        "allocated_bytes.all.peak": 600,
        "reserved_bytes.all.peak": 1000,
        "num_alloc_retries": 2,
        "num_ooms": 1,
    }
    blocks = [
        {"size": 700, "state": "active_allocated"},
        {"size": 100, "state": "inactive"},
        {"size": 200, "state": "inactive"},
    ]
    found = convert(stats, [{"blocks": blocks}, {"blocks": []}])
    assert found.fragmentation_frac == pytest.approx(0.4)
    assert (found.segments, found.largest_free_bytes) == (2, 200)
    assert (found.alloc_retries, found.ooms) == (2, 1)
    assert convert({}, []).fragmentation_frac == 0.0
