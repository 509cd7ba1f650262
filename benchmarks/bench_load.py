"""How fast and how true the load client is, against the project's own mock in a second process.

Zero latency: requests a second in a closed loop, the most the client can do. 100 ms / 10 ms: how
far the measured times lie from what the mock was told; part of that is the mock's own.

python benchmarks/bench_load.py [--streams 64] [--requests 20000] [--with-locust]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from gpuagent import text
from gpuagent.load.arrivals import arrival_times
from gpuagent.load.client import Endpoint
from gpuagent.load.driver import LoadRun, run_load
from gpuagent.load.locust_run import run_users
from gpuagent.load.options import add_parsers
from gpuagent.load.plan import Asked, Planner, TextPrompts, read_lengths
from gpuagent.load.selfcheck import check_client
from gpuagent.request_metrics import request_metrics

TTFT_S, ITL_S = 0.100, 0.010
OUTPUT_TOKENS = 16


def planner(seed: int = 0) -> Planner:
    return Planner(
        input_tokens=read_lengths("64"),
        output_tokens=read_lengths(str(OUTPUT_TOKENS)),
        prompts=TextPrompts(text.built_in().text),
        asked=Asked("mock"),
        seed=seed,
    )


@contextmanager
def mock(*arguments: str) -> Iterator[str]:
    command = [sys.executable, "-m", "gpuagent", "mock", "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found is not None, "the mock did not start"
        try:
            yield found[0]
        finally:
            process.send_signal(signal.SIGTERM)


def closed(url: str, streams: int, requests: int) -> LoadRun:
    source = planner()
    planned = [source.next() for _ in range(requests)]
    return run_load(Endpoint.parse(url, "/v1/completions"), planned, streams=streams)


def errors_ms(run: LoadRun, *, from_intended: bool) -> dict[str, float]:
    """Measured minus set, in ms."""
    metrics = request_metrics(run.records)
    ttft_s = metrics.ttft_s if from_intended else metrics.ttft_s - metrics.queue_s
    ttft, itl = (ttft_s - TTFT_S) * 1e3, (metrics.itl_s - ITL_S) * 1e3
    return {
        "ttft_mean": float(ttft.mean()),
        "ttft_p99": float(np.quantile(ttft, 0.99)),
        "itl_mean": float(itl.mean()),
        "itl_p99": float(np.quantile(itl, 0.99)),
        "send_lag_p99": float(np.quantile(metrics.queue_s, 0.99) * 1e3),
    }


def row(run: LoadRun) -> dict[str, Any]:
    good = sum(record.error is None for record in run.records)
    return {
        "requests": len(run.records),
        "succeeded": good,
        "requests_per_s": round(good / run.wall_s, 1),
        "client_cpu_cores": round(run.cpu_frac, 2),
        "client_verdict": check_client(run).verdict,
    }


def locust(url: str, users: int) -> LoadRun:
    parser = argparse.ArgumentParser()
    add_parsers(parser.add_subparsers())
    args = parser.parse_args(
        ["load", "--url", url, "--model", "mock", "--users", str(users), "--run-time", "10s",
         "--spawn-rate", str(users), "--input-tokens", "64", "--output-tokens", str(OUTPUT_TOKENS)]
    )  # fmt: skip
    return run_users(args, key=None, should_stop=lambda: False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--with-locust", action="store_true")
    args = parser.parse_args()
    found: dict[str, Any] = {"cores": os.cpu_count(), "load_average": os.getloadavg()[0]}
    with mock() as url:
        closed(url, args.streams, 1000)
        found["zero_latency"] = [row(closed(url, args.streams, args.requests)) for _ in range(3)]
        if args.with_locust:
            found["zero_latency_locust"] = row(locust(url, args.streams))
    with mock("--ttft", str(TTFT_S), "--itl", str(ITL_S)) as url:
        run = closed(url, args.streams, args.streams * 40)
        found["closed_100_10"] = row(run) | errors_ms(run, from_intended=True)
        # As many in flight on average as in the closed loop.
        rate = args.streams / (TTFT_S + (OUTPUT_TOKENS - 1) * ITL_S)
        times = arrival_times("poisson", rate, round(rate * 10), seed=1)
        run = run_load(Endpoint.parse(url, "/v1/completions"), planner(1).at_times(times))
        found["open_100_10"] = row(run) | {"rate": rate} | errors_ms(run, from_intended=True)
        if args.with_locust:
            run = locust(url, args.streams)
            found["locust_100_10"] = row(run) | errors_ms(run, from_intended=True)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
