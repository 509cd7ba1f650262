from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from gpuagent.__main__ import main
from gpuagent.errors import ConfigError
from gpuagent.load import locust_run
from gpuagent.load.mock import MockSettings
from gpuagent.load.options import seconds
from gpuagent.wire.measure import RequestRecord
from tests.gpuagent.load.mocks import running


def test_users_give_the_same_records_and_gevent_stays_outside(capsys, tmp_path: Path) -> None:
    file = tmp_path / "records"
    with running(MockSettings(ttft_s=0.05, itl_s=0.01, refuse_frac=0.3)) as (url, server):
        main([
            "load", "--url", url, "--users", "6", "--spawn-rate", "6", "--run-time", "2s",
            "--output-tokens", "3", "--json", "--records", str(file),
        ])  # fmt: skip
        sent, succeeded = server.counters.received, server.counters.succeeded
    found = json.loads(capsys.readouterr().out)
    assert found["loop"] == "closed"
    assert found["requests"]["recorded"] + found["requests"]["unfinished"] == sent
    assert found["requests"]["succeeded"] == succeeded > 6
    assert found["requests"]["errors"] == {
        "HTTP 503: the server is overloaded (injected)": sent - succeeded
    }
    assert found["peak_in_flight"] <= 6
    assert found["tokens"]["output"] == found["tokens"]["server_output"] == 3 * succeeded
    records = [RequestRecord.model_validate_json(line) for line in file.read_text().splitlines()]
    good = [r for r in records if r.error is None]
    assert all(r.token_s[0] - r.sent_s >= 0.045 for r in good)
    assert all(r.token_s[-1] - r.sent_s >= 0.06 for r in good)
    assert "gevent" not in sys.modules
    assert "locust" not in sys.modules


def test_locusts_own_command_line_runs_the_file(tmp_path: Path) -> None:
    with running(MockSettings(ttft_s=0.02)) as (url, server):
        done = subprocess.run(
            [
                sys.executable, "-m", "locust", "-f", str(locust_run._LOCUSTFILE), "--headless",
                "-u", "4", "-r", "4", "-t", "2s", "--host", url, "--llm-model", "mock",
                "--llm-api", "chat", "--llm-records", str(tmp_path / "records"),
            ],
            capture_output=True, text=True, timeout=60, check=False, env=_path(),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert server.counters.succeeded > 4
    lines = (tmp_path / "records").read_text().splitlines()
    assert RequestRecord.model_validate_json(lines[1]).output_tokens == 64


def _path() -> dict[str, str]:
    import os

    return os.environ | {"PYTHONPATH": str(locust_run._LOCUSTFILE.parents[2])}


def test_stopping_keeps_what_was_measured() -> None:
    with running(MockSettings(ttft_s=0.02)) as (url, server):
        run = locust_run.run_users(
            _settings(url), key=None, should_stop=lambda: server.counters.succeeded >= 5
        )
    assert len(run.records) >= 5
    assert run.wall_s < 500


def test_a_killed_command_leaves_no_locust_behind() -> None:
    with running(MockSettings(ttft_s=0.05)) as (url, server):
        load = subprocess.Popen(
            [sys.executable, "-m", "gpuagent", "load", "--url", url, "--users", "2",
             "--run-time", "10m"],
        )  # fmt: skip
        try:
            _until(lambda: server.counters.succeeded > 0)
            locust = psutil.Process(load.pid).children()
            assert len(locust) == 1
        finally:
            load.kill()
            load.wait()
        _, alive = psutil.wait_procs(locust, timeout=20)
        assert not alive


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_a_failing_locust_is_a_clear_error(monkeypatch) -> None:
    command = [sys.executable, "-S", "-c", "print('no users today'); raise SystemExit(1)"]
    monkeypatch.setattr(locust_run, "_command", lambda args, records: command)
    with pytest.raises(ConfigError, match="Locust failed: no users today"):
        locust_run.run_users(_settings("http://127.0.0.1:1"), key=None, should_stop=lambda: False)


def _settings(url: str):
    import argparse

    from gpuagent.load.options import add_parsers

    parser = argparse.ArgumentParser()
    add_parsers(parser.add_subparsers())
    args = parser.parse_args(["load", "--url", url, "--users", "2", "--model", "mock"])
    args.spawn_rate, args.run_time = 2.0, 600
    return args


@pytest.mark.parametrize(("text", "value"), [("90", 90), ("60s", 60), ("1m", 60), ("1h1m1s", 3661)])
def test_locusts_way_to_write_a_time(text: str, value: int) -> None:
    assert seconds(text) == value


def test_settings_of_other_traffic_are_refused(capsys) -> None:
    assert main(["load", "--url", "http://h", "--rate", "1", "--spawn-rate", "2"]) == 2
    assert "--spawn-rate does not go with" in capsys.readouterr().err
    assert main(["load", "--url", "http://h", "--users", "1", "--duration", "2"]) == 2
    assert "--duration does not go with --users" in capsys.readouterr().err
