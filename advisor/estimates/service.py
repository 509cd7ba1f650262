"""`estimate`: one call from a model, a GPU and a load to memory, times, throughput and cost.

The function behind the command line, the REST endpoint and the model page. Pure; milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from advisor.catalog import GpuSpec, PriceBasis, price_basis
from advisor.estimates.cost import TokenCost, token_cost
from advisor.estimates.features import Load, ServingPoint
from advisor.estimates.memory import MemoryPlan, plan_memory, smallest_tp, tp_problem
from advisor.estimates.models import ResolvedModel, shape_key
from advisor.estimates.recalibrate import OwnMeasurement, Times, recalibrate
from advisor.estimates.roofline import Placement, Roofline
from advisor.estimates.rows import MAX_CONCURRENCY, MAX_GPUS, MAX_TOKENS, RowError
from advisor.estimates.serving import (
    BETWEEN,
    NEAR,
    NEW_HARDWARE,
    NEW_MODEL,
    Interval,
    ServingPrediction,
    serving_model,
)
from advisor.shapes import DTYPE_BITS, QUANT_NAMES, ModelShape, ShapeError, describe_bounds

ENGINES = ("vllm", "sglang", "trtllm", "transformers")
KV_ITEMSIZE: dict[str, float] = {
    "bf16": 2.0,
    "bfloat16": 2.0,
    "fp16": 2.0,
    "float16": 2.0,
    "fp32": 4.0,
    "fp8": 1.0,
    "fp8_e4m3": 1.0,
    "fp8_e5m2": 1.0,
    "int8": 1.0,
    "nvfp4": 0.5625,
    "int4": 0.53125,
}
# Highest share of a device that engines are run with in practice.
RAISED_FRACTION = 0.97
# Without any measurement of an engine: what it reaches of the floor on GPUs that were measured
# (median 2.8, 5 % to 95 % of rows 1.5 to 8.4), and the floor itself as the low end.
_FLOOR_MIDDLE, _FLOOR_HIGH = 2.8, 8.4
_DOMAIN_NOTES = {
    BETWEEN: "between measured token counts: wider interval",
    NEAR: "near the measured points but not among them: wider interval",
    NEW_MODEL: "no measurement of this model: predicted from its shape, wide interval",
    NEW_HARDWARE: "no measurement on this GPU: predicted from its rates, wide interval",
}


@dataclass(frozen=True, slots=True)
class EstimateRequest:
    """What to estimate. `dtype` and `quant` None: as the checkpoint is published."""

    model: ResolvedModel
    gpu: GpuSpec
    engine: str = "vllm"
    engine_version: str = ""
    tp: int = 1
    pp: int = 1
    gpus: int | None = None  # of one model copy; default tp × pp
    expert_parallel: bool = False
    attention_dp: bool = False
    dtype: str | None = None
    quant: str | None = None
    kv_dtype: str = "auto"
    isl: int = 1000
    osl: int = 256
    concurrency: int = 16
    context: int | None = None  # longest sequence to hold; default isl + osl
    memory_fraction: float | None = None
    market: str = "on-demand"
    prices: Mapping[str, float] = field(default_factory=dict)  # the organisation's own, by GPU
    own: Sequence[OwnMeasurement] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Estimate:
    """Everything known about a model in a placement, before any GPU is touched."""

    shape: ModelShape
    memory: MemoryPlan
    roofline: Roofline
    weight_bytes: int
    kv_itemsize: float
    fits: bool
    ttft_s: Interval | None
    tpot_s: Interval | None
    throughput_tok_s: Interval | None
    usd_per_million_tokens: Interval | None  # output tokens
    cost: TokenCost | None
    basis: str  # calibrated or roofline
    in_domain: bool
    domain: str
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """The keys of `tuning-advisor estimate --json`; part of the product's promise."""

        def interval(value: Interval | None) -> dict[str, float] | None:
            return None if value is None else value.as_dict()

        shape = self.shape
        return {
            "params_total": shape.params_total,
            "params_active": shape.params_active,
            "weight_bytes": self.weight_bytes,
            "kv_bytes_per_token": shape.kv_bytes_per_token(self.kv_itemsize),
            "kv_bytes_per_token_growing": shape.kv_bytes_per_token_growing(self.kv_itemsize),
            "state_bytes_per_seq": shape.state_bytes_per_seq(),
            "attention": shape.attention,
            "fits": self.fits,
            "kv_capacity_tokens": self.memory.kv_capacity_tokens,
            "max_concurrency": self.memory.max_concurrency,
            "ttft_s": interval(self.ttft_s),
            "tpot_s": interval(self.tpot_s),
            "throughput_tok_s": interval(self.throughput_tok_s),
            "usd_per_million_tokens": interval(self.usd_per_million_tokens),
            "basis": self.basis,
            "in_domain": self.in_domain,
            "notes": list(self.notes),
        }


