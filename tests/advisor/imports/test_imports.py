from __future__ import annotations

import json

import httpx
import pytest

from advisor.cli.api_client import ApiClient
from advisor.cli.main import main
from advisor.imports import ImportRefused, judge_import, read_import
from gpuagent.wire.sla import parse_target
from tests.advisor.imports import samples


def read(document: object):
    return read_import(json.dumps(document).encode())


def judged(trial, *texts: str):
    return judge_import(trial, [parse_target(text) for text in texts])


def test_vllm_with_single_requests_is_judged_by_our_own_statistics() -> None:
    (trial,) = read(samples.vllm())
    assert (trial.tool, trial.loop, trial.asked_rate_per_s) == ("vllm bench serve", "open", 1.0)
    assert trial.basis == "imported: vllm bench serve (version not in the file)"
    assert trial.metric("ttft_s").p99 == pytest.approx(0.05)
    assert trial.metric("e2e_s").reason.endswith("--percentile-metrics e2el")
    assert trial.records[1].intended_s == 1.0
    assert trial.records[1].token_s == pytest.approx((1.05, 1.06, 1.07, 1.08))
    ttft, late, e2e, itl = judged(
        trial, "ttft_s:p95<=0.1", "ttft_s:p95<=0.04", "e2e_s:p95<=0.1", "itl_s:p99<=0.02"
    )
    assert (ttft.verdict, late.verdict, e2e.verdict) == ("met", "missed", "met")
    assert ttft.value == pytest.approx(0.05)
    assert itl.n == 600


def test_vllm_counts_failures_against_every_latency() -> None:
    errors = ["Connection refused"] * 20 + [""] * 180
    file = samples.vllm(errors=errors, ttfts=[0.0] * 20 + [0.05] * 180, completed=180, failed=20)
    (trial,) = read(file)
    assert (trial.requests, trial.failed) == (200, 20)
    assert [r.error for r in trial.records[:2]] == ["Connection refused"] * 2
    assert judged(trial, "ttft_s:p95<=0.1")[0].verdict == "missed"


def test_vllm_with_sums_alone_proves_nothing() -> None:
    file = samples.vllm()
    for key in ("start_times", "ttfts", "itls", "input_lens", "output_lens", "errors"):
        del file[key]
    (trial,) = read(file | {"request_rate": "inf", "max_concurrency": 8})
    assert (trial.loop, trial.concurrency, trial.records) == ("closed", 8, ())
    within, beyond, absent = judged(trial, "ttft_s:p99<=0.1", "ttft_s:p99<=0.01", "ttft_s:p95<=0.1")
    assert (within.verdict, within.reported) == ("not_proven", "within")
    assert (beyond.verdict, beyond.reported) == ("not_proven", "beyond")
    assert absent.verdict == "not_measured"
    assert "no p95" in absent.reason


def test_vllm_all_at_once_is_a_burst() -> None:
    (trial,) = read(samples.vllm(request_rate="inf"))
    assert (trial.loop, trial.asked_rate_per_s) == ("open", None)
    assert any("burst" in note for note in trial.notes)


def test_chunks_of_several_tokens_do_not_hide_throughput() -> None:
    (trial,) = read(samples.vllm(itls=[[0.01]] * 200))
    (status,) = judged(trial, "output_tok_s:mean>=3.9")
    assert (status.verdict, status.reported, status.value) == ("not_proven", "within", 4.0)


def test_vllm_counts_the_wait_in_its_own_queue_where_the_file_has_it() -> None:
    waits = [0.0] * 100 + [0.5] * 100
    (trial,) = read(samples.vllm(max_concurrency=4, queue_times=waits))
    assert (trial.loop, trial.asked_rate_per_s, trial.concurrency) == ("open", 1.0, 4)
    assert trial.records[0].intended_s == trial.records[0].sent_s
    assert trial.records[-1].sent_s - trial.records[-1].intended_s == pytest.approx(0.5)
    assert any("own queue is counted" in note for note in trial.notes)
    assert judged(trial, "ttft_s:p95<=0.1")[0].verdict == "missed"
    # Without a rate nobody was due at any time, so there is no wait to count.
    (burst,) = read(samples.vllm(request_rate="inf", max_concurrency=4, queue_times=waits))
    assert (burst.loop, burst.records[-1].intended_s) == ("closed", burst.records[-1].sent_s)
    with pytest.raises(ImportRefused, match="queue_times"):
        read(samples.vllm(queue_times=[0.0]))


def test_failures_that_the_file_does_not_count_are_not_none_at_all() -> None:
    file = samples.vllm()
    del file["failed"], file["num_prompts"]
    assert read(file)[0].failed is None


