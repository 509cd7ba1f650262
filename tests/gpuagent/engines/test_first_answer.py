"""The first completion of a server whose worker ended before it could answer."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

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


@pytest.fixture
def unavailable() -> Iterator[Callable[[str], TransformersServeEngine]]:
    """A server that answers every request with 503 and the given error."""
    opened: list[tuple[HTTPServer, TransformersServeEngine]] = []

    def serve(error: str) -> TransformersServeEngine:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                body = json.dumps({"error": error}).encode()
                self.send_response(503)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        engine = TransformersServeEngine()
        engine.url = f"http://127.0.0.1:{server.server_address[1]}"
        opened.append((server, engine))
        return engine

    yield serve
    for server, engine in opened:
        engine.close()
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("error", "log"),
    [
        # As transformers 5.17 says it while a request waits, and of every one after that.
        ("CB worker died during request a1: Invalid values: num_sectors = -28", ""),
        ("CB worker is dead and cannot accept request a1: Invalid values: num_sectors = -28", ""),
        ("said in another way", DEAD),
    ],
)
def test_a_worker_that_is_dead_is_not_waited_for(
    unavailable: Callable[[str], TransformersServeEngine],
    monkeypatch: pytest.MonkeyPatch,
    error: str,
    log: str,
) -> None:
    engine = unavailable(error)
    monkeypatch.setattr(engine, "_log", lambda: log)
    with pytest.raises(AgentError, match="num_sectors"):
        engine._try_completion()


def test_a_server_that_loads_is_waited_for(
    unavailable: Callable[[str], TransformersServeEngine],
) -> None:
    assert unavailable("Model is loading")._try_completion() is None
