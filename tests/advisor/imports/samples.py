"""Small results as each tool writes them; field names as in the tools' own sources."""

from __future__ import annotations

from typing import Any


def vllm(count: int = 200, **changes: Any) -> dict[str, Any]:
    """With --save-result --save-detailed: 1 request a second, TTFT 50 ms, gaps of 10 ms."""
    return {
        "date": "20260101-120000",
        "endpoint_type": "openai",
        "label": None,
        "model_id": "Qwen/Qwen3-0.6B",
        "num_prompts": count,
        "request_rate": 1.0,
        "burstiness": 1.0,
        "max_concurrency": None,
        "duration": float(count),
        "completed": count,
        "failed": 0,
        "total_input_tokens": 32 * count,
        "total_output_tokens": 4 * count,
        "request_throughput": 1.0,
        "request_goodput": None,
        "output_throughput": 4.0,
        "total_token_throughput": 36.0,
        "mean_ttft_ms": 50.0,
        "median_ttft_ms": 50.0,
        "std_ttft_ms": 0.0,
        "p99_ttft_ms": 50.0,
        "mean_itl_ms": 10.0,
        "median_itl_ms": 10.0,
        "p99_itl_ms": 10.0,
        "mean_tpot_ms": 10.0,
        "median_tpot_ms": 10.0,
        "p99_tpot_ms": 10.0,
        "start_times": [1000.0 + i for i in range(count)],
        "input_lens": [32] * count,
        "output_lens": [4] * count,
        "ttfts": [0.05] * count,
        "itls": [[0.01] * 3] * count,
        "errors": [""] * count,
    } | changes


def summary(mean: float, median: float, p95: float, p99: float) -> dict[str, Any]:
    found = {"mean": mean, "median": median, "percentiles": {"p50": median, "p95": p95, "p99": p99}}
    return {"successful": found, "errored": None}


def guidellm(**changes: Any) -> dict[str, Any]:
    metrics = {
        "request_totals": {"successful": 90, "errored": 10, "incomplete": 2, "total": 102},
        "requests_per_second": summary(4.5, 4.4, 5, 6),
        "output_tokens_per_second": summary(300, 290, 400, 500),
        "time_to_first_token_ms": summary(120, 100, 250, 400),
        "inter_token_latency_ms": summary(9, 8, 12, 20),
        "time_per_output_token_ms": summary(15, 14, 30, 40),
        "request_latency": summary(1.5, 1.4, 2.5, 3.0),
    }
    return {
        "metadata": {"version": 1, "guidellm_version": "0.8.1"},
        "benchmarks": [
            {
                "config": {"strategy": {"type_": "constant", "rate": 5.0}, "model": "m"},
                "duration": 20.0,
                "metrics": metrics | changes,
            },
            {"config": {"strategy": {"type_": "concurrent", "streams": 8}}, "metrics": metrics},
        ],
    }


def block(unit: str, avg: float, **more: float) -> dict[str, Any]:
    return {"unit": unit, "avg": avg} | more


def spread(avg: float, p50: float, p90: float, p95: float, p99: float) -> dict[str, Any]:
    return block("ms", avg, p50=p50, p90=p90, p95=p95, p99=p99, count=500)


def aiperf(**changes: Any) -> dict[str, Any]:
    return {
        "schema_version": "1.0",
        "aiperf_version": "0.13.0",
        "input_config": {
            "endpoint": {"model_names": ["m"]},
            "loadgen": {"concurrency": 16, "request_rate": None},
        },
        "request_count": block("requests", 500.0),
        "error_request_count": block("requests", 3.0),
        "benchmark_duration": block("sec", 50.0),
        "request_throughput": block("requests/sec", 10.0),
        "output_token_throughput": block("tokens/sec", 640.0),
        "time_to_first_token": spread(80.0, 75.0, 110.0, 130.0, 200.0),
        "inter_token_latency": spread(12.0, 11.0, 14.0, 16.0, 20.0),
        "request_latency": spread(900.0, 880.0, 1000.0, 1100.0, 1300.0),
    } | changes


LOCUST = """\
Type,Name,Request Count,Failure Count,Median Response Time,Average Response Time,Min Response Time,\
Max Response Time,Average Content Size,Requests/s,Failures/s,50%,66%,75%,80%,90%,95%,98%,99%,\
99.9%,99.99%,100%
POST,/v1/completions,1000,5,300,320.5,100,900,2000,16.5,0.1,300,320,340,350,400,450,500,600,800,900,900
,Aggregated,1000,5,300,320.5,100,900,2000,16.5,0.1,300,320,340,350,400,450,500,600,800,900,900
"""
LOCUST_HISTORY = """\
Timestamp,User Count,Type,Name,Requests/s,Failures/s,50%,66%,75%,80%,90%,95%,98%,99%,99.9%,99.99%,\
100%,Total Request Count,Total Failure Count,Total Median Response Time,\
Total Average Response Time,Total Min Response Time,Total Max Response Time,\
Total Average Content Size
1700000000,0,,Aggregated,0,0,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,0,0,0,0,0,0,0
1700000060,100,,Aggregated,16,0,300,320,340,350,400,450,500,600,800,900,900,960,4,300,310.0,100,900,2000
"""
