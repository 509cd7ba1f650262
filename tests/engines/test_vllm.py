"""A real vLLM on this CPU: two settings, a boundary, reconciled counts, failures, nothing left."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from gpuagent.demo_model import NAME
from gpuagent.engines import managed
from gpuagent.engines.vllm_engine import VllmEngine
from gpuagent.errors import AgentError
from gpuagent.isolate import session_pids
from gpuagent.pythons import package_version, python_of
from gpuagent.wire import EngineSettings, FailureReason
from tests.engines.trials import SETTINGS, finished, served, spec, started, within

PYTHON = python_of("vllm", "GPUAGENT_VLLM_PYTHON")
pytestmark = [
    pytest.mark.engines,
    pytest.mark.timeout(600),
    pytest.mark.skipif(PYTHON is None, reason="no vLLM here: make test-engines installs it"),
]


def test_two_settings_a_boundary_and_equal_counts(models: Path, tmp_path: Path) -> None:
    target = {"metric": "ttft_s", "statistic": "p90", "limit": 1.0}
    config = {
        "experiment": "serve",
        "streams": 4,
        "boundary_points": 3,
        "point_s": 6,
        "targets": [target],
        "perplexity_tokens": 128,
    }
    wide = served(
        finished(started(spec("vllm", config, max_running=16), models, tmp_path / "wide"))
    )
    narrow = served(finished(started(spec("vllm", max_running=1), models, tmp_path / "narrow")))
    for found in (wide, narrow):
        for count in found.served.counts:
            assert count.client == count.server, count
        assert found.served.version == package_version(PYTHON, "vllm")
        assert found.served.facts.kv_cache_tokens
        assert found.served.timeline is not None
        assert found.server is not None
        assert found.model.params == 134_515_008
        assert found.served.prefix_hit_frac.value == pytest.approx(0, abs=0.01)
    assert wide.boundary is not None
    assert wide.boundary.points
    assert wide.perplexity is not None
    # One request at a time keeps the others waiting, which the server itself shows.
    assert narrow.server is not None
    assert wide.server is not None
    assert narrow.server.running_peak == 1
    assert wide.server.running_peak > 1
    assert narrow.window_s > wide.window_s


def test_killed_mid_load_it_is_named_and_nothing_is_left(models: Path, tmp_path: Path) -> None:
    process = started(spec("vllm", max_running=4), models, tmp_path / "killed")
    leader = process.pid
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        events = process.poll_events()
        if any(event.phase == "measure" for event in events):
            break
        time.sleep(0.1)
    victims = [
        pid
        for pid in session_pids(leader)
        if b"api_server" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    assert victims
    os.kill(victims[0], signal.SIGKILL)
    outcome = finished(process, until_s=60)
    assert outcome.failure is not None
    assert outcome.failure.reason is FailureReason.CHILD_KILLED
    assert "signal 9" in outcome.failure.message
    assert within(10, lambda: session_pids(leader) == []), session_pids(leader)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"max_context": 65_536}, "65536"),
        ({"max_running": 128, "max_batched_tokens": 64}, "max_num_batched_tokens"),
        ({"tensor_parallel": 2}, "attention heads"),
    ],
)
def test_a_refused_setting_is_a_config_error_in_the_engines_words(
    models: Path, tmp_path: Path, wrong: dict[str, Any], words: str
) -> None:
    outcome = finished(started(spec("vllm", **wrong), models, tmp_path / "refused"))
    assert outcome.failure is not None
    assert outcome.failure.reason is FailureReason.CONFIG_ERROR
    assert words in outcome.failure.message


def test_a_port_that_is_taken_is_tried_again(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuagent.models import resolve
    from gpuagent.wire import LocalModel

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        busy = taken.getsockname()[1]
        free = iter([busy, managed.free_port()])
        monkeypatch.setattr(managed, "free_port", lambda: next(free))
        engine = VllmEngine()
        try:
            model = resolve(LocalModel(name=NAME), [models])
            report = engine.start(
                model, EngineSettings.model_validate(SETTINGS["vllm"]), seed=0, tick=lambda: None
            )
            assert str(busy) not in engine.url
            assert report.first_request_s > 0
        finally:
            engine.close()


def test_an_unknown_flag_is_named(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuagent.models import resolve
    from gpuagent.wire import LocalModel

    engine = VllmEngine()
    monkeypatch.setattr(VllmEngine, "always", (*VllmEngine.always, "--swap-space", "4"))
    model = resolve(LocalModel(name=NAME), [models])
    try:
        with pytest.raises(AgentError, match="unrecognized arguments: --swap-space") as refused:
            engine.start(model, EngineSettings(), seed=0, tick=lambda: None)
        assert refused.value.reason is FailureReason.CONFIG_ERROR
    finally:
        engine.close()
