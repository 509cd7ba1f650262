"""Twenty ends of a trial at all its moments: nothing of the engine is ever left.

The moment is seconds after the trial's start: imports, the engine's start, its first request, the
warm-up, the load and the boundary. The ends are those that happen: the agent is killed, the trial's
process is killed, the user cancels.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from gpuagent.isolate import TrialProcess, session_pids
from gpuagent.pythons import python_of
from tests.engines.trials import spec, started, within

pytestmark = [pytest.mark.engines, pytest.mark.timeout(180)]
PYTHONS = {
    "vllm": python_of("vllm", "GPUAGENT_VLLM_PYTHON"),
    "transformers_serve": python_of("transformers", "GPUAGENT_TRANSFORMERS_PYTHON"),
}
MOMENTS_S = {
    "transformers_serve": (0.3, 1, 2, 3, 4, 5, 6, 7, 8, 10, 14, 20),
    "vllm": (1, 4, 8, 14, 20, 27, 35, 50),
}
ENDS = ("agent killed", "trial killed", "cancelled")
CASES = [
    (engine, moment_s, ENDS[number % len(ENDS)])
    for engine, moments in MOMENTS_S.items()
    for number, moment_s in enumerate(moments)
]
# Long enough that even the last moment falls into it.
CONFIG = {
    "experiment": "serve",
    "streams": 2,
    "boundary_points": 6,
    "point_s": 20,
    "targets": [{"metric": "ttft_s", "statistic": "p90", "limit": 1.0}],
}
AGENT = textwrap.dedent(
    """
    import sys, time
    from pathlib import Path
    from gpuagent.isolate import TrialProcess
    from gpuagent.wire import TrialSpec
    spec, work, models = (Path(part) for part in sys.argv[1:])
    asked = TrialSpec.model_validate_json(spec.read_bytes())
    process = TrialProcess.start(asked, work, model_roots=[models])
    print(process.pid, flush=True)
    while True:
        process.poll_events()
        time.sleep(0.1)
    """
)


@pytest.mark.parametrize(("engine", "moment_s", "end"), CASES)
def test_no_engine_outlives_its_trial(
    models: Path, tmp_path: Path, engine: str, moment_s: float, end: str
) -> None:
    if PYTHONS[engine] is None:
        pytest.skip(f"no {engine} here: make test-engines installs it")
    asked = spec(engine, CONFIG)
    if end == "agent killed":
        leader = _end_agent(asked.model_dump_json(), models, tmp_path, moment_s)
    else:
        process = started(asked, models, tmp_path / "work")
        leader = process.pid
        _wait(process, moment_s)
        if end == "cancelled":
            process.cancel()
        else:
            os.kill(leader, signal.SIGKILL)
        assert within(20, lambda: process.wait(0.1))
    assert within(10, lambda: session_pids(leader) == []), session_pids(leader)


def _wait(process: TrialProcess, moment_s: float) -> None:
    ends = time.monotonic() + moment_s
    while time.monotonic() < ends:
        process.poll_events()
        assert not process.wait(0.05), process.outcome()


def _end_agent(asked: str, models: Path, folder: Path, moment_s: float) -> int:
    (folder / "spec.json").write_text(asked)
    parts = [str(folder / "spec.json"), str(folder / "work"), str(models)]
    agent = subprocess.Popen(
        [sys.executable, "-c", AGENT, *parts], stdout=subprocess.PIPE, text=True
    )
    try:
        assert agent.stdout is not None
        leader = int(agent.stdout.readline())
        time.sleep(moment_s)
        assert session_pids(leader), "the trial ended before its agent was killed"
    finally:
        agent.kill()
        agent.wait()
    return leader
