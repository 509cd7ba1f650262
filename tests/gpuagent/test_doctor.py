from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from gpuagent import doctor
from gpuagent.doctor import Check


@pytest.fixture(autouse=True)
def quick_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {"version": "2.13.0", "cuda_build": None, "devices": [], "sum": 8.0}
    monkeypatch.setattr(doctor, "_ask_torch", lambda: facts)


@contextmanager
def server(status: int) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self._answer(status)

        def _answer(self, code: int) -> None:
            self.send_response(code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    httpd = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{httpd.server_port}"
    finally:
        httpd.shutdown()
        httpd.server_close()


def checks(tmp_path: Path, **options: str | None) -> dict[str, Check]:
    found = doctor.run(state_dir=tmp_path, model_roots=[tmp_path], **options)
    return {check.name: check for check in found}


def test_every_part_has_a_line_and_every_problem_says_what_it_is(tmp_path: Path) -> None:
    found = checks(tmp_path)
    names = {"python", "torch", "cuda", "nvml", "transformers", "vllm", "sglang", "nsys"}
    assert names | {"disk", "models", "broker", "server"} <= set(found)
    assert found["torch"].state == "ok"
    assert found["server"].state == "warn"
    assert "register" in found["server"].fix
    for check in found.values():
        assert check.message
        assert check.name in check.line()
        assert set(check.to_dict()) == {"name", "state", "message", "fix"}


@pytest.mark.parametrize(
    ("status", "state", "words"),
    [
        (400, "ok", "knows this agent"),
        (401, "fail", "credential"),
        (403, "fail", "credential"),
        (426, "fail", "wire version"),
        (500, "warn", "500"),
    ],
)
def test_the_servers_answer_is_read_right(
    tmp_path: Path, status: int, state: str, words: str
) -> None:
    with server(status) as url:
        check = checks(tmp_path, server_url=url, credential="secret")["server"]
    assert check.state == state
    assert words in check.message
    assert "secret" not in check.line()


def test_a_server_that_is_not_there_fails_with_the_address(tmp_path: Path) -> None:
    check = checks(tmp_path, server_url="http://127.0.0.1:9")["server"]
    assert check.state == "fail"
    assert "127.0.0.1:9" in check.message


def test_a_broker_that_is_not_there_only_warns_and_hides_the_password(tmp_path: Path) -> None:
    check = checks(tmp_path, broker_url="redis://:hunter2@127.0.0.1:9/0")["broker"]
    assert check.state == "warn"
    assert "hunter2" not in check.line()


def test_a_broken_torch_fails_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_ask_torch", lambda: "is not installed")
    check = checks(tmp_path)["torch"]
    assert check.state == "fail"
    assert "pip install" in check.fix


def test_refused_models_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "old"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "pytorch_model.bin").write_bytes(b"x")
    check = checks(tmp_path)["models"]
    assert check.state == "warn"
    assert "old" in check.fix
