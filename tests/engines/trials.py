"""Trials of real engines, as the agent starts them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpuagent.demo_model import NAME
from gpuagent.isolate import TrialProcess
from gpuagent.wire import TrialOutcome, TrialSpec
from gpuagent.wire.trial import ServeResult

SETTINGS: dict[str, dict[str, Any]] = {
    "vllm": {"dtype": "float32", "cuda_graphs": False, "max_context": 1024},
    "transformers_serve": {"dtype": "float32"},
}


def spec(engine: str, config: dict[str, Any] | None = None, **settings: Any) -> TrialSpec:
    return TrialSpec.model_validate(
        {
            "trial_id": "0" * 8 + "-0000-4000-8000-" + "0" * 12,
            "model": {"kind": "local", "name": NAME},
            "engine": engine,
            "settings": {**SETTINGS[engine], **settings},
            "workload": {
                "preset": "chat",
                "input_tokens": {"mean": 48},
                "output_tokens": {"mean": 24},
                "requests": 24,
            },
            "config": config or {"experiment": "serve", "streams": 4},
            "timeout_s": 400,
        }
    )


def started(asked: TrialSpec, models: Path, work: Path) -> TrialProcess:
    return TrialProcess.start(asked, work, model_roots=[models])


def finished(process: TrialProcess, *, until_s: float = 450) -> TrialOutcome:
    deadline = time.monotonic() + until_s
    while not process.wait(0.2):
        process.poll_events()
        assert time.monotonic() < deadline, "the trial did not end"
    return process.outcome()


def served(outcome: TrialOutcome) -> ServeResult:
    assert outcome.failure is None, outcome.failure
    assert outcome.result is not None
    assert isinstance(outcome.result.measurements, ServeResult)
    return outcome.result.measurements


def within(seconds: float, what: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