def estimate(request: EstimateRequest) -> Estimate:
    """Memory, times, throughput and cost of one request.

    Raises `ShapeError` (dtype) or `RowError` (a number out of range) with the field and the fix.
    """
    check_request(request)
    shape = request.model.shape
    dtype = weight_dtype(request)
    itemsize = kv_itemsize(request, shape)
    place = Placement(
        request.gpu,
        gpus=request_gpus(request),
        tp=request.tp,
        pp=request.pp,
        expert_parallel=request.expert_parallel,
        attention_dp=request.attention_dp,
        dtype=dtype,
        kv_itemsize=itemsize,
    )
    roofline = _roofline(shape, place)
    context = request.context or request.isl + request.osl
    memory, tight = _memory(request, roofline, context)
    notes = [
        *tight,
        *request.notes,
        *request.model.notes,
        *_placement_notes(request, shape, memory),
    ]
    fits = memory.fits and tp_problem(shape, request.tp) is None
    times = _times(request, roofline) if fits else None
    if not fits:
        notes += _fit_advice(request, shape, dtype, itemsize, context)
    basis, in_domain, domain = "roofline", False, "none"
    ttft = tpot = throughput = usd = None
    cost: TokenCost | None = None
    if times is not None:
        ttft, tpot, basis, in_domain, domain, more = times
        notes += more
        throughput = _throughput(request, ttft, tpot)
        price = price_basis(request.gpu, market=request.market, overrides=request.prices)
        usd, cost, more = _money(request, throughput, price)
        notes += more
    return Estimate(
        shape=shape,
        memory=memory,
        roofline=roofline,
        weight_bytes=roofline.weight_bytes,
        kv_itemsize=itemsize,
        fits=fits,
        ttft_s=ttft,
        tpot_s=tpot,
        throughput_tok_s=throughput,
        usd_per_million_tokens=usd,
        cost=cost,
        basis=basis,
        in_domain=in_domain,
        domain=domain,
        notes=tuple(dict.fromkeys(notes)),
    )


def estimate_at_rate(request: EstimateRequest, rate_req_s: float) -> tuple[Estimate, int] | None:
    """The estimate at the concurrency that a request rate settles at, and that concurrency.

    None when the rate is above what the placement serves: an open loop then has no steady state, so
    no time is a true answer.
    """
    if not rate_req_s > 0:
        raise RowError("rate", "must be above 0 requests per second")

    def served(concurrency: int) -> float:
        result = estimate(replace(request, concurrency=concurrency))
        if result.throughput_tok_s is None:
            return 0.0
        return result.throughput_tok_s.value / request.osl

    most = max(1, min(estimate(request).memory.max_concurrency, 4096))
    if served(most) < rate_req_s:
        return None
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if served(middle) >= rate_req_s else (middle, high)
    return estimate(replace(request, concurrency=high)), high


def check_request(request: EstimateRequest) -> None:
    """Refuse numbers and names that no estimate can hold."""
    for name, value, most in (
        ("tp", request.tp, MAX_GPUS),
        ("pp", request.pp, MAX_GPUS),
        ("isl", request.isl, MAX_TOKENS),
        ("osl", request.osl, MAX_TOKENS),
        ("concurrency", request.concurrency, MAX_CONCURRENCY),
        ("context", request.context or 1, MAX_TOKENS),
    ):
        if not 1 <= value <= most:
            raise RowError(name, f"must lie between 1 and {most:,}, not {value}")
    if request.tp * request.pp > MAX_GPUS:
        raise RowError("tp", f"tp × pp is more than {MAX_GPUS} GPUs")
    if request.pp > request.model.shape.layers:
        raise RowError("pp", f"is more than the {request.model.shape.layers} layers of the model")
    fraction = request.memory_fraction
    if fraction is not None and not 0 < fraction <= 1:
        raise RowError("memory_fraction", "must lie between 0 and 1")
    if request.engine not in ENGINES:
        raise RowError(
            "engine", f"{request.engine!r} is not known; use one of {', '.join(ENGINES)}"
        )


