from __future__ import annotations

import dataclasses

import pytest

from gpuagent.errors import ConfigError
from gpuagent.load.driver import LoadRun
from gpuagent.load.report import goodput, judge_target, read_target, report
from gpuagent.load.selfcheck import check_client
from gpuagent.request_metrics import request_metrics
from gpuagent.wire.measure import RequestRecord


def record(at_s: float, ttft_s: float = 0.1, lag_s: float = 0.0, error=None) -> RequestRecord:
    tokens = () if error else tuple(at_s + ttft_s + 0.01 * i for i in range(4))
    return RequestRecord(
        intended_s=at_s,
        sent_s=at_s + lag_s,
        token_s=tokens,
        input_tokens=8,
        output_tokens=len(tokens),
        error=error,
    )


def a_run(records, **changes) -> LoadRun:
    run = LoadRun(
        records=tuple(records),
        planned=len(records),
        unfinished=0,
        open_loop=True,
        wall_s=100.0,
        intended_span_s=100.0,
        send_span_s=100.0,
        cpu_frac=0.1,
        peak_in_flight=4,
        connection_limit=100,
        counted=("chunks",),
        server_output_tokens=4 * len(records),
        unexpected_lengths=0,
    )
    return dataclasses.replace(run, **changes)


GOOD = [record(float(i)) for i in range(100)]


def test_a_clean_run_is_valid_and_shows_percentiles_only_where_n_is_enough() -> None:
    found = report(a_run(GOOD), {"rate": 1.0}, [read_target("ttft_s:p90<=0.2")])
    assert found["verdict"] == "valid"
    ttft = found["latency"]["ttft_s"]
    assert ttft["p50"]["value"] == pytest.approx(0.1)
    assert ttft["p99"]["value"] is None
    assert "368" in ttft["p99"]["reason"]
    assert found["targets"][0]["verdict"] == "met"
    assert found["goodput"]["share_of_requests"] == 1.0
    assert found["asked"] == {"rate": 1.0}


@pytest.mark.parametrize(
    ("changes", "check"),
    [
        ({"records": tuple(record(float(i), lag_s=0.05) for i in range(100))}, "send_lag"),
        ({"send_span_s": 110.0}, "rate_sent"),
        ({"cpu_frac": 0.9}, "client_cpu"),
        ({"peak_in_flight": 95}, "client_connections"),
        ({"records": tuple(record(float(i), error="no") for i in range(9))}, "requests_failed"),
    ],
)
def test_a_client_bound_run_is_invalid_and_claims_no_latency(changes, check: str) -> None:
    run = dataclasses.replace(a_run(GOOD), **changes)
    failing = [c.id for c in check_client(run).checks if c.verdict == "invalid"]
    assert failing == [check]
    found = report(run, {}, [read_target("ttft_s:p90<=0.2")])
    assert found["verdict"] == "invalid"
    assert set(found["latency"]["ttft_s"]) == {"reason"}
    assert found["targets"][0]["verdict"] == "not_measured"
    assert found["goodput"]["share_of_requests"] is None


def test_a_closed_loop_is_not_judged_by_its_send_times() -> None:
    late = tuple(record(float(i), lag_s=0.05) for i in range(100))
    run = a_run(late, open_loop=False, intended_span_s=None, send_span_s=None)
    assert check_client(run).verdict == "valid"


def test_too_few_requests_prove_nothing_and_say_how_many_would() -> None:
    few = request_metrics(GOOD[:20])
    found = judge_target(few, read_target("ttft_s:p99<=0.2"))
    assert found.verdict == "not_proven"
    assert found.needed_requests == 299
    assert "needs 279 more requests" in found.reason
    slow = request_metrics([record(float(i), ttft_s=0.5) for i in range(20)])
    assert judge_target(slow, read_target("ttft_s:p99<=0.2")).verdict == "missed"


def test_failed_requests_are_over_every_limit() -> None:
    records = [*GOOD[:50], *(record(50.0 + i, error="HTTP 503") for i in range(50))]
    found = judge_target(request_metrics(records), read_target("e2e_s:p90<=10"))
    assert (found.verdict, found.over) == ("missed", 50)
    assert goodput(records, [read_target("e2e_s:p90<=10")]) == 0.5


@pytest.mark.parametrize("wrong", ["ttft<=1", "ttft_s:p75<=1", "ttft_s:p99<=0", "ttft_s:p99>=1"])
def test_a_wrong_target_is_refused_with_the_form(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"such as ttft_s:p99<=0\.2"):
        read_target(wrong)
