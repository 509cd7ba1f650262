"""GPUs of the catalogue with the price that counts for the organisation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from advisor.accounts.services import MAX_USD_PER_GPU_HOUR
from advisor.api.serializers.base import Answer, Page
from advisor.api.serializers.estimates import PriceAnswer, price_answer
from advisor.catalog import GpuSpec, price_basis


class GpuAnswer(Answer):
    """One device. flops: dense FLOP/s by data type; link_bytes_s counts both directions.

    usable_is_measured: whether usable_bytes is what the driver shows, or an estimate.
    """

    name: str
    vendor: str
    architecture: str
    memory_bytes: int
    usable_bytes: int
    usable_is_measured: bool
    bandwidth_bytes_s: float
    flops: dict[str, float]
    tdp_w: float | None
    link_bytes_s: float | None
    gpus_per_node: int
    compute_capability: str | None
    aliases: list[str]
    source: str
    confidence: str
    notes: str
    price: PriceAnswer | None


class GpuPage(Page[GpuAnswer]):
    pass


class PriceRequest(BaseModel):
    """The organisation's own price, without tax."""

    model_config = ConfigDict(extra="forbid")

    usd_per_gpu_hour: Annotated[float, Field(gt=0, le=MAX_USD_PER_GPU_HOUR)]
    reason: Annotated[str, StringConstraints(max_length=120, strip_whitespace=True)] = ""


def gpu_answer(gpu: GpuSpec, own_prices: Mapping[str, float]) -> GpuAnswer:
    return GpuAnswer(
        name=gpu.name,
        vendor=gpu.vendor,
        architecture=gpu.architecture,
        memory_bytes=gpu.memory_bytes,
        usable_bytes=gpu.usable_bytes,
        usable_is_measured=gpu.usable_is_measured,
        bandwidth_bytes_s=gpu.bandwidth_bytes_s,
        flops=dict(gpu.flops),
        tdp_w=gpu.tdp_w,
        link_bytes_s=gpu.link_bytes_s,
        gpus_per_node=gpu.gpus_per_node,
        compute_capability=gpu.compute_capability,
        aliases=list(gpu.aliases),
        source=gpu.source,
        confidence=gpu.confidence,
        notes=gpu.notes,
        price=price_answer(price_basis(gpu, overrides=own_prices), own=gpu.name in own_prices),
    )
