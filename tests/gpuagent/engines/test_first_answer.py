"""The first completion of a server whose worker ended before it could answer."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from gpuagent.engines import managed
from gpuagent.engines.transformers_serve_engine import TransformersServeEngine
from gpuagent.errors import AgentError
from gpuagent.wire import FailureReason

DEAD = """  File "continuous_api.py", line 1108, in _run_generation_loop
ValueError: Invalid values: max_batch_tokens = 8192, num_sectors = -28
"""


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[TransformersServeEngine]:
    """A server that takes requests and never answers one."""
    monkeypatch.setattr(managed, "_FIRST_ANSWER_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        engine = TransformersServeEngine()
        engine.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        yield engine
        engine.close()


def test_a_dead_worker_is_named_by_the_log(
    silent: TransformersServeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silent, "_log", lambda: DEAD)
    with pytest.raises(AgentError, match="max_batch_tokens") as caught:
        silent._try_completion()
    assert caught.value.reason is FailureReason.OUT_OF_MEMORY


def test_a_slow_first_answer_is_waited_for(
    silent: TransformersServeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silent, "_log", lambda: "INFO: loading weights")
    assert silent._try_completion() is None
