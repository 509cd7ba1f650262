"""Registry of experiments: name -> module:function, imported only when a trial asks for it."""

from __future__ import annotations

from importlib import import_module

from gpuagent.errors import AgentError
from gpuagent.experiments.base import Experiment
from gpuagent.wire import FailureReason

EXPERIMENTS: dict[str, str] = {
    "attention": "gpuagent.experiments.attention:run",
    "baseline": "gpuagent.experiments.baseline:run",
    "batching": "gpuagent.experiments.batching:run",
    "calibrate": "gpuagent.experiments.calibrate:run",
    "kernels": "gpuagent.experiments.kernels:run",
    "kv_cache": "gpuagent.experiments.kv_cache:run",
    "profile": "gpuagent.experiments.profile:run",
    "quantisation": "gpuagent.experiments.quantisation:run",
    "robustness": "gpuagent.experiments.robustness:run",
    "serve": "gpuagent.experiments.serve:run",
    "tensor_parallel": "gpuagent.experiments.tensor_parallel:run",
    "verify": "gpuagent.experiments.verify:run",
}


def get_experiment(name: str) -> Experiment:
    """The function that runs `name`. Raises AgentError(config_error) for an unknown name."""
    if name not in EXPERIMENTS:
        known = ", ".join(sorted(EXPERIMENTS))
        message = f"experiment: {name} is unknown; known: {known}"
        raise AgentError(FailureReason.CONFIG_ERROR, message)
    module_name, _, function_name = EXPERIMENTS[name].partition(":")
    experiment: Experiment = getattr(import_module(module_name), function_name)
    return experiment
