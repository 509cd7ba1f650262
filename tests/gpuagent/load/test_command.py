from __future__ import annotations

import importlib.util
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from gpuagent.__main__ import main
from gpuagent.load.mock import MockSettings
from gpuagent.wire.measure import RequestRecord
from tests.gpuagent.load.mocks import running

RUN = [sys.executable, "-m", "gpuagent"]


def load_json(capsys, *arguments: str) -> tuple[int, dict]:
    code = main(["load", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_an_open_loop_run_as_json_with_its_records(capsys, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("LOAD_KEY", "top-secret")
    file = tmp_path / "records.jsonl"
    with running(MockSettings(ttft_s=0.02, itl_s=0.005)) as (url, server):
        _, found = load_json(
            capsys, "--url", url, "--rate", "40", "--requests", "24", "--output-tokens", "4",
            "--arrivals", "constant", "--records", str(file), "--key-env", "LOAD_KEY",
        )  # fmt: skip
        assert server.counters.received == 24
    assert found["requests"] | {"errors": {}} == {
        "planned": 24, "recorded": 24, "succeeded": 24, "failed": 0, "unfinished": 0, "errors": {},
    }  # fmt: skip
    assert found["asked"]["model"] == "mock"
    assert found["tokens"]["output"] == found["tokens"]["server_output"] == 96
    records = [RequestRecord.model_validate_json(line) for line in file.read_text().splitlines()]
    assert len(records) == 24
    assert "top-secret" not in json.dumps(found) + file.read_text()


def test_closed_loop_replay_and_warm_up(capsys, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("0 9 3\n0.05 9 5\n")
    with running(MockSettings(ttft_s=0.01)) as (url, _):
        _, closed = load_json(capsys, "--url", url, "--concurrency", "2", "--duration", "0.3")
        assert closed["loop"] == "closed"
        assert closed["requests"]["succeeded"] > 4
        _, replayed = load_json(capsys, "--url", url, "--replay", str(log))
        assert replayed["tokens"]["output"] == 8
        _, warm = load_json(
            capsys, "--url", url, "--rate", "50", "--arrivals", "constant",
            "--requests", "10", "--warmup", "0.2", "--output-tokens", "2",
        )  # fmt: skip
        assert warm["requests"]["planned"] == 20
        assert warm["requests"]["recorded"] == 11


def test_a_tokenizer_gives_prompts_of_exact_length(capsys, tmp_path: Path) -> None:
    tokenizer = Tokenizer(WordLevel({"[UNK]": 0, "Orlando": 1}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with running() as (url, server):
        load_json(
            capsys, "--url", url, "--concurrency", "1", "--requests", "3",
            "--input-tokens", "33", "--tokenizer", str(tmp_path),
        )  # fmt: skip
        assert server.counters.prompt_tokens == 99


def test_targets_decide_the_exit_code(capsys) -> None:
    common = ["--concurrency", "1", "--requests", "40", "--output-tokens", "2"]
    with running(MockSettings(ttft_s=0.005)) as (url, _):
        code, _ = load_json(capsys, "--url", url, *common, "--target", "ttft_s:p90<=30")
        assert code == 0
        code, found = load_json(capsys, "--url", url, *common, "--target", "ttft_s:p99<=30")
        assert (code, found["targets"][0]["verdict"]) == (3, "not_proven")
        code, _ = load_json(capsys, "--url", url, *common, "--target", "ttft_s:p90<=0.001")
        assert code == 1
        assert main(["load", "--url", url, *common, "--target", "ttft_s:p90<=30"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Measurement: valid")
    assert "no latencies at a rate" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--url", "http://127.0.0.1:1", "--rate", "1"], "is the server up"),
        (["--url", "nowhere", "--rate", "1"], "url"),
        (["--url", "http://h", "--rate", "1", "--target", "x"], "target"),
        (["--url", "http://h", "--rate", "1", "--key-env", "NO_SUCH_KEY"], "NO_SUCH_KEY"),
        (["--url", "http://h", "--model", "m", "--rate", "1", "--prompts", "/no"], "--prompts"),
        (["--url", "http://h", "--model", "m", "--replay", "/no"], "cannot be read"),
        (["--url", "http://h", "--model", "m", "--rate", "1", "--tokenizer", "/no"], "tokenizer"),
        (["--url", "http://h", "--model", "m", "--rate", "9e5", "--duration", "90"], "shorten"),
    ],
)
def test_a_wrong_setting_is_one_line_and_exit_code_2(capsys, arguments, message) -> None:
    assert main(["load", *arguments]) == 2
    shown = capsys.readouterr().err.strip()
    assert message in shown
    assert "\n" not in shown


def test_the_mock_serves_and_ctrl_c_keeps_what_was_measured() -> None:
    mock = subprocess.Popen([*RUN, "mock", "--port", "0"], stdout=subprocess.PIPE, text=True)
    load = None
    try:
        url = re.search(r"http://\S+", mock.stdout.readline())[0]
        load = subprocess.Popen(
            [*RUN, "load", "--url", url, "--rate", "20", "--duration", "100", "--json"],
            stdout=subprocess.PIPE,
            text=True,
        )
        _wait_for_requests(url)
        load.send_signal(signal.SIGINT)
        out, _ = load.communicate(timeout=30)
        found = json.loads(out)
        assert found["stopped_early"] is True
        assert 0 < found["requests"]["succeeded"] < 1_500
    finally:
        if load is not None and load.poll() is None:
            load.kill()
        mock.send_signal(signal.SIGTERM)
        assert mock.wait(10) == 0


def _wait_for_requests(url: str) -> None:
    import time

    import httpx

    for _ in range(200):
        done = re.search(r"request_success_total\S* (\d+)", httpx.get(f"{url}/metrics").text)
        if int(done[1]) >= 3:
            return
        time.sleep(0.1)
    raise AssertionError("no request arrived")


def test_a_taken_port_is_one_line_and_exit_code_2(capsys) -> None:
    with running() as (url, _):
        port = url.rsplit(":", 1)[1]
        assert main(["mock", "--port", port]) == 2
    assert "cannot be used" in capsys.readouterr().err


def test_without_the_extra_the_command_says_what_to_install(capsys, monkeypatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "httptools" else find(name)
    )
    assert main(["mock"]) == 2
    assert "pip install '.[load]'" in capsys.readouterr().err
