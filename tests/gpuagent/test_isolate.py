"""The child process: results, failures, cancel, kill, deadline, and the death of its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuagent.isolate import LOG_HEAD_BYTES, StopTimes, TrialProcess, _LogPump, session_pids
from gpuagent.wire import (
    ConfigModel,
    FailureReason,
    LengthSpec,
    LocalModel,
    TrialEvent,
    TrialSpec,
    Workload,
)
from gpuagent.wire.trial import BaselineConfig, BaselineResult
from tests.gpuagent.fakes import TINY_CONFIG, tiny_spec

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="sessions are read from /proc"
)

FAST = StopTimes(interrupt_s=0.3, terminate_s=0.6, kill_s=0.9)
ENDLESS = tiny_spec(
    workload=Workload(
        preset="chat",
        input_tokens=LengthSpec(mean=12),
        output_tokens=LengthSpec(mean=400),
        requests=100_000,
    ),
    config=BaselineConfig(batch_sizes=(1,), input_tokens=(8,), decode_steps=2),
    timeout_s=3000,
)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., TrialProcess]]:
    started: list[TrialProcess] = []

    def begin(spec: TrialSpec, **options: object) -> TrialProcess:
        process = TrialProcess.start(
            spec,
            tmp_path / "work",
            env={"OMP_NUM_THREADS": "1"},
            **options,  # type: ignore[arg-type]
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        assert gone_within(process.pid, 2)


def wait_for_phase(process: TrialProcess, phase: str) -> list[TrialEvent]:
    events: list[TrialEvent] = []
    until = time.monotonic() + 60
    while time.monotonic() < until:
        events += process.poll_events()
        if any(event.phase == phase for event in events):
            return events
        if process.wait(0.02):
            break
    raise AssertionError(f"no event of phase {phase}: {events}, {process.outcome()}")


def gone_within(pid: int, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not session_pids(pid):
            return True
        time.sleep(0.02)
    return False


def test_a_trial_runs_and_its_result_events_and_files_come_back(
    start: Callable[..., TrialProcess], tmp_path: Path
) -> None:
    process = start(tiny_spec())
    events: list[TrialEvent] = []
    while not process.wait(0.1):
        events += process.poll_events()
    events += process.poll_events()
    outcome = process.outcome()
    assert outcome.status == "succeeded", outcome
    assert outcome.result is not None
    measured = outcome.result.measurements
    assert isinstance(measured, BaselineResult)
    assert len(measured.requests) == 8
    assert outcome.tokens_generated == 8 * 5
    assert outcome.result.environment.versions["torch"]
    assert outcome.result.environment.threads == 1
    assert outcome.result.validity.checks
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert {event.phase for event in events} >= {"prepare", "load", "warmup", "measure"}
    assert (tmp_path / "work" / "result.json").is_file()
    assert not (tmp_path / "work" / "failure.json").exists()


def test_a_trial_that_cannot_run_ends_with_the_reason(start: Callable[..., TrialProcess]) -> None:
    process = start(tiny_spec(model=LocalModel(name="absent")))
    assert process.wait(60)
    outcome = process.outcome()
    assert outcome.status == "failed"
    assert outcome.failure is not None
    assert outcome.failure.reason is FailureReason.MODEL_NOT_FOUND
    assert "absent" in outcome.failure.message


def test_a_model_that_does_not_fit_is_a_result_not_a_crash(
    start: Callable[..., TrialProcess],
) -> None:
    config = {**TINY_CONFIG, "hidden_size": 131_072, "intermediate_size": 524_288}
    process = start(tiny_spec(model=ConfigModel(name="huge", config=config)))
    assert process.wait(90)
    failure = process.outcome().failure
    assert failure is not None
    assert failure.reason is FailureReason.OUT_OF_MEMORY


def test_a_cancel_between_steps_takes_less_than_a_second(
    start: Callable[..., TrialProcess],
) -> None:
    process = start(ENDLESS)
    wait_for_phase(process, "measure")
    began = time.monotonic()
    process.cancel()
    assert process.wait(5)
    # 0.7 s is the child's own limit; the rest is for a busy machine.
    assert time.monotonic() - began < 1.5
    assert process.outcome().status == "cancelled"


def test_a_cancel_while_the_libraries_load_is_not_waited_for(
    start: Callable[..., TrialProcess],
) -> None:
    process = start(ENDLESS)
    wait_for_phase(process, "prepare")
    process.cancel()
    assert process.wait(5)
    assert process.outcome().status == "cancelled"


def test_a_child_that_hears_nothing_is_killed_in_the_end(
    start: Callable[..., TrialProcess],
) -> None:
    process = start(ENDLESS, stop_times=FAST)
    wait_for_phase(process, "prepare")
    os.kill(process.pid, signal.SIGSTOP)
    process.cancel()
    assert process.wait(10)
    assert process.outcome().status == "cancelled"
    assert gone_within(process.pid, 2)


def test_a_child_killed_from_outside_is_child_killed(start: Callable[..., TrialProcess]) -> None:
    process = start(ENDLESS)
    wait_for_phase(process, "prepare")
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(5)
    outcome = process.outcome()
    assert outcome.failure is not None
    assert outcome.failure.reason is FailureReason.CHILD_KILLED
    assert "SIGKILL" in outcome.failure.message
    assert gone_within(process.pid, 2)


def test_a_trial_past_its_deadline_is_timed_out(start: Callable[..., TrialProcess]) -> None:
    process = start(ENDLESS, deadline_s=0.5, stop_times=FAST)
    assert process.wait(30)
    failure = process.outcome().failure
    assert failure is not None
    assert failure.reason is FailureReason.TIMED_OUT


def test_kill_ends_everything_at_once_and_may_be_repeated(
    start: Callable[..., TrialProcess],
) -> None:
    process = start(ENDLESS)
    process.kill()
    process.kill()
    assert not process.running
    assert gone_within(process.pid, 2)


def test_a_parent_killed_with_minus_nine_takes_the_trial_along(tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text(ENDLESS.model_dump_json())
    script = textwrap.dedent(
        f"""
        import time
        from pathlib import Path
        from gpuagent.isolate import TrialProcess
        from gpuagent.wire import TrialSpec
        spec = TrialSpec.model_validate_json(Path({str(tmp_path / "spec.json")!r}).read_bytes())
        process = TrialProcess.start(spec, Path({str(tmp_path / "work")!r}))
        while not process.poll_events():
            time.sleep(0.02)
        print(process.pid, flush=True)
        time.sleep(600)
        """
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert len(session_pids(child)) >= 2, "the child and its guardian"
    finally:
        parent.kill()
        parent.wait()
    assert gone_within(child, 2)


@pytest.mark.parametrize("death", ["pipe", "leader"])
def test_the_guardian_ends_what_the_child_started(death: str) -> None:
    """Also a process that moved to a group of its own and ignores signals."""
    script = textwrap.dedent(
        """
        import os, signal, subprocess, sys, time
        from gpuagent.child import start_guardian
        life = int(sys.argv[1])
        os.setsid()
        start_guardian(life, keep_fd=life)
        stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        stubborn += "signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)"
        subprocess.Popen([sys.executable, "-c", stubborn], process_group=0)
        print("ready", flush=True)
        time.sleep(600)
        """
    )
    life_read, life_write = os.pipe()
    leader = subprocess.Popen(
        [sys.executable, "-c", script, str(life_read)],
        pass_fds=(life_read,),
        stdout=subprocess.PIPE,
        text=True,
    )
    os.close(life_read)
    try:
        assert leader.stdout is not None
        assert leader.stdout.readline().strip() == "ready"
        assert len(session_pids(leader.pid)) == 3
        if death == "leader":
            leader.kill()
        else:
            os.close(life_write)
        leader.wait(timeout=5)
        assert gone_within(leader.pid, 2)
    finally:
        leader.kill()
        leader.wait()
        if death == "leader":
            os.close(life_write)


def test_a_talkative_child_leaves_a_bounded_log_with_its_end(tmp_path: Path) -> None:
    source = subprocess.Popen(
        [sys.executable, "-c", "for i in range(150_000): print('line', i)\nprint('the end')"],
        stdout=subprocess.PIPE,
    )
    pump = _LogPump(source.stdout, tmp_path / "log.txt")
    source.wait()
    pump.finish()
    assert (tmp_path / "log.txt").stat().st_size < LOG_HEAD_BYTES + 500_000
    assert pump.tail().rstrip().endswith("the end")
    assert "bytes left out" in (tmp_path / "log.txt").read_text()
