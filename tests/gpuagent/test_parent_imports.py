"""The daemon's side must start quickly and hold no CUDA: torch stays in the child."""

from __future__ import annotations

import subprocess
import sys

import pytest

PARENT_SIDE = (
    "gpuagent.isolate",
    "gpuagent.child",
    "gpuagent.models",
    "gpuagent.environment",
    "gpuagent.doctor",
    "gpuagent.telemetry.sampler",
    "gpuagent.daemon",
    "gpuagent.experiments",
    "gpuagent.engines",
    # The server simulates its sample study, without the agent's HTTP client.
    "gpuagent.simulated_trial",
)


@pytest.mark.parametrize("blocked", ["torch", "transformers"])
def test_the_parents_modules_import_neither_torch_nor_transformers(blocked: str) -> None:
    script = (
        "import sys\n"
        f"sys.modules[{blocked!r}] = sys.modules['httptools'] = None\n"
        + "".join(f"import {name}\n" for name in PARENT_SIDE)
        + "from pathlib import Path\n"
        "from gpuagent.environment import build_hello\n"
        "hello = build_hello([Path('/nonexistent')])\n"
        "from gpuagent.experiments import EXPERIMENTS\n"
        "assert hello.experiments == tuple(EXPERIMENTS), hello\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_an_agent_needs_nothing_of_the_server_or_of_locust() -> None:
    """`pip install '.[agent]'` brings none of these, and every trial imports the runner."""
    others = ("django", "rest_framework", "plotly", "prometheus_client", "locust", "gevent")
    script = (
        "import sys\n"
        + "".join(f"sys.modules[{name!r}] = None\n" for name in others)
        + "import gpuagent.runner\n"
        "from gpuagent.experiments import EXPERIMENTS, get_experiment\n"
        "from gpuagent.engines import SERVERS, create_server\n"
        "for name in EXPERIMENTS: get_experiment(name)\n"
        "for name in SERVERS: create_server(name).close()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