def test_guidellm_gives_a_trial_for_each_rate_and_no_single_gaps() -> None:
    constant, streams = read(samples.guidellm())
    assert constant.basis == "imported: guidellm 0.8.1"
    assert (constant.loop, constant.asked_rate_per_s) == ("open", 5.0)
    assert (streams.loop, streams.concurrency) == ("closed", 8)
    assert (constant.requests, constant.failed) == (100, 10)
    assert constant.metric("ttft_s").p95 == pytest.approx(0.25)
    assert constant.metric("e2e_s").mean == 1.5
    assert constant.metric("tpot_s").mean == pytest.approx(0.009)
    assert "mean gap" in constant.metric("itl_s").reason
    assert any("2 requests were cut off" in note for note in constant.notes)
    assert streams.duration_s.reason == "not in the file"
    (status,) = judged(constant, "ttft_s:p95<=0.3")
    assert "10 of 100 requests failed" in status.reason


def test_guidellm_0_8_names_the_model_in_its_backend_and_warns() -> None:
    file = samples.guidellm()
    one = file["benchmarks"][0]
    one["config"] = {
        "strategy": {"type_": "poisson", "rate": 5.0, "max_concurrency": 64},
        "backend": {"kind": "openai_http", "model": "Qwen/Qwen3-8B"},
    }
    one["warnings"] = [{"code": "late", "message": "Requests were dispatched late"}, 7]
    trial = read(file)[0]
    assert trial.model == "Qwen/Qwen3-8B"
    assert (trial.loop, trial.asked_rate_per_s, trial.concurrency) == ("closed", 5.0, 64)
    assert "guidellm warns: Requests were dispatched late" in trial.notes
    file["benchmarks"][1]["config"] = {"strategy": {"type_": "trace"}}
    replayed = read(file | {"config": {"backend": {"model": "m2"}}})[1]
    assert (replayed.loop, replayed.asked_rate_per_s, replayed.model) == ("open", None, "m2")


def test_guidellm_zeros_of_a_run_without_success_are_absent() -> None:
    totals = {"successful": 0, "errored": 5, "incomplete": 0, "total": 5}
    trial = read(samples.guidellm(request_totals=totals))[0]
    assert trial.metric("ttft_s").reason == "no request succeeded"


def test_aiperf_reads_units_and_both_layouts() -> None:
    (trial,) = read(samples.aiperf())
    assert trial.basis == "imported: aiperf 0.13.0"
    assert (trial.requests, trial.failed, trial.concurrency) == (503, 3, 16)
    assert trial.metric("ttft_s").p95 == pytest.approx(0.13)
    assert trial.metric("ttft_s").n == 500
    assert trial.metric("itl_s").reason.endswith("--streaming")
    assert trial.duration_s.value == 50.0
    deeper = {"records": samples.aiperf(), "aiperf_version": "0.2"}
    assert read(deeper)[0].metric("e2e_s").p50 == pytest.approx(0.88)
    with pytest.raises(ImportRefused, match=r"request_latency\.unit"):
        read(samples.aiperf(request_latency=samples.block("fortnights", 1.0)))


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        ({"type": "concurrency", "concurrency": 16}, ("closed", None, 16)),
        ({"type": "poisson", "rate": 5.0}, ("open", 5.0, None)),
        ({"type": "constant", "rate": 5.0, "concurrency": 8}, ("closed", 5.0, 8)),
        ({"type": "user_centric", "rate": 5.0, "users": 3}, ("closed", 5.0, 3)),
        ({"type": "fixed_schedule"}, ("open", None, None)),
        ({"type": "concurrency", "concurrency": [1, 2]}, ("unknown", None, None)),
    ],
)
def test_aiperf_0_13_tells_its_load_in_phases(phase: dict, expected: tuple) -> None:
    config = {
        "models": {"strategy": "round_robin", "items": [{"name": "Qwen/Qwen3-8B"}]},
        "endpoint": {"urls": ["http://server:8000"]},
        "phases": [
            {"name": "warmup", "kind": "warmup", "type": "concurrency", "concurrency": 2},
            {"name": "profiling", "kind": "profiling", **phase},
        ],
    }
    (trial,) = read(
        samples.aiperf(
            input_config=config, run_info={"run_label": "concurrency_16"}, is_complete=False
        )
    )
    assert (trial.loop, trial.asked_rate_per_s, trial.concurrency) == expected
    assert (trial.model, trial.label) == ("Qwen/Qwen3-8B", "concurrency_16")
    assert any("incomplete" in note for note in trial.notes)
    config["phases"].append({"name": "second", "kind": "profiling", **phase})
    assert read(samples.aiperf(input_config=config))[0].loop == "unknown"


