"""The same model and load elsewhere: on every GPU, at every concurrency, through a day. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from advisor.catalog import GpuSpec, PriceBasis, price_basis
from advisor.estimates.cost import (
    DayCost,
    Energy,
    Interruption,
    ReplicaPlan,
    daily_cost,
    energy_per_token,
    replicas_for_rate,
)
from advisor.estimates.memory import smallest_tp
from advisor.estimates.service import (
    Estimate,
    EstimateRequest,
    estimate,
    kv_itemsize,
    request_gpus,
    weight_dtype,
)

LOADS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True, slots=True)
class GpuOption:
    """The smallest placement on one GPU; `estimate` None where a whole node does not hold it."""

    gpu: GpuSpec
    tp: int | None
    estimate: Estimate | None

    @property
    def usd_per_million(self) -> float | None:
        usd = self.estimate.usd_per_million_tokens if self.estimate is not None else None
        return usd.value if usd is not None else None


def per_gpu(request: EstimateRequest, gpus: Iterable[GpuSpec]) -> tuple[GpuOption, ...]:
    """The request on each GPU at its smallest tensor-parallel size, cheapest tokens first."""
    shape = request.model.shape
    options = []
    for gpu in gpus:
        tp = smallest_tp(
            shape,
            gpu,
            dtype=weight_dtype(request),
            kv_itemsize=kv_itemsize(request, shape),
            engine=request.engine,
            context=request.context or request.isl + request.osl,
        )
        found = None
        if tp is not None:
            here = replace(
                request, gpu=gpu, tp=tp, pp=1, gpus=None, expert_parallel=False, attention_dp=False
            )
            found = estimate(here)
        options.append(GpuOption(gpu, tp, found))

    def rank(option: GpuOption) -> tuple[bool, bool, float]:
        usd = option.usd_per_million
        return option.estimate is None, usd is None, usd or 0.0

    return tuple(sorted(options, key=rank))


def per_load(request: EstimateRequest, loads: Sequence[int] = LOADS) -> tuple[Estimate, ...]:
    """The request at each concurrency of `loads`."""
    return tuple(estimate(replace(request, concurrency=load)) for load in loads)


@dataclass(frozen=True, slots=True)
class Serving:
    """What serving costs beyond one replica; each None with a reason where not known."""

    capacity_req_s: float
    energy: Energy
    replicas: ReplicaPlan | None
    day: tuple[DayCost, ...]
    day_reason: str


def serving_plan(
    request: EstimateRequest,
    result: Estimate,
    *,
    price: PriceBasis | None,
    day_req_s: Sequence[float] | None,
    headroom: float,
    interruption: Interruption,
) -> Serving | None:
    """Capacity, energy, replicas of the busiest slice and cost of a day; None without times."""
    if result.throughput_tok_s is None:
        return None
    rate = result.throughput_tok_s.value
    gpus = request_gpus(request)
    capacity = rate / request.osl
    energy = energy_per_token(output_tok_s=rate, gpus=gpus, tdp_w=request.gpu.tdp_w)
    if day_req_s is None:
        return Serving(capacity, energy, None, (), "no request rates of a day are given")
    replicas = replicas_for_rate(
        rate_req_s=max(day_req_s),
        capacity_req_s=capacity,
        gpus_per_replica=gpus,
        headroom=headroom,
        price=price,
    )
    if price is None:
        reason = f"no {request.market} price known for {request.gpu.name}"
        return Serving(capacity, energy, replicas, (), reason)
    spot = price_basis(request.gpu, market="spot") if request.market != "spot" else None
    day = daily_cost(
        day_req_s,
        capacity_req_s=capacity,
        gpus_per_replica=gpus,
        price=price,
        spot=spot,
        interruption=interruption,
        headroom=headroom,
        scale_up_s=interruption.reload_s,
    )
    return Serving(capacity, energy, replicas, day, "")
