from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuagent.__main__ import main
from gpuagent.load.many import merged
from gpuagent.load.mock import MockSettings
from gpuagent.load.plan import Asked, read_lengths, write_lengths
from gpuagent.load.stream import answer_text
from gpuagent.presets import TRAFFIC
from gpuagent.wire import LengthSpec
from tests.gpuagent.load.mocks import running
from tests.gpuagent.load.test_command import load_json
from tests.gpuagent.load.test_report import a_run, record


@pytest.mark.parametrize("traffic", [["--rate", "40"], ["--concurrency", "2"]])
@pytest.mark.parametrize("api", ["completions", "chat"])
def test_each_turn_carries_the_answers_before_it(capsys, tmp_path: Path, traffic, api) -> None:
    file = tmp_path / "records"
    with running(MockSettings(ttft_s=0.005)) as (url, server):
        _, found = load_json(
            capsys, "--url", url, "--api", api, *traffic, "--requests", "6", "--turns", "3",
            "--think-time", "0.02", "--input-tokens", "20", "--output-tokens", "4",
            "--arrivals", "constant", "--records", str(file),
        )  # fmt: skip
        assert server.counters.succeeded == 18
    assert [row["n"] for row in found["turns"]] == [6, 6, 6]
    # 15 words in, 4 out; all of it comes again with the next turn.
    assert [row["input_tokens_mean"] for row in found["turns"]] == [15, 34, 53]
    records = [json.loads(line) for line in file.read_text().splitlines()]
    firsts = [r for r in records if r["turn"] == 0]
    ends = sorted(r["token_s"][-1] + 0.02 for r in records if r["turn"] < 2)
    later = sorted(r["intended_s"] for r in records if r["turn"] > 0)
    assert len(firsts) == 6
    assert later == pytest.approx(ends, abs=0.05)


def test_a_failed_turn_ends_its_session(capsys) -> None:
    with running(MockSettings(max_context=30)) as (url, _):
        _, found = load_json(
            capsys, "--url", url, "--concurrency", "1", "--requests", "3", "--turns", "5",
            "--input-tokens", "20", "--output-tokens", "4",
        )  # fmt: skip
    assert found["requests"]["recorded"] == 6
    assert found["requests"]["failed"] == 3


def test_the_history_is_in_the_body() -> None:
    body = json.loads(Asked("m", "chat").body("c", 1, history=("a", "b")))
    assert body["messages"] == [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    assert json.loads(Asked("m").body("c", 1, history=("a", "b")))["prompt"] == "a\nb\nc"
    pieces = [(0.0, b'data: {"choices": [{"text": "x"}]}\n'), (0.1, b"data: [DONE]\n")]
    assert answer_text(pieces) == "x"
    assert answer_text([(0.0, b"data: 7\n")]) == ""


def test_a_preset_fills_in_what_is_not_given(capsys) -> None:
    with running() as (url, _):
        _, found = load_json(
            capsys, "--url", url, "--rate", "50", "--requests", "5", "--preset", "chat",
            "--output-tokens", "3",
        )  # fmt: skip
    assert found["asked"]["input_tokens"] == "lognormal:512:1400:2800"
    assert found["asked"]["output_tokens"] == "3"
    assert [t["target"] for t in found["targets"]] == ["ttft_s:p95<=0.5", "itl_s:p95<=0.05"]
    with running() as (url, _):
        _, found = load_json(capsys, "--url", url, "--requests", "2", "--preset", "edge")
    assert found["asked"]["concurrency"] == 1
    assert found["targets"] == []


def test_every_preset_can_be_written_and_read() -> None:
    for traffic in TRAFFIC.values():
        assert read_lengths(write_lengths(traffic.workload.input_tokens))
    assert write_lengths(LengthSpec(mean=7)) == "7"


def test_runs_of_several_processes_are_one() -> None:
    one = a_run([record(0.1 * i) for i in range(4)], cpu_frac=0.2)
    two = a_run([record(0.05 + 0.1 * i) for i in range(3)], cpu_frac=0.6)
    run = merged([one, two])
    assert len(run.records) == 7
    assert [r.intended_s for r in run.records] == sorted(r.intended_s for r in run.records)
    assert (run.cpu_frac, run.planned) == (0.6, one.planned + two.planned)


@pytest.mark.services
@pytest.mark.parametrize(
    "traffic", [["--rate", "60", "--arrivals", "constant"], ["--concurrency", "4"]]
)
def test_several_processes_send_one_plan(capsys, traffic) -> None:
    with running(MockSettings(ttft_s=0.01)) as (url, server):
        _, found = load_json(
            capsys, "--url", url, *traffic, "--requests", "40", "--processes", "2",
            "--turns", "2", "--output-tokens", "3",
        )  # fmt: skip
        assert server.counters.succeeded == 80
    assert found["requests"]["succeeded"] == 80
    assert [row["n"] for row in found["turns"]] == [40, 40]
    assert 0 < found["wall_s"] < 30


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--users", "2", "--turns", "2"], "--turns does not go with --users"),
        (["--boundary", "--processes", "2"], "--processes does not go with --boundary"),
        (["--rate", "1", "--think-time", "2"], "--think-time goes with --turns"),
        (["--rate", "1", "--turns", "2", "--tokenizer", "x"], "leave --tokenizer out"),
    ],
)
def test_a_combination_that_makes_no_sense_is_refused(capsys, arguments, words) -> None:
    assert main(["load", "--url", "http://h", "--model", "m", *arguments]) == 2
    assert words in capsys.readouterr().err