def request_gpus(request: EstimateRequest) -> int:
    """GPUs of one copy of the model."""
    return request.gpus or request.tp * request.pp


def weight_dtype(request: EstimateRequest) -> str:
    """The name under which the weights are loaded: a format, a dtype, or "auto" as published."""
    quant, dtype = (request.quant or "").lower(), (request.dtype or "auto").lower()
    if dtype not in ("auto", "") and dtype not in DTYPE_BITS and dtype not in QUANT_NAMES:
        known = ", ".join(sorted({*DTYPE_BITS, *QUANT_NAMES}))
        raise ShapeError("dtype", f"{dtype!r} is not known; use one of auto, {known}")
    if quant in ("", "auto"):
        if request.model.shape.quant is not None and dtype in DTYPE_BITS:
            return "auto"  # the checkpoint's own format; dtype is what activations run in
        if request.model.weight_format and dtype in ("auto", *DTYPE_BITS):
            return request.model.weight_format
        return dtype or "auto"
    if quant == "none":
        return dtype if dtype in DTYPE_BITS else "bf16"
    if quant not in QUANT_NAMES:
        raise ShapeError("quant", f"{quant!r} is not known; use one of {', '.join(QUANT_NAMES)}")
    return quant


def kv_itemsize(request: EstimateRequest, shape: ModelShape) -> float:
    """Bytes of one cached element: the asked type, else the checkpoint's, else 16 bit."""
    name = request.kv_dtype.lower()
    if name in ("", "auto"):
        if shape.quant is not None and shape.quant.kv_dtype == "fp8":
            return 1.0
        return 4.0 if request.dtype in ("fp32", "float32") else 2.0
    if name not in KV_ITEMSIZE:
        raise RowError(
            "kv_dtype", f"{name!r} is not known; use one of auto, {', '.join(KV_ITEMSIZE)}"
        )
    return KV_ITEMSIZE[name]


def _memory(
    request: EstimateRequest, roofline: Roofline, context: int
) -> tuple[MemoryPlan, list[str]]:
    """The memory plan at the asked or default share, or at a raised one when only that fits."""

    def plan(fraction: float | None) -> MemoryPlan:
        return plan_memory(
            roofline,
            engine=request.engine,
            engine_version=request.engine_version,
            context=context,
            concurrency=request.concurrency,
            fraction=fraction,
        )

    memory = plan(request.memory_fraction)
    if memory.fits or request.memory_fraction is not None:
        return memory, []
    raised = plan(RAISED_FRACTION)
    if not raised.fits:
        return memory, []
    return raised, [
        f"fits only with the engine's memory fraction raised to {RAISED_FRACTION}: the default "
        "leaves no room for the cache"
    ]


@lru_cache(maxsize=512)
def _roofline(shape: ModelShape, place: Placement) -> Roofline:
    return Roofline(shape, place)


_Times = tuple[Interval, Interval, str, bool, str, list[str]]


def _times(request: EstimateRequest, roofline: Roofline) -> _Times:
    """TTFT and TPOT with basis, domain and notes."""
    load = Load(request.isl, request.osl, request.concurrency)
    point = ServingPoint(
        roofline, request.engine, request.engine_version, load, shape_key(roofline.shape)
    )
    predicted = _predicted(point)
    times = _point_times(point, predicted)
    own = recalibrate(point, times, request.own, _point_times)
    ttft, tpot = own.times
    notes = [own.note] if own.points else []
    if predicted is None:
        if own.points:
            return ttft, tpot, "calibrated", False, "roofline", notes
        note = (
            f"no measurements of {request.engine} on {request.gpu.name}: times come from the "
            "roofline alone; the low end is the physical floor"
        )
        return ttft, tpot, "roofline", False, "roofline", [note]
    in_domain = predicted.in_domain
    if note := _DOMAIN_NOTES.get(predicted.domain, ""):
        notes.append(note)
    if request.pp > 1:
        in_domain = False
        notes.append("pipeline parallelism was not among the measured points")
    if not roofline.shape.known:
        in_domain = False
    notes += _queue_notes(predicted, request)
    domain = NEAR if predicted.in_domain and not in_domain else predicted.domain
    return ttft, tpot, "calibrated", in_domain, domain, notes


def _predicted(point: ServingPoint) -> ServingPrediction | None:
    if point.roofline.place.gpu.vendor == "CPU":
        return None
    return serving_model().predict(point)


