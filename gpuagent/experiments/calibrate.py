"""The ceilings of the device: bandwidth, matrix rates, launch latency, transfers.

Loads no model. Every efficiency of other experiments is relative to what is measured here.
"""

from __future__ import annotations

from gpuagent.errors import AgentError
from gpuagent.experiments.base import RunContext
from gpuagent.experiments.progress import Progress
from gpuagent.wire import FailureReason
from gpuagent.wire.inside import CalibrateConfig, CalibrateResult


def run(context: RunContext) -> CalibrateResult:
    """Measure every ceiling of the first device, best of the repeats."""
    import torch

    from gpuagent.lab import ceilings

    config = context.spec.config
    if not isinstance(config, CalibrateConfig):
        message = f"config: {config.experiment} is not calibrate"
        raise AgentError(FailureReason.CONFIG_ERROR, message)
    progress = Progress(emit=context.emit, clock=context.clock, phases={"measure": 20})
    if context.spec.settings.threads:
        torch.set_num_threads(context.spec.settings.threads)
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    context.begin_measuring()
    progress.enter("measure", "Measuring what the device can do at most")
    found = ceilings.measure(
        device,
        repeats=config.repeats,
        size_frac=config.size_frac,
        tick=context.tick,
        on_entry=lambda done, total: progress.advance(done, total, f"Ceiling {done} of {total}"),
    )
    return CalibrateResult(ceilings=found)
