from __future__ import annotations

import asyncio
import json

import pytest

from gpuagent.__main__ import main
from gpuagent.load.mock import MockSettings
from gpuagent.load.plan import TextPrompts
from gpuagent.load.probe import Probe, Reply
from gpuagent.load.server_state import ServerState, read_state
from gpuagent.text import built_in
from gpuagent.wire.robustness import RobustnessCheck, RobustnessReport
from tests.gpuagent.load.mocks import running
from tests.shared_data import SHARED, needs_shared

# Steps of 1 ms: answers of up to 944 tokens last a second.
BASE = {"slots": 8, "step_s": 0.001, "max_context": 1200, "kv_tokens": 4000}


def examine(capsys, *more: str, path: str = "", **settings) -> tuple[int, RobustnessReport]:
    with running(MockSettings(**(BASE | settings))) as (url, _):
        arguments = ["--url", url + path, "--watch", "1", "--timeout", "8", "--burst", "24"]
        code = main(["robustness", *arguments, "--cancelled", "3", *more, "--json"])
    return code, RobustnessReport.model_validate_json(capsys.readouterr().out)


def verdicts(found: RobustnessReport) -> dict[str, str]:
    return {check.name: check.verdict for check in found.checks}


def line(found: RobustnessReport, name: str) -> RobustnessCheck:
    return next(check for check in found.checks if check.name == name)


def test_a_sound_server_passes_every_check(capsys) -> None:
    code, found = examine(capsys)
    assert set(verdicts(found).values()) == {"pass"}, found.checks
    assert (code, found.engine, found.model) == (0, "vllm", "mock")
    assert line(found, "long_prompt").value == 400
    assert "maximum context length is 1200" in line(found, "long_prompt").sentence
    assert line(found, "kv_released").value == 0
    assert "24 answered" in line(found, "overload").sentence


@pytest.mark.services
def test_a_server_that_works_on_for_nobody_and_keeps_its_memory_fails(capsys) -> None:
    code, found = examine(
        capsys, ignore_disconnects=True, leak_kv=True, slots=64, step_s=0.005, long_prompt="fail"
    )
    assert code == 1
    assert verdicts(found) == {
        "health": "pass",
        "plain_request": "pass",
        "client_timeout": "fail",
        "cancelled_streams": "fail",
        "long_prompt": "fail",
        "max_tokens": "fail",
        "malformed_request": "pass",
        "overload": "pass",
        "recovery": "pass",
        "kv_released": "fail",
        "still_serving": "pass",
    }
    assert line(found, "client_timeout").value == 1
    assert line(found, "long_prompt").value == 500
    assert line(found, "cancelled_streams").value >= 3
    assert line(found, "kv_released").value > line(found, "kv_released").limit


@pytest.mark.services
def test_an_overloaded_server_may_refuse_and_may_not_fail(capsys) -> None:
    _, found = examine(capsys, queue_limit=1, long_prompt="cut", slots=1, step_s=0.003)
    check = line(found, "overload")
    assert (check.verdict, check.value) == ("pass", 0)
    assert "refused with 429" in check.sentence
    check = line(found, "long_prompt")
    assert (check.verdict, check.value) == ("fail", 200)
    # Of three streams one runs, one waits and one is refused: the two are left.
    assert line(found, "cancelled_streams").verdict == "pass", line(found, "cancelled_streams")
    code, found = examine(capsys, queue_limit=1, overload_status=500, slots=1, step_s=0.003)
    check = line(found, "overload")
    assert (code, check.verdict) == (1, "fail")
    assert 0 < check.value < 1
    assert verdicts(found)["recovery"] == "pass"


def test_what_cannot_be_told_is_not_passed(capsys) -> None:
    # Answers are over before anybody could leave them.
    _, found = examine(capsys, slots=0)
    cannot = {name for name, verdict in verdicts(found).items() if verdict == "cannot_tell"}
    assert cannot == {"client_timeout", "cancelled_streams"}
    _, found = examine(capsys, "--no-ignore-eos")
    assert "ended by themselves" in line(found, "cancelled_streams").sentence


def test_silence_is_told_from_an_answer() -> None:
    async def ask(url: str) -> Reply:
        prompts = TextPrompts(built_in().text)
        async with Probe(url, "mock", api="completions", prompts=prompts, patience_s=0.2) as probe:
            return await probe.ask(8, prompt=" a" * 50)

    with running(MockSettings(max_context=30, long_prompt="hang")) as (url, _):
        reply = asyncio.run(ask(url))
    assert (reply.status, reply.error) == (0, "nothing came within 0.2 s")


def test_a_server_that_answers_nothing_gets_no_further_claims(capsys) -> None:
    code, found = examine(capsys, "--model", "mock", path="/nowhere")
    assert code == 1
    assert verdicts(found) | {"health": "", "plain_request": ""} == dict.fromkeys(
        verdicts(found), "cannot_tell"
    ) | {"health": "", "plain_request": ""}
    assert line(found, "health").value == 404
    assert found.verdict == "fail"


def test_a_wrong_address_is_one_line_and_exit_code_2(capsys) -> None:
    assert main(["robustness", "--url", "nowhere"]) == 2
    assert main(["robustness", "--url", "http://127.0.0.1:1"]) == 2
    assert "is the server up" in capsys.readouterr().err


def test_the_state_adds_up_replicas_and_not_ranks() -> None:
    text = """
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{dp_rank="0",tp_rank="0"} 3.0
sglang:num_running_reqs{dp_rank="0",tp_rank="1"} 3.0
sglang:num_running_reqs{dp_rank="1",tp_rank="0"} 2.0
sglang:num_queue_reqs{dp_rank="0"} 4
sglang:token_usage{dp_rank="0"} 0.25
sglang:token_usage{dp_rank="1"} NaN
process_start_time_seconds 1.7e9
no sample at all
"""
    assert read_state(text) == ServerState("sglang", 5, 4, 0.25, 1.7e9)
    assert read_state("<html>") == ServerState()


@needs_shared
def test_the_state_of_a_real_vllm() -> None:
    parts = (SHARED / "data/engines/sample-metrics-vllm.txt").read_text().split("##### ")
    states = [read_state(part) for part in parts if "num_requests_running" in part]
    assert states
    for state in states:
        assert state.engine == "vllm"
        assert state.open_requests == 0
        assert state.kv_used_frac is not None


def test_the_result_travels() -> None:
    check = RobustnessCheck(name="health", verdict="pass", sentence="well", value=0.1, unit="s")
    found = RobustnessReport(
        url="http://h", model="m", started_at_s=1.0, duration_s=2.0, checks=(check,)
    )
    again = RobustnessReport.model_validate(json.loads(found.model_dump_json()))
    assert again == found
    assert RobustnessReport(**(dict(found) | {"checks": ()})).verdict == "cannot_tell"
