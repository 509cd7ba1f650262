"""Servers without starting a real engine: failures by their logs, metrics, endpoints, processes."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gpuagent.endpoints import read_endpoints
from gpuagent.engines import create_server
from gpuagent.engines.server_failures import PORT_IN_USE, running_failure, startup_failure
from gpuagent.engines.server_process import ServerProcess, group_alive, server_environment
from gpuagent.errors import AgentError, CancelledByServer, ConfigError
from gpuagent.experiments.base import SystemClock
from gpuagent.experiments.robustness import _after_death
from gpuagent.load.mock import MockSettings
from gpuagent.models import ResolvedModel
from gpuagent.runner import run_trial
from gpuagent.server_metrics import read_metrics
from gpuagent.wire import EngineSettings, FailureReason, TrialSpec
from gpuagent.wire.robustness import CHECKS, RobustnessCheck, RobustnessReport, RobustnessResult
from gpuagent.wire.trial import ServeResult, TrialResult, VerifyResult
from tests.gpuagent.load.mocks import running
from tests.shared_data import SHARED, needs_shared

# Ends of real logs of vLLM 0.32 on a CPU, shortened.
GENERIC = "RuntimeError: Engine core initialization failed. See root cause above."
LOGS = [
    ("  Value error, User-specified max_model_len (16384) is greater than the derived max_model_len"
     " (8192) [type=value_error, input_value=x]", 1, FailureReason.CONFIG_ERROR),
    ("api_server.py: error: unrecognized arguments: --swap-space", 2, FailureReason.CONFIG_ERROR),
    ("(EngineCore pid=7) ERROR 12-02 10:00:00 [core.py:9] ValueError: To serve at least one request"
     " with the model's max seq len (65536), 2.81 GiB KV cache is needed\n" + GENERIC, 1,
     FailureReason.OUT_OF_MEMORY),
    ("RuntimeError: Cannot find any model weights with `/models/x`\n" + GENERIC, 1,
     FailureReason.MODEL_BROKEN),
    ("OSError: [Errno 98] Address already in use", 1, FailureReason.ENGINE_ERROR),
    ("Value error, Model architectures ['NoSuchForCausalLM'] are not supported for now.", 1,
     FailureReason.MODEL_UNSUPPORTED),
    ("Value error, The repository x contains custom code which must be executed to load", 1,
     FailureReason.MODEL_UNSAFE),
    ("ValueError: Invalid values: max_batch_tokens = 8192, num_sectors = -28\nCB worker died", 1,
     FailureReason.OUT_OF_MEMORY),
    ("ValueError: Using a `device_map` requires `accelerate`. You can install it", 1,
     FailureReason.AGENT_ERROR),
    ("something new", 1, FailureReason.ENGINE_ERROR),
    ("", -9, FailureReason.CHILD_KILLED),
]  # fmt: skip


@pytest.mark.parametrize(("log", "code", "reason"), LOGS)
def test_the_cause_of_a_failed_start(log: str, code: int, reason: FailureReason) -> None:
    failure = startup_failure("vllm", code, log)
    assert failure.reason is reason
    assert failure.message.startswith("vllm")
    assert "[type=" not in failure.message
    assert len(failure.message) < 700


def test_a_taken_port_is_told_apart_and_a_long_line_is_cut() -> None:
    taken = startup_failure("vllm", 1, LOGS[4][0])
    assert (taken.detail or "").startswith(PORT_IN_USE)
    long = startup_failure("vllm", 1, "Value error, " + "x" * 50_000)
    assert len(long.message) < 700
    assert len(long.detail or "") <= 6000


def test_a_server_that_dies_while_it_runs() -> None:
    assert running_failure("vllm", -9, "fine").reason is FailureReason.CHILD_KILLED
    memory = running_failure("vllm", 1, "torch.OutOfMemoryError: CUDA out of memory. Tried")
    assert memory.reason is FailureReason.OUT_OF_MEMORY
    assert running_failure("vllm", 1, "?").reason is FailureReason.ENGINE_ERROR


def test_metrics_of_both_engines() -> None:
    vllm = read_metrics(
        'vllm:num_requests_running{engine="0"} 3.0\nvllm:num_requests_running{engine="1"} 2.0\n'
        'vllm:kv_cache_usage_perc{engine="0"} 0.25\n'
        'vllm:request_success_total{finished_reason="stop"} 4\n'
        'vllm:request_success_total{finished_reason="abort"} 9\n'
        'vllm:request_success_total{finished_reason="length"} 5\n'
    )
    assert vllm is not None
    assert (vllm.running, vllm.kv_frac, vllm.requests, vllm.waiting) == (5.0, 0.25, 9.0, None)
    sglang = read_metrics(
        'sglang:num_running_reqs{tp_rank="0"} 2\nsglang:num_running_reqs{tp_rank="1"} 2\n'
        'sglang:token_usage{tp_rank="0"} 0.5\nsglang:cache_hit_rate{tp_rank="0"} 0.125\n'
    )
    assert sglang is not None
    assert (sglang.running, sglang.kv_frac, sglang.prefix_hit_frac) == (2.0, 0.5, 0.125)
    assert read_metrics("process_open_fds 3\n") is None
    assert read_metrics("<html>") is None


@needs_shared
def test_metrics_as_a_live_server_wrote_them() -> None:
    assert SHARED is not None
    text = (SHARED / "data/engines/sample-metrics-vllm.txt").read_text()
    after = read_metrics(text.rpartition("#####")[2].partition("\n")[2])
    assert after is not None
    assert after.requests == 11
    assert after.output_tokens
    assert after.prefix_queries


def test_the_group_of_a_server_ends_whole(tmp_path: Path) -> None:
    code = "import subprocess, sys, time, signal\n" \
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n" \
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n" \
        "print('up', flush=True); time.sleep(60)"  # fmt: skip
    server = ServerProcess(
        [sys.executable, "-c", code], env=server_environment({}), log=tmp_path / "l"
    )
    deadline = time.monotonic() + 20
    while "up" not in server.log_tail() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert group_alive(server.pid)
    # SIGINT is ignored, so the next signal has to do; the steps wait for seconds in between.
    server.close()
    assert not group_alive(server.pid)
    server.close()
    with pytest.raises(AgentError, match="cannot be started"):
        ServerProcess(["/no/such/program"], env={}, log=tmp_path / "l")


def test_secrets_do_not_reach_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "s3cret")
    monkeypatch.setenv("GPUAGENT_ENDPOINT_KEY_X", "s3cret")
    assert "s3cret" not in server_environment({}).values()


def test_endpoints_come_from_the_agents_owner_alone() -> None:
    found = read_endpoints(
        {"GPUAGENT_ENDPOINTS": "a=http://h:1/v1#m b-2=https://x",
         "GPUAGENT_ENDPOINT_KEY_B_2": "k3y"}
    )  # fmt: skip
    assert (found["a"].url, found["a"].model, found["b-2"].key) == ("http://h:1", "m", "k3y")
    assert "k3y" not in repr(found["b-2"])
    for wrong in ("x", "A=http://h", "a=ftp://h", "a=http://u:p@h"):
        with pytest.raises(ConfigError):
            read_endpoints({"GPUAGENT_ENDPOINTS": wrong})


def test_refusals_name_the_field_and_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AgentError, match="endpoint: this agent has no endpoint x; its endpoints"):
        create_server("openai", endpoint="x")
    with pytest.raises(AgentError, match="is no server; known: openai, sglang"):
        create_server("transformers")
    monkeypatch.setenv("GPUAGENT_VLLM_PYTHON", "/no/such/python")
    engine = create_server("vllm")
    model = ResolvedModel(label="m", config={"architectures": ["LlamaForCausalLM"]})
    with pytest.raises(AgentError, match="not a bare config"):
        engine.start(model, EngineSettings(), seed=0, tick=lambda: None)
    with pytest.raises(AgentError, match="set GPUAGENT_VLLM_PYTHON"):
        engine.start(
            ResolvedModel(label="m", folder=Path("/")), EngineSettings(), seed=0, tick=lambda: None
        )
    engine.close()


# --- a whole trial against the mock ------------------------------------------------------------


def trial(config: dict[str, Any], **workload: Any) -> TrialSpec:
    return TrialSpec.model_validate(
        {
            "trial_id": "0" * 8 + "-0000-4000-8000-" + "0" * 12,
            "model": {"kind": "config", "name": "m", "config": {"architectures": ["X"]}},
            "engine": "openai",
            "endpoint": "mock",
            "workload": {
                "preset": "chat",
                "input_tokens": {"mean": 12},
                "output_tokens": {"mean": 4},
                "requests": 12,
                **workload,
            },
            "config": config,
            "timeout_s": 60,
        }
    )


def measure(spec: TrialSpec, url: str, monkeypatch: pytest.MonkeyPatch) -> TrialResult:
    monkeypatch.setenv("GPUAGENT_ENDPOINTS", f"mock={url}#mock")
    return run_trial(
        spec,
        emit=lambda *args, **more: None,
        should_cancel=lambda: False,
        model_roots=(),
        clock=SystemClock(),
    )


def test_an_endpoint_is_measured_and_its_counts_are_reconciled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = {"metric": "ttft_s", "statistic": "p50", "limit": 0.5}
    config = {
        "experiment": "serve",
        "streams": 3,
        "boundary_points": 1,
        "point_s": 0.5,
        "targets": [target],
    }
    with running() as (url, _):
        result = measure(trial(config), url, monkeypatch)
    found = result.measurements
    assert isinstance(found, ServeResult)
    assert len(found.requests) == 12
    assert found.streams == 3
    assert found.arrivals == "closed_loop"
    assert found.cold is None
    assert found.model.params is None
    assert found.peak_memory_bytes.reason == "an endpoint does not tell how much memory it uses"
    assert found.served.ready_s.value is None
    requests = next(c for c in found.served.counts if c.what == "requests")
    assert requests.server in (None, 12)
    assert found.boundary is not None
    assert len(found.boundary.points) == 1
    assert found.boundary.points[0].targets[0].target.metric == "ttft_s"
    assert "client_cpu" in {check.id for check in result.validity.checks}


@pytest.mark.services
def test_an_endpoint_is_compared_with_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {
        "experiment": "verify",
        "candidate": {},
        "pairs": 5,
        "requests_per_run": 4,
        "streams": 2,
    }
    with running() as (url, _):
        found = measure(trial(config), url, monkeypatch).measurements
    assert isinstance(found, VerifyResult)
    assert "".join(run.side for run in found.runs) == "abbaabbaab"
    assert all(len(run.requests) == 4 for run in found.runs)


def test_a_setting_of_an_endpoint_is_refused_and_a_dead_one_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = trial({"experiment": "serve"})
    changed = spec.model_copy(update={"settings": EngineSettings(max_running=4)})
    with running() as (url, _), pytest.raises(AgentError, match="its owner's") as refused:
        measure(changed, url, monkeypatch)
    assert refused.value.reason is FailureReason.CONFIG_ERROR
    with pytest.raises(AgentError, match="endpoint mock does not answer"):
        measure(spec, "http://127.0.0.1:9", monkeypatch)


def test_a_cancel_ends_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each answer takes a moment, so that the load outlasts the first look at the cancel.
    with running(MockSettings(ttft_s=0.05)) as (url, _):
        monkeypatch.setenv("GPUAGENT_ENDPOINTS", f"mock={url}#mock")
        asked = iter([False] * 3)
        with pytest.raises(CancelledByServer):
            run_trial(
                trial({"experiment": "serve"}, requests=5000),
                emit=lambda *args, **more: None,
                should_cancel=lambda: next(asked, None) is not False,
                model_roots=(),
                clock=SystemClock(),
            )


MISUSE = {
    "experiment": "robustness", "burst": 12, "cancelled": 2, "watch_s": 0.5, "patience_s": 4,
}  # fmt: skip
SLOW = MockSettings(slots=4, step_s=0.001, max_context=1200, kv_tokens=4000)


def test_a_server_is_misused_as_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(SLOW) as (url, _):
        result = measure(trial(MISUSE), url, monkeypatch)
    found = result.measurements
    assert isinstance(found, RobustnessResult)
    verdicts = {check.name: check.verdict for check in found.report.checks}
    assert tuple(verdicts) == CHECKS
    assert verdicts["long_prompt"] == "pass"
    assert (found.report.url, found.report.model, found.died_after) == ("mock", "mock", None)
    assert found.report.overload is not None
    assert found.report.overload.sent == 12
    assert found.report.overload.waiting_peak
    assert found.report.health_at_end == 200
    assert "endpoint" in (found.memory_after_bytes.reason or "")
    assert result.validity.verdict != "invalid"


def test_what_a_dead_server_was_asked_says_nothing_more_about_it() -> None:
    lines = [
        RobustnessCheck(name=name, verdict="pass" if at < 4 else "fail", sentence="x")
        for at, name in enumerate(CHECKS)
    ]
    plain = RobustnessReport(url="u", model="m", started_at_s=0, duration_s=1, checks=tuple(lines))
    assert _after_death(plain, None) == plain
    found = _after_death(plain, "long_prompt")
    assert [check.verdict for check in found.checks] == [
        *["pass"] * 4, "fail", *["cannot_tell"] * 5, "fail",
    ]  # fmt: skip
    assert "gone since the check long_prompt" in found.checks[5].sentence


def test_a_cancel_ends_a_misuse(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(SLOW) as (url, _):
        monkeypatch.setenv("GPUAGENT_ENDPOINTS", f"mock={url}#mock")
        asked = iter([False] * 3)
        with pytest.raises(CancelledByServer):
            run_trial(
                trial(MISUSE),
                emit=lambda *args, **more: None,
                should_cancel=lambda: next(asked, None) is not False,
                model_roots=(),
                clock=SystemClock(),
            )
