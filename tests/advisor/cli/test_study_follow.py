from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from advisor.cli import study as command
from advisor.cli.api_client import ApiClient
from advisor.cli.main import main

ID = "00000000-0000-0000-0000-000000000007"


def answer(state: str, done: int) -> dict[str, Any]:
    """What the API says of a study with two trials."""
    return {
        "id": ID,
        "number": 7,
        "state": state,
        "phase": "baseline",
        "progress": {
            "trials_done": done,
            "trials_succeeded": done,
            "trials_total": 2,
            "current": None,
            "done_frac": done / 2,
            "remaining_s": None if done == 2 else 90.0,
        },
        "verdict": {"status": "met"},
    }


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Methods and paths in order; the study ends with the third GET."""
    seen: list[str] = []

    def respond(request: httpx.Request) -> httpx.Response:
        seen.append(f"{request.method} {request.url.path}")
        gets = sum(one.startswith("GET") for one in seen)
        if request.method == "POST":
            return httpx.Response(200, json=answer("cancelled", 1))
        done = gets >= 3
        return httpx.Response(200, json=answer("finished" if done else "running", 2 if done else 1))

    client = ApiClient("http://server", "ta_x", transport=httpx.MockTransport(respond))
    monkeypatch.setattr(ApiClient, "from_environment", lambda: client)
    monkeypatch.setattr(command, "POLL_S", 0.0)
    return seen


def test_wait_follows_until_the_end(asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "wait", ID, "--json"]) == 0
    assert asked == [f"GET /api/v1/studies/{ID}"] * 3
    assert json.loads(capsys.readouterr().out)["state"] == "finished"


def test_cancel_says_what_is_kept(asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "cancel", ID]) == 0
    assert asked == [f"POST /api/v1/studies/{ID}/cancel"]
    assert "1 of 2 trials finished and are kept" in capsys.readouterr().out.replace("\n", " ")


def test_interrupting_says_how_to_go_on(
    asked: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "follow", interrupted)
    assert main(["study", "wait", ID]) == 130
    assert f"study cancel {ID}" in capsys.readouterr().err.replace("\n", " ")


def test_one_trial_is_cancelled_by_its_number(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def respond(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            trials = [{"id": f"t{n}", "ordinal": n} for n in (1, 2)]
            return httpx.Response(200, json={"results": trials})
        assert request.url.path == "/api/v1/trials/t2/cancel"
        return httpx.Response(200, json={"state": "cancelled"})

    client = ApiClient("http://server", "ta_x", transport=httpx.MockTransport(respond))
    monkeypatch.setattr(ApiClient, "from_environment", lambda: client)
    assert main(["study", "cancel", ID, "--trial", "2"]) == 0
    assert "Trial 2 is cancelled; the study goes on" in capsys.readouterr().out
    assert main(["study", "cancel", ID, "--trial", "3"]) == 2
    assert "no trial 3; its trials: 1 to 2" in capsys.readouterr().err
