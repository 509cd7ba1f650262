"""Which model a study is about. A model id or a name is data, never a path or code."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from gpuagent.wire.base import WireModel
from gpuagent.wire.units import Name, TypedName

HubId = Annotated[
    str, StringConstraints(pattern=r"^[\w.-]{1,96}/[\w.-]{1,96}$", strip_whitespace=True)
]
Revision = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]


class HubModel(WireModel):
    """A model on the Hugging Face hub, downloaded by the agent."""

    kind: Literal["hub"] = "hub"
    id: HubId
    revision: Revision | None = None

    @property
    def label(self) -> str:
        return self.id


class LocalModel(WireModel):
    """A folder that an agent offers, by the name in its inventory (see `InventoryModel`)."""

    kind: Literal["local"] = "local"
    name: Name

    @property
    def label(self) -> str:
        return self.name


class ConfigModel(WireModel):
    """A bare `config.json`: the agent builds the architecture with random weights.

    Speed and memory are those of the real model; quality is not measurable.
    """

    kind: Literal["config"] = "config"
    name: TypedName
    config: dict[str, Any]

    @property
    def label(self) -> str:
        return self.name


class SimulatedModel(WireModel):
    """A model and its device as the simulator knows them together (`gpuagent.simulator`)."""

    kind: Literal["simulated"] = "simulated"
    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]{0,63}$")]

    @property
    def label(self) -> str:
        return f"{self.name} (simulated)"


class ImportedModel(WireModel):
    """A model as the file of another tool calls it; what it is, is not known here."""

    kind: Literal["imported"] = "imported"
    name: Name

    @property
    def label(self) -> str:
        return self.name


ModelRef = Annotated[
    HubModel | LocalModel | ConfigModel | SimulatedModel | ImportedModel,
    Field(discriminator="kind"),
]
