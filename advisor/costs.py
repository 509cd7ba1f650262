"""What the hour of a configuration costs: the GPUs that it takes, and their price. Pure."""

from __future__ import annotations

from advisor.catalog import PriceBasis, price_basis
from advisor.catalog.names import UnknownNameError
from advisor.evidence import StudyEvidence, TrialEvidence
from gpuagent.wire.settings import MANAGED_SERVERS
from gpuagent.wire.trial import BaselineResult


def gpu_price(evidence: StudyEvidence) -> PriceBasis | None:
    """USD per hour of one GPU of the study: the organisation's own price, else the catalogue's.

    None for a processor, for a GPU without a price, for a simulated one and for an endpoint, which
    runs on a GPU that nobody named.
    """
    device, engine = evidence.device, evidence.spec.engine
    if engine in ("openai", "simulated") or device is None or device.kind != "gpu":
        return None
    try:
        return price_basis(device.name, overrides=evidence.prices)
    except UnknownNameError:
        return None


def gpus_of(evidence: StudyEvidence, trial: TrialEvidence) -> int:
    """GPUs that the trial's settings take of the host; 1 on a processor.

    A server tells no devices and takes as many as its degrees say; a model in the agent's process
    names the one that it is on, or takes all.
    """
    device, result = evidence.device, trial.measured(BaselineResult)
    if evidence.spec.engine in MANAGED_SERVERS:
        return trial.settings.gpus
    if device is None or (result is not None and result.model.device.startswith("cuda:")):
        return 1
    return max(1, device.count)
