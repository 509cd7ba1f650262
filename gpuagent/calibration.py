"""The agent's own ceilings: measured in a child process, kept on disk, sent with the hello."""

from __future__ import annotations

import contextlib
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from gpuagent.config import AgentConfig
from gpuagent.errors import ConfigError
from gpuagent.isolate import TrialProcess, write_atomically
from gpuagent.wire import ConfigModel, LengthSpec, TrialEvent, TrialSpec, Workload, parse_from_peer
from gpuagent.wire.ceilings import Ceilings
from gpuagent.wire.inside import CalibrateConfig, CalibrateResult

FILE = "ceilings.json"
LIMIT_S = 300.0


def stored(state_dir: Path) -> Ceilings | None:
    """The last calibration, or None before the first and where the file cannot be read."""
    try:
        import json

        return parse_from_peer(Ceilings, json.loads((state_dir / FILE).read_bytes()))
    except (OSError, ValueError, ValidationError):
        return None


def calibrate(config: AgentConfig, on_event: Callable[[TrialEvent], None]) -> Ceilings:
    """Measure now (10 s to a minute) and store. Raises ConfigError with what went wrong."""
    spec = TrialSpec(
        trial_id=str(uuid.uuid4()),
        # Nothing is loaded: the ceilings are the device's own.
        model=ConfigModel(name="none", config={"model_type": "llama"}),
        workload=Workload(
            preset="api", input_tokens=LengthSpec(mean=1), output_tokens=LengthSpec(mean=1)
        ),
        config=CalibrateConfig(),
        timeout_s=LIMIT_S,
    )
    with tempfile.TemporaryDirectory(prefix="gpuagent-calibrate-") as folder:
        process = TrialProcess.start(spec, Path(folder))
        try:
            while not process.wait(0.2):
                for event in process.poll_events():
                    on_event(event)
            outcome = process.outcome()
        finally:
            process.kill()
    measured = outcome.result.measurements if outcome.result is not None else None
    if outcome.failure is not None or not isinstance(measured, CalibrateResult):
        reason = outcome.failure.message if outcome.failure is not None else outcome.status
        raise ConfigError(f"the device could not be calibrated: {reason}")
    config.state_dir.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError):
        write_atomically(config.state_dir / FILE, measured.ceilings.model_dump_json())
    return measured.ceilings