def test_locust_knows_whole_requests_only() -> None:
    (trial,) = read_import(samples.LOCUST.encode())
    assert (trial.loop, trial.requests, trial.failed) == ("closed", 1000, 5)
    assert trial.metric("e2e_s").p95 == pytest.approx(0.45)
    assert trial.metric("ttft_s").reason == "Locust times whole requests only"
    assert trial.output_tok_s.reason == "Locust counts no tokens"
    (history,) = read_import(b"\xef\xbb\xbf" + samples.LOCUST_HISTORY.encode())
    assert (history.concurrency, history.requests, history.duration_s.value) == (100, 960, 60.0)
    assert history.metric("e2e_s").mean == pytest.approx(0.31)
    assert history.metric("e2e_s").p95 is None
    assert judged(trial, "memory_bytes:peak<=1e9")[0].verdict == "not_measured"


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (b"", "file"),
        (b"\xff\xfe\x00", "file"),
        (b"{", "file"),
        (b"[1]", "file"),
        (b'{"a": 1}', "file"),
        (b"[" * 200_000, "file"),
        (json.dumps(samples.vllm()).replace("1000.0", "NaN", 1).encode(), "file"),
        (json.dumps(samples.vllm(completed="many")).encode(), "completed"),
        (json.dumps(samples.vllm(completed=1.5)).encode(), "completed"),
        (json.dumps(samples.vllm(completed=True)).encode(), "completed"),
        (json.dumps(samples.vllm(mean_ttft_ms=-1)).encode(), "mean_ttft_ms"),
        (json.dumps(samples.vllm(duration=10**400)).encode(), "duration"),
        (json.dumps(samples.vllm(ttfts=[1.0])).encode(), "ttfts"),
        (json.dumps(samples.vllm(ttfts=[None] * 200)).encode(), "ttfts.0"),
        (json.dumps(samples.vllm(itls=[7] * 200)).encode(), "itls.0"),
        (json.dumps(samples.vllm(errors={"a": 1})).encode(), "errors"),
        (json.dumps({"benchmarks": []}).encode(), "benchmarks"),
        (json.dumps({"benchmarks": [3]}).encode(), "benchmarks.0"),
        (json.dumps({"benchmarks": [{}] * 201}).encode(), "benchmarks"),
        (json.dumps({"benchmarks": [{}]}).encode(), "benchmarks.0.metrics"),
        (
            json.dumps(samples.guidellm(time_to_first_token_ms=4)).encode(),
            "benchmarks.0.metrics.time_to_first_token_ms",
        ),
        (json.dumps(samples.aiperf(request_count=None)).encode(), "request_count"),
        (samples.LOCUST.replace("1000,5", "x,5").encode(), "Request Count"),
        (samples.LOCUST.replace("Aggregated", "All").encode(), "Name"),
        (samples.LOCUST.replace("320.5", "nan").encode(), "Average Response Time"),
    ],
)
def test_a_wrong_file_names_the_field(content: bytes, field: str) -> None:
    with pytest.raises(ImportRefused) as refused:
        read_import(content)
    assert refused.value.field == field
    assert len(str(refused.value)) < 600


def test_the_command_judges_and_tells_where_the_numbers_come_from(capsys, tmp_path) -> None:
    file = tmp_path / "result.json"
    file.write_text(json.dumps(samples.vllm()))
    assert main(["import", str(file), "--target", "ttft_s:p95<=0.1"]) == 0
    shown = capsys.readouterr().out
    assert "imported: vllm bench serve" in shown
    assert "not measured by an agent" in shown
    assert "TTFT p95 ≤ 100 ms: met" in shown
    assert main(["import", str(file), "--target", "ttft_s:p95<=0.01", "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)
    assert found["targets"][0]["verdict"] == "missed"
    assert found["single_requests"] == 200
    file.write_text(json.dumps(samples.guidellm()))
    assert main(["import", str(file), "--target", "ttft_s:p95<=1"]) == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["/no/such"], "cannot be read"),
        (["README.md"], "none of"),
        (["README.md", "--target", "ttft_s<=1"], "target"),
        (["README.md", "--target", "ttft_s:p95>=1"], "target"),
    ],
)
def test_a_wrong_call_is_one_line_and_exit_code_2(capsys, arguments, words) -> None:
    assert main(["import", *arguments]) == 2
    shown = capsys.readouterr().err.strip()
    assert words in shown
    assert "\n" not in shown


def test_what_is_kept_is_sent_to_the_server_and_named(capsys, tmp_path, monkeypatch) -> None:
    sent = []

    def respond(request: httpx.Request) -> httpx.Response:
        study = {"id": "1", "number": 7, "name": "Nightly", "dashboard": "http://server/studies/1/"}
        study["existed"] = bool(sent)
        sent.append(json.loads(request.content))
        return httpx.Response(200, json={"trials": [], "studies": [study]})

    client = ApiClient("http://server", "ta_x", transport=httpx.MockTransport(respond))
    monkeypatch.setattr(ApiClient, "from_environment", lambda: client)
    file = tmp_path / "stats.csv"
    file.write_text(samples.LOCUST)
    args = ["import", str(file), "--keep", "--name", "Nightly", "--hardware", "H100 SXM"]
    assert main([*args, "--target", "e2e_s:p95<=1"]) == 3
    assert "Kept as study 7: http://server/studies/1/" in capsys.readouterr().out
    main(args)
    assert "Kept before as study 7:" in capsys.readouterr().out
    body, _ = sent
    assert (body["keep"], body["name"], body["hardware"]) == (True, "Nightly", "H100 SXM")
    assert body["content"] == samples.LOCUST
    assert [target["metric"] for target in body["targets"]] == ["e2e_s"]
    monkeypatch.setattr("advisor.cli.import_results.KEPT_BYTES", 10)
    assert main(args) == 2
    assert "up to 20 MB are taken" in capsys.readouterr().err.replace("\n", " ")
    assert len(sent) == 2
