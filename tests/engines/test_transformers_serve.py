"""A real `transformers serve` on this CPU: loaded, its options taken, its refusals named."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from gpuagent.environment import server_versions
from gpuagent.launch import FLAGS, Flag, Switch
from gpuagent.pythons import python_of
from gpuagent.wire import FailureReason
from tests.engines.trials import finished, served, spec, started

VERSION = server_versions().get("transformers_serve")
pytestmark = [
    pytest.mark.engines,
    pytest.mark.timeout(400),
    pytest.mark.skipif(VERSION is None, reason="no transformers serve here: make test-engines"),
]


def test_it_is_loaded_and_its_boundary_looked_for(models: Path, tmp_path: Path) -> None:
    config = {
        "experiment": "serve",
        "streams": 2,
        "boundary_points": 3,
        "point_s": 6,
        "targets": [{"metric": "ttft_s", "statistic": "p90", "limit": 1.0}],
    }
    asked = spec("transformers_serve", config, max_batched_tokens=256, memory_share_frac=0.1)
    found = served(finished(started(asked, models, tmp_path / "work")))
    assert found.served.version == VERSION
    assert len(found.requests) == 24
    # Greedy answers may end early, since this server knows no option against it.
    assert all(request.error is None and request.output_tokens >= 1 for request in found.requests)
    assert found.boundary is not None
    assert found.boundary.points
    # It has no metrics: whatever only the server can say is missing with a reason.
    assert found.served.timeline is None
    assert found.served.timeline_reason
    assert all(count.server is None and count.reason for count in found.served.counts)
    peak = found.peak_memory_bytes.value
    assert peak is not None
    assert peak > found.model.stored_weight_bytes


def test_every_option_that_is_printed_exists() -> None:
    python = python_of("transformers", "GPUAGENT_TRANSFORMERS_PYTHON")
    assert python is not None
    command = [python, "-m", "transformers.cli.transformers", "serve", "--help"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    known = set(re.findall(r"--[a-z][a-z-]+", told))
    used = {word for flag in FLAGS["transformers_serve"].values() for word in _words(flag)}
    assert used - known == set()


def _words(flag: Flag | Switch) -> list[str]:
    words = (flag.flag,) if isinstance(flag, Flag) else (*flag.on, *flag.off)
    return [word for word in words if word.startswith("--")]


def test_a_cache_without_room_is_named_and_not_waited_for(models: Path, tmp_path: Path) -> None:
    # A cache that holds nothing.
    asked = spec("transformers_serve", memory_share_frac=1e-6)
    outcome = finished(started(asked, models, tmp_path / "work"))
    assert outcome.failure is not None
    assert outcome.failure.reason is FailureReason.OUT_OF_MEMORY
    assert "max_batch_tokens" in outcome.failure.message
