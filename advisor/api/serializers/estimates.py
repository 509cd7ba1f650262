"""Answers of the estimate and GPU endpoints."""

from __future__ import annotations

from typing import Literal

from advisor.api.serializers.base import Answer
from advisor.catalog import PriceBasis
from advisor.estimates.cost import DayCost
from advisor.estimates.memory import Band, MemoryPlan
from advisor.studies.estimating import EstimateAnswer


class Interval90(Answer):
    """A value with the ends of its 90 % interval."""

    value: float
    low: float
    high: float


class BytesBand(Answer):
    value: int
    low: int
    high: int
    source: str


class MemoryAnswer(Answer):
    """Bytes on one GPU; weights + kv + activation + graphs + runtime = total.

    kv_needed_per_token is arithmetic, kv_reserved_per_token what the engine sets aside.
    """

    weights: int
    kv: int
    activation: BytesBand
    graphs: BytesBand
    runtime: BytesBand
    total: int
    budget: int
    usable: int
    kv_available: int
    kv_available_low: int
    kv_available_high: int
    kv_needed_per_token: int
    kv_reserved_per_token: int
    state_per_seq: int
    max_context: int
    reason: str


class PriceAnswer(Answer):
    """own: the organisation's price; else the median of `n` list prices, between low and high."""

    usd_per_gpu_hour: float
    low: float
    high: float
    market: str
    date: str | None
    basis: str
    n: int
    own: bool


class CostAnswer(Answer):
    """USD of one replica; each figure per million charges the whole machine to those tokens."""

    usd_per_hour: float
    per_million_output: float | None
    per_million_input: float | None
    per_million_total: float | None


class EnergyAnswer(Answer):
    """J per output token; at_most from the power limit. reason: why there is no value."""

    joules_per_token: float | None
    at_most: float | None
    reason: str


class ReplicasAnswer(Answer):
    replicas: int
    load_per_replica: float
    headroom: float
    usd_per_hour: float | None


class DayAnswer(Answer):
    """One way to buy a day's capacity."""

    kind: Literal["fixed", "autoscaled", "spot"]
    usd_per_day: float
    usd_per_month: float
    replica_hours: float
    peak_replicas: int
    note: str


class EstimateReply(Answer):
    """The keys of `tuning-advisor estimate --json`, and what they rest on."""

    params_total: int
    params_active: int
    weight_bytes: int
    kv_bytes_per_token: int
    kv_bytes_per_token_growing: int
    state_bytes_per_seq: int
    attention: str
    fits: bool
    kv_capacity_tokens: int
    max_concurrency: int
    ttft_s: Interval90 | None
    tpot_s: Interval90 | None
    throughput_tok_s: Interval90 | None
    usd_per_million_tokens: Interval90 | None
    basis: Literal["calibrated", "roofline"]
    in_domain: bool
    notes: list[str]
    model: str
    gpu: str
    concurrency: int
    domain: str
    memory: MemoryAnswer
    price: PriceAnswer | None
    cost: CostAnswer | None
    capacity_req_s: float | None
    energy: EnergyAnswer | None
    replicas: ReplicasAnswer | None
    day: list[DayAnswer]
    day_reason: str | None


def estimate_reply(found: EstimateAnswer) -> EstimateReply:
    result, serving = found.estimate, found.serving
    cost = result.cost
    replicas = serving.replicas if serving is not None else None
    return EstimateReply(
        **result.as_dict(),
        model=found.request.model.name,
        gpu=found.request.gpu.name,
        concurrency=found.concurrency,
        domain=result.domain,
        memory=_memory(result.memory),
        price=price_answer(found.price, own=found.request.gpu.name in found.request.prices),
        cost=CostAnswer(
            usd_per_hour=cost.usd_per_hour,
            per_million_output=cost.per_million_output,
            per_million_input=cost.per_million_input,
            per_million_total=cost.per_million_total,
        )
        if cost is not None
        else None,
        capacity_req_s=serving.capacity_req_s if serving is not None else None,
        energy=EnergyAnswer(
            joules_per_token=serving.energy.value,
            at_most=serving.energy.at_most,
            reason=serving.energy.reason,
        )
        if serving is not None
        else None,
        replicas=ReplicasAnswer(
            replicas=replicas.replicas,
            load_per_replica=replicas.load_per_replica,
            headroom=replicas.headroom,
            usd_per_hour=replicas.usd_per_hour,
        )
        if replicas is not None
        else None,
        day=[_day(item) for item in serving.day] if serving is not None else [],
        day_reason=(serving.day_reason or None) if serving is not None else "no times to plan with",
    )


def price_answer(price: PriceBasis | None, *, own: bool) -> PriceAnswer | None:
    if price is None:
        return None
    return PriceAnswer(
        usd_per_gpu_hour=price.usd_per_gpu_hour,
        low=price.low_usd,
        high=price.high_usd,
        market=price.market,
        date=price.date or None,
        basis=price.basis,
        n=price.n,
        own=own,
    )


def _day(item: DayCost) -> DayAnswer:
    return DayAnswer(
        kind=item.kind,
        usd_per_day=item.usd_per_day,
        usd_per_month=item.usd_per_month,
        replica_hours=item.replica_hours,
        peak_replicas=item.peak_replicas,
        note=item.note,
    )


def _memory(plan: MemoryPlan) -> MemoryAnswer:
    def band(value: Band) -> BytesBand:
        return BytesBand(value=value.value, low=value.low, high=value.high, source=value.source)

    return MemoryAnswer(
        weights=plan.weights,
        kv=plan.kv,
        activation=band(plan.activation),
        graphs=band(plan.graphs),
        runtime=band(plan.runtime),
        total=plan.total,
        budget=plan.budget,
        usable=plan.usable,
        kv_available=plan.kv_available,
        kv_available_low=plan.kv_available_low,
        kv_available_high=plan.kv_available_high,
        kv_needed_per_token=plan.kv_needed_per_token,
        kv_reserved_per_token=plan.kv_reserved_per_token,
        state_per_seq=plan.state_per_seq,
        max_context=plan.max_context,
        reason=plan.reason,
    )
