from __future__ import annotations

import socket

import pytest

from gpuagent import text
from gpuagent.errors import ConfigError
from gpuagent.load.client import Endpoint
from gpuagent.load.driver import Overdue, run_load
from gpuagent.load.mock import MockSettings
from gpuagent.load.plan import Asked, Planner, TextPrompts, read_lengths
from tests.gpuagent.load.mocks import running


def planner(outputs: int = 5, api="completions") -> Planner:
    return Planner(
        input_tokens=read_lengths("20"),
        output_tokens=read_lengths(str(outputs)),
        prompts=TextPrompts(text.built_in().text),
        asked=Asked("mock", api),
        seed=0,
    )


def plan(times, outputs: int = 5, api="completions"):
    return planner(outputs, api).at_times(times)


@pytest.mark.parametrize(("api", "path"), [("completions", ""), ("chat", "chat/")])
def test_an_open_loop_stamps_every_token_from_the_intended_send(api, path) -> None:
    with running(MockSettings(ttft_s=0.05, itl_s=0.01)) as (url, server):
        endpoint = Endpoint.parse(url, f"/v1/{path}completions")
        run = run_load(endpoint, plan([0.02 * i for i in range(20)], api=api))
        assert server.counters.succeeded == 20
    assert [r.error for r in run.records] == [None] * 20
    assert run.open_loop
    assert run.server_output_tokens == 100
    assert run.counted == ("chunks",)
    for index, record in enumerate(run.records):
        assert record.intended_s == pytest.approx(0.02 * index, abs=1e-9)
        assert record.sent_s >= record.intended_s
        assert record.token_s[0] - record.intended_s >= 0.045
        assert len(record.token_s) == record.output_tokens == 5
        assert record.token_s[-1] - record.intended_s >= 0.08
        assert record.input_tokens == 15


def test_a_slow_server_does_not_slow_its_own_load_down() -> None:
    with running(MockSettings(slots=1, step_s=0.03)) as (url, _):
        run = run_load(Endpoint.parse(url, "/v1/completions"), plan([0.01] * 6, outputs=2))
    ttfts = sorted(r.token_s[0] - r.intended_s for r in run.records)
    assert run.peak_in_flight == 6
    assert ttfts[-1] - ttfts[0] >= 0.25  # five answers of two steps came before the last one


def test_a_closed_loop_keeps_its_streams_busy_and_makes_more_requests_as_needed() -> None:
    with running(MockSettings(ttft_s=0.01)) as (url, _):
        source = planner(2)
        run = run_load(
            Endpoint.parse(url, "/v1/completions"),
            [source.next()],
            streams=3,
            until_s=0.4,
            more=source.next,
        )
    assert len(run.records) > 5
    assert not run.open_loop
    assert run.peak_in_flight <= 3
    assert run.rate_achieved_frac is None


def test_failures_are_records_with_the_servers_reason() -> None:
    with running(MockSettings(refuse_frac=0.5, cut_frac=0.5)) as (url, _):
        run = run_load(Endpoint.parse(url, "/v1/completions"), plan([0.0] * 40))
    errors = {r.error for r in run.records}
    assert errors == {
        "HTTP 503: the server is overloaded (injected)",
        "the server closed the connection before the answer was complete",
    }
    with running(MockSettings(hang_frac=1.0)) as (url, _):
        run = run_load(Endpoint.parse(url, "/v1/completions"), plan([0.0] * 3), timeout_s=0.2)
    assert {r.error for r in run.records} == {"timed out after 0.2 s"}


def test_a_full_queue_is_429_and_a_long_prompt_400() -> None:
    settings = MockSettings(slots=1, step_s=0.02, queue_limit=1)
    with running(settings) as (url, _):
        run = run_load(Endpoint.parse(url, "/v1/completions"), plan([0.0] * 5))
    assert sum("HTTP 429" in (r.error or "") for r in run.records) == 3
    with running(MockSettings(max_context=10)) as (url, _):
        run = run_load(Endpoint.parse(url, "/v1/completions"), plan([0.0]))
    assert "maximum context length" in (run.records[0].error or "")


def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        run = run_load(Endpoint.parse(url, "/v1/completions"), plan([0.0, 0.01]))
    assert len(run.records) == 2
    assert all("no connection" in (r.error or "") for r in run.records)


def test_stopping_keeps_what_was_measured_and_counts_the_rest() -> None:
    with running(MockSettings(ttft_s=0.05)) as (url, server):
        run = run_load(
            Endpoint.parse(url, "/v1/completions"),
            plan([*(0.01 * i for i in range(10)), 60.0], outputs=1),
            should_stop=lambda: server.counters.succeeded == 10,
        )
    assert len(run.records) == 10
    assert run.planned == 11
    with running(MockSettings(ttft_s=30.0)) as (url, server):
        run = run_load(
            Endpoint.parse(url, "/v1/completions"),
            [planner().next()] * 8,
            streams=4,
            should_stop=lambda: server.counters.received == 4,
        )
    assert run.records == ()
    assert run.unfinished == 4


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://h", "http://u:p@h", "http://h:99999"])
def test_a_wrong_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="url"):
        Endpoint.parse(url, "/v1/completions")


def test_the_key_is_sent_and_never_shown() -> None:
    endpoint = Endpoint.parse("http://h/v1", "/v1/completions", key="secret")
    assert endpoint.path == "/v1/completions"
    assert b"Authorization: Bearer secret" in endpoint.head()
    assert "secret" not in repr(endpoint)
    with pytest.raises(ConfigError, match="key"):
        Endpoint.parse("http://h", "/v1", key="a\r\nHost: evil")


@pytest.mark.parametrize("limits", [{"ttft_s": 0.1, "e2e_s": None}, {"ttft_s": None, "e2e_s": 0.1}])
def test_a_lost_point_is_cut_off_and_a_kept_one_is_not(limits) -> None:
    times = [0.01 * i for i in range(60)] + [30.0]
    with running(MockSettings(slots=1, step_s=0.05)) as (url, _):
        endpoint = Endpoint.parse(url, "/v1/completions")
        run = run_load(endpoint, plan(times, outputs=2), overdue=Overdue(**limits, allowed=10))
    assert run.cut_off
    assert run.unfinished > 10
    assert len(run.records) + run.unfinished <= 60
    with running() as (url, _):
        endpoint = Endpoint.parse(url, "/v1/completions")
        run = run_load(endpoint, plan(times[:20]), overdue=Overdue(**limits, allowed=10))
    assert not run.cut_off
    assert len(run.records) == 20