def _point_times(point: ServingPoint, predicted: ServingPrediction | None = None) -> Times:
    """TTFT and TPOT of a point: calibrated where its engine was measured, else from the floor."""
    predicted = predicted or _predicted(point)
    if predicted is not None:
        return predicted.ttft_s, predicted.tpot_s
    load = point.load
    step = point.roofline.decode(load.concurrency, load.isl + load.osl / 2)
    prefill = point.roofline.prefill(load.isl)
    # Prompts of the other requests enter between two tokens of this one.
    mixed = step.bound_s + prefill.bound_s * (load.concurrency - 1) / load.osl

    def band(floor: float) -> Interval:
        return Interval(floor * _FLOOR_MIDDLE, floor, floor * _FLOOR_HIGH)

    return band(prefill.bound_s), band(mixed)


def _queue_notes(predicted: ServingPrediction, request: EstimateRequest) -> list[str]:
    if predicted.features.queue <= 1.0:
        return []
    return [
        f"about {predicted.features.running:,.0f} of {request.concurrency:,} requests fit in "
        "memory at once: the rest wait, which TTFT includes"
    ]


def _throughput(request: EstimateRequest, ttft: Interval, tpot: Interval) -> Interval:
    """Output tokens per second of the placement in a closed loop of `concurrency` requests."""

    def rate(first: float, gap: float) -> float:
        return request.concurrency * request.osl / (first + gap * max(request.osl - 1, 0))

    return Interval(
        rate(ttft.value, tpot.value), rate(ttft.high, tpot.high), rate(ttft.low, tpot.low)
    )


def _money(
    request: EstimateRequest, throughput: Interval, price: PriceBasis | None
) -> tuple[Interval | None, TokenCost | None, list[str]]:
    if price is None:
        return None, None, [f"no {request.market} price known for {request.gpu.name}"]
    gpus = request_gpus(request)

    def usd(rate: float) -> float:
        return gpus * price.usd_per_gpu_hour / (rate * 3600.0) * 1e6

    cost = token_cost(
        output_tok_s=throughput.value, isl=request.isl, osl=request.osl, gpus=gpus, price=price
    )
    note = f"cost per million output tokens at {cost.basis}"
    return Interval(usd(throughput.value), usd(throughput.high), usd(throughput.low)), cost, [note]


def _placement_notes(request: EstimateRequest, shape: ModelShape, memory: MemoryPlan) -> list[str]:
    notes: list[str] = []
    bounds = describe_bounds(shape)
    if bounds:
        notes.append(bounds)
    if (problem := tp_problem(shape, request.tp)) is not None:
        notes.append(problem)
    if not memory.fits:
        notes.append(memory.reason)
    if shape.attention == "MLA" and request.tp > 1 and not request.attention_dp:
        notes.append(
            "tensor parallelism replicates the latent cache on every GPU; attention data "
            "parallelism splits it"
        )
    limit = shape.max_context
    if limit is not None and request.isl + request.osl > limit:
        notes.append(
            f"isl + osl is {request.isl + request.osl:,}, over the model's limit of {limit:,}"
        )
    if (
        shape.quant is not None
        and shape.quant.compute in ("fp8", "fp4")
        and not request.gpu.supports(shape.quant.compute)
    ):
        notes.append(
            f"{request.gpu.name} has no {shape.quant.compute} arithmetic: the weights save memory "
            "and are computed in 16 bit"
        )
    asked = (request.context or request.isl + request.osl) * request.concurrency
    if memory.fits and memory.kv_capacity_tokens > 10 * asked and request.gpu.vendor != "CPU":
        share = memory.kv_capacity_tokens / asked
        notes.append(
            f"the cache is idle: it holds {share:,.0f} times the tokens this load needs; "
            "a smaller GPU or a larger model would do"
        )
    return notes


def _fit_advice(
    request: EstimateRequest, shape: ModelShape, dtype: str, itemsize: float, context: int
) -> list[str]:
    size = smallest_tp(
        shape,
        request.gpu,
        dtype=dtype,
        kv_itemsize=itemsize,
        engine=request.engine,
        context=context,
    )
    if size is None:
        return [f"no tensor-parallel size up to {request.gpu.gpus_per_node} holds it on this GPU"]
    if size == request.tp:
        return []
    return [f"the smallest tensor-parallel size that holds it on {request.gpu.name} is {size}"]
