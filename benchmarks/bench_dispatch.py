"""Seconds from submission to the start of a trial on an idle local agent, with and without broker.

Real processes with the default intervals: web server, worker, broker, agent. Both times are stamped
by the server: the study's creation and the claim of its first trial. Each study is cancelled once
its trial runs, and the next is submitted when the agent is idle again.

python benchmarks/bench_dispatch.py [--studies 30] [--without-broker 10]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from advisor.cli.api_client import ApiClient
from advisor.ops.stack import REPO_DIR, Stack, StackConfig, free_port
from gpuagent.stats.quantiles import nearest_rank

MODEL = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "max_position_embeddings": 2048,
    "torch_dtype": "float32",
    "tie_word_embeddings": True,
}
BOOT = REPO_DIR / "tests" / "stack" / "boot.py"


def submit_to_start_s(api: ApiClient) -> float:
    """One study, from its creation to the claim of its trial; then cancelled and waited for."""
    study = api.post(
        "studies",
        {
            "name": "dispatch",
            "model": {"kind": "config", "name": "tiny", "config": MODEL},
            "workload": {
                "preset": "chat",
                "input_tokens": {"mean": 16},
                "output_tokens": {"mean": 16},
                "requests": 20,
            },
            "agent": "bench",
            "budget_s": 15,
        },
    )
    started = None
    while started is None:
        time.sleep(0.05)
        (trial,) = api.get(f"studies/{study['id']}/trials")["results"]
        started = trial["started_at"]
    api.post(f"studies/{study['id']}/cancel")
    while api.get(f"studies/{study['id']}")["state"] not in ("finished", "cancelled"):
        time.sleep(0.2)
    # The agent confirms the end of its trial a moment after the study ended.
    time.sleep(1.0)
    return _seconds(started) - _seconds(study["created_at"])


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def report(name: str, values: list[float]) -> None:
    ordered = sorted(values)
    p50, p95 = (ordered[nearest_rank(len(ordered), q)] for q in (0.5, 0.95))
    longest, n = ordered[-1], len(ordered)
    print(f"{name}: p50 {p50:.3f} s, p95 {p95:.3f} s, longest {longest:.3f} s, {n=}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=30)
    parser.add_argument("--without-broker", type=int, default=10)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = StackConfig(data_dir=Path(folder), web_port=free_port(), broker_port=free_port())
        config.model_dir.mkdir()
        secrets = json.loads(_run([str(BOOT)], config))
        stack = Stack(config)
        try:
            stack.start("broker")
            stack.wait_for_broker()
            stack.start("web")
            stack.start("worker")
            stack.wait_for_web()
            join = ["--server", config.url, "--token", secrets["registration_token"]]
            _run(["-m", "gpuagent", "register", *join, "--name", "bench"], config)
            stack.start("agent")
            api = ApiClient(config.url, secrets["api_token"])
            submit_to_start_s(api)  # the agent's own start is not part of it
            report("with the broker", [submit_to_start_s(api) for _ in range(args.studies)])
            stack.kill("broker", signal.SIGKILL)
            submit_to_start_s(api)
            report("without it", [submit_to_start_s(api) for _ in range(args.without_broker)])
        finally:
            stack.stop()
    return 0


def _run(arguments: list[str], config: StackConfig) -> str:
    done: Any = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **config.env()},
        cwd=REPO_DIR,
        capture_output=True,
        text=True,
        check=True,
    )
    return str(done.stdout)


if __name__ == "__main__":
    raise SystemExit(main())
