"""Types that cross the network between server and agents.

Imports the standard library and pydantic only, so that both sides, the tests and the command line
can read a trial without torch, Celery or Django. Every change of meaning raises `WIRE_VERSION`.
"""

from gpuagent.wire.agent import AgentHello, EnvironmentSnapshot, GpuInfo, HostInfo, InventoryModel
from gpuagent.wire.base import WIRE_VERSION, WireModel, parse_from_peer, wire_version_accepted
from gpuagent.wire.events import TrialEvent
from gpuagent.wire.failure import FAILURES, Failure, FailureReason
from gpuagent.wire.measure import Quantity, Samples
from gpuagent.wire.model import (
    ConfigModel,
    HubModel,
    ImportedModel,
    LocalModel,
    ModelRef,
    SimulatedModel,
)
from gpuagent.wire.settings import EngineSettings
from gpuagent.wire.sla import SlaTarget
from gpuagent.wire.study import StudySpec
from gpuagent.wire.telemetry import GpuSample, HostSample
from gpuagent.wire.trial import TrialOutcome, TrialResult, TrialSpec
from gpuagent.wire.workload import LengthSpec, Workload

__all__ = [
    "FAILURES",
    "WIRE_VERSION",
    "AgentHello",
    "ConfigModel",
    "EngineSettings",
    "EnvironmentSnapshot",
    "Failure",
    "FailureReason",
    "GpuInfo",
    "GpuSample",
    "HostInfo",
    "HostSample",
    "HubModel",
    "ImportedModel",
    "InventoryModel",
    "LengthSpec",
    "LocalModel",
    "ModelRef",
    "Quantity",
    "Samples",
    "SimulatedModel",
    "SlaTarget",
    "StudySpec",
    "TrialEvent",
    "TrialOutcome",
    "TrialResult",
    "TrialSpec",
    "WireModel",
    "Workload",
    "parse_from_peer",
    "wire_version_accepted",
]
