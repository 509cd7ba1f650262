"""What an agent says about itself and about the machine a result was measured on."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from gpuagent.wire.base import WireModel
from gpuagent.wire.ceilings import Ceilings
from gpuagent.wire.units import Bytes, Name, Text


class GpuInfo(WireModel):
    """One GPU as NVML names it."""

    index: Annotated[int, Field(ge=0)]
    uuid: Name
    name: Name
    memory_bytes: Bytes | None = None
    compute_capability: Name | None = None
    power_limit_w: float | None = None
    mig: bool = False


class HostInfo(WireModel):
    """The machine beside its GPUs."""

    hostname: Name
    cpu: Name
    physical_cores: Annotated[int, Field(ge=1)] | None = None
    logical_cores: Annotated[int, Field(ge=1)]
    memory_bytes: Bytes
    os: Name


class InventoryModel(WireModel):
    """A model folder below one of the agent's model roots.

    config: the parsed config.json, or None where it is missing or unreadable.
    problem: why a study cannot use the folder (no config, pickled weights, own code), or None.
    """

    name: Name
    config: dict[str, Any] | None = None
    weights: Annotated[str, Field(max_length=40)] | None = None
    weight_bytes: Bytes | None = None
    problem: Text | None = None


class AgentHello(WireModel):
    """Sent at registration, at every start and whenever something in it changes.

    architectures: `model_type`s that the in-process engine can build; empty means not known.
    endpoints: names of servers that somebody else runs and that this agent may be sent to.
    ceilings: of the last `gpuagent calibrate`, None before the first.
    """

    agent_version: Name
    wire_version: Annotated[int, Field(ge=1)]
    host: HostInfo
    gpus: tuple[GpuInfo, ...] = ()
    driver_version: Name | None = None
    versions: dict[str, str] = {}
    engines: tuple[Name, ...] = ()
    experiments: tuple[Name, ...] = ()
    architectures: Annotated[tuple[Name, ...], Field(max_length=2000)] = ()
    models: Annotated[tuple[InventoryModel, ...], Field(max_length=500)] = ()
    problems: tuple[Text, ...] = ()
    endpoints: Annotated[tuple[Name, ...], Field(max_length=100)] = ()
    ceilings: Ceilings | None = None


class EnvironmentSnapshot(WireModel):
    """Provenance of a result: a number without it cannot be compared with another.

    host: None where another tool measured, whose file does not tell.
    """

    host: HostInfo | None
    gpus: tuple[GpuInfo, ...] = ()
    driver_version: Name | None = None
    device: Name
    versions: dict[str, str] = {}
    threads: int | None = None
    settings: dict[str, str] = {}
