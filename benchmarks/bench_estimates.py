"""Times of one estimate and of a batch of 1,000, with the reference predictor's beside them.

python benchmarks/bench_estimates.py
"""

from __future__ import annotations

import importlib.util
import io
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from advisor.catalog import find_gpu
from advisor.estimates.batch import estimate_csv
from advisor.estimates.models import resolve_model
from advisor.estimates.service import EstimateRequest, estimate

HEADER = "model_path,system,backend,backend_version,precision,isl,osl,batch_size,tp_size,pp_size\n"
MODELS = ("Qwen/Qwen3-32B", "openai/gpt-oss-120b", "meta-llama/Llama-3.1-70B", "Qwen/Qwen3-8B")


def one_estimate_ms(repeats: int = 200) -> list[float]:
    """Milliseconds of single estimates in process, all with different loads."""
    request = EstimateRequest(resolve_model(MODELS[0]), find_gpu("H100 SXM"), tp=2)
    estimate(request)  # the coefficients are read once
    times = []
    for index in range(repeats):
        changed = EstimateRequest(
            request.model, request.gpu, tp=2, isl=500 + index, concurrency=1 + index
        )
        started = time.perf_counter()
        estimate(changed)
        times.append((time.perf_counter() - started) * 1e3)
    return times


def batch_s(rows: int = 1000) -> float:
    """Seconds of a batch over four models, 1,000 different loads."""
    text = HEADER + "".join(
        f"{MODELS[i % 4]},h200_sxm,vllm,0.19.0,fp8,{256 + i},512,{1 + i % 300},{2 << i % 3},1\n"
        for i in range(rows)
    )
    started = time.perf_counter()
    estimate_csv(io.StringIO(text), io.StringIO())
    return time.perf_counter() - started


def command_line_s() -> float:
    """Seconds of one estimate from a fresh process."""
    command = [sys.executable, "-m", "advisor.cli.main", "estimate", MODELS[0]]
    command += ["--gpu", "H100 SXM", "--tp", "2", "--json"]
    root = Path(__file__).resolve().parents[1]
    started = time.perf_counter()
    subprocess.run(command, cwd=root, check=True, capture_output=True)
    return time.perf_counter() - started


def reference() -> str:
    """The same question asked of aiconfigurator's command line, where it is installed."""
    if importlib.util.find_spec("aiconfigurator") is None:
        return (
            "aiconfigurator is not installed; published here for 0.12.0: 2.3 s repeated, 10 s cold"
        )
    command = ["aiconfigurator", "cli", "estimate", "--model-path", MODELS[0], "--system"]
    command += ["h100_sxm", "--backend", "vllm", "--batch-size", "16", "--tp-size", "2"]
    command += ["--isl", "1000", "--osl", "256"]
    started = time.perf_counter()
    done = subprocess.run(command, check=False, capture_output=True, timeout=300)
    took = time.perf_counter() - started
    if done.returncode != 0:
        return f"aiconfigurator answered with exit code {done.returncode} after {took:.1f} s"
    return f"aiconfigurator, command line: {took:.1f} s"


def main() -> int:
    single = one_estimate_ms()
    print(
        f"one estimate     median {statistics.median(single):.2f} ms, "
        f"slowest of {len(single)} {max(single):.2f} ms (target 5 ms)"
    )
    print(f"batch of 1,000   {batch_s():.2f} s (target 3 s)")
    print(f"command line     {command_line_s():.2f} s, cold")
    print(f"reference        {reference()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
