"""Estimates for an organisation: its models, its hardware, its prices and its own measurements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from advisor.accounts.models import Org
from advisor.catalog import (
    GpuSpec,
    PriceBasis,
    UnknownNameError,
    cpu_host,
    find_gpu,
    price_basis,
)
from advisor.errors import InvalidInput
from advisor.estimates.cost import Interruption
from advisor.estimates.features import Load, ServingPoint
from advisor.estimates.models import ResolvedModel, known_model, model_from_config, shape_key
from advisor.estimates.options import Serving, serving_plan
from advisor.estimates.query import EstimateQuery
from advisor.estimates.recalibrate import OwnMeasurement
from advisor.estimates.roofline import Placement, Roofline
from advisor.estimates.rows import RowError
from advisor.estimates.service import Estimate, EstimateRequest, estimate, estimate_at_rate
from advisor.fleet.models import Agent
from advisor.fleet.selectors import agents_of
from advisor.measures import DTYPE_BYTES, median_s
from advisor.shapes import ModelShape, ShapeError, shape_from_config
from advisor.studies.models import Trial
from advisor.studies.pricing import own_prices
from advisor.studies.states import TrialState
from gpuagent.request_metrics import request_metrics
from gpuagent.wire import AgentHello
from gpuagent.wire.agent import EnvironmentSnapshot
from gpuagent.wire.trial import BaselineResult, TrialResult

OWN_TRIALS = 20
"""Newest trials that recalibrate; older ones say little about today's software."""

_LOST_WORK_S = 10.0


@dataclass(frozen=True, slots=True)
class EstimateAnswer:
    """An estimate with what was asked. concurrency: as asked, or where the rate settles."""

    request: EstimateRequest
    concurrency: int
    estimate: Estimate
    price: PriceBasis | None
    serving: Serving | None


def answer(*, org: Org, query: EstimateQuery) -> EstimateAnswer:
    """Raises InvalidInput with `fields` keyed by the query's fields."""
    request = request_of(org=org, query=query)
    try:
        result, concurrency = _estimate(request, query.rate)
    except (RowError, ShapeError) as error:
        raise _refused(error.field, error.message) from None
    price = price_basis(request.gpu, market=request.market, overrides=request.prices)
    interruption = Interruption(query.interruptions_per_hour, query.reload_s, _LOST_WORK_S)
    serving = serving_plan(
        request,
        result,
        price=price,
        day_req_s=query.day_req_s,
        headroom=query.headroom,
        interruption=interruption,
    )
    return EstimateAnswer(request, concurrency, result, price, serving)


def request_of(*, org: Org, query: EstimateQuery) -> EstimateRequest:
    """The query with its model, device, prices and own measurements looked up."""
    gpu = _device(org, query)
    return EstimateRequest(
        model=_model(org, query),
        gpu=gpu,
        engine=query.engine,
        engine_version=query.engine_version,
        tp=query.tp,
        pp=query.pp,
        expert_parallel=query.expert_parallel,
        attention_dp=query.attention_dp,
        dtype=query.dtype,
        quant=query.quant,
        kv_dtype=query.kv_dtype or "auto",
        isl=query.isl,
        osl=query.osl,
        concurrency=query.concurrency,
        context=query.context,
        memory_fraction=query.memory_fraction,
        market=query.market,
        prices=own_prices(org),
        own=own_measurements(org=org, gpu=gpu, engine=query.engine),
    )


def device_of(machine: AgentHello | EnvironmentSnapshot) -> GpuSpec | None:
    """The device that trials on this machine run on; None for a GPU the catalogue lacks."""
    if machine.gpus:
        try:
            return find_gpu(machine.gpus[0].name)
        except UnknownNameError:
            return None
    host = machine.host
    if host is None:
        return None
    cores = host.physical_cores or host.logical_cores
    return cpu_host(memory_bytes=host.memory_bytes, cores=cores)


def device_of_agent(agent: Agent) -> GpuSpec | None:
    """As `device_of`, a processor with the ceilings of its last calibration where there is one.

    A GPU keeps its data-sheet rates: the serving predictor was fitted against those.
    """
    device, found = device_of(agent.hello), agent.ceilings
    if device is None or agent.hello.gpus or found is None:
        return device
    measured = {
        "fp32": found.rate("gemm", "float32"),
        "bf16": found.rate("gemm", "bfloat16"),
    }
    known = {name: rate for name, rate in measured.items() if rate is not None}
    return replace(
        device,
        bandwidth_bytes_s=found.rate("read") or device.bandwidth_bytes_s,
        flops=tuple((dict(device.flops) | known).items()),
    )


def own_measurements(*, org: Org, gpu: GpuSpec, engine: str) -> tuple[OwnMeasurement, ...]:
    """Single-stream times of the organisation's newest valid trials on this device and engine."""
    agents = [
        agent.pk
        for agent in agents_of(org)
        if (device := device_of(agent.hello)) is not None and device.name == gpu.name
    ]
    trials = (
        Trial.objects.filter(
            study__org=org,
            agent__in=agents,
            state=TrialState.SUCCEEDED,
            spec_json__engine=engine,
            spec_json__config__experiment="baseline",
            study__model_config_json__isnull=False,
        )
        .select_related("result", "study")
        .order_by("-finished_at")[:OWN_TRIALS]
    )
    return tuple(item for trial in trials for item in _measured(trial, gpu))


def _measured(trial: Trial, gpu: GpuSpec) -> list[OwnMeasurement]:
    result: TrialResult = trial.result.value
    device, found = device_of(result.environment), result.measurements
    if device is None or device.name != gpu.name or result.validity.verdict == "invalid":
        return []
    if not isinstance(found, BaselineResult) or not trial.spec.settings.kv_cache:
        return []
    try:
        shape = shape_from_config(trial.study.model_config_json)
    except ShapeError:
        return []
    point = partial(_point, shape, gpu, found.model.dtype, trial.spec.engine)
    return [*_from_grid(found, point), *_from_requests(found, point)]


def _point(
    shape: ModelShape, gpu: GpuSpec, dtype: str, engine: str, isl: int, osl: int
) -> ServingPoint:
    place = Placement(gpu, dtype=dtype, kv_itemsize=float(DTYPE_BYTES.get(dtype, 2)))
    return ServingPoint(Roofline(shape, place), engine, "", Load(isl, osl, 1), shape_key(shape))


_PointOf = Callable[[int, int], ServingPoint]


def _from_grid(found: BaselineResult, point: _PointOf) -> list[OwnMeasurement]:
    """Cells of one sequence: whole-batch times of more say nothing about a server's queue."""
    result = []
    for cell in found.cells:
        if cell.batch == 1:
            steps = max(1, cell.decode_step_s.n // max(cell.prefill_s.n, 1)) + 1
            times = median_s(cell.prefill_s), median_s(cell.decode_step_s)
            result.append(OwnMeasurement(point(cell.input_tokens, steps), *times))
    return result


def _from_requests(found: BaselineResult, point: _PointOf) -> list[OwnMeasurement]:
    """The workload's own requests, where they came one after the other."""
    metrics = request_metrics(found.requests)
    if found.arrivals != "closed_loop" or metrics.overlapping or metrics.succeeded < 5:
        return []
    isl = max(1, round(float(metrics.input_tokens.mean())))
    osl = max(1, round(float(metrics.output_tokens.mean())))
    tpot = float(metrics.itl_s.mean()) if metrics.itl_s.size else None
    return [OwnMeasurement(point(isl, osl), float(metrics.ttft_s.mean()), tpot)]


def _estimate(request: EstimateRequest, rate: float | None) -> tuple[Estimate, int]:
    if rate is None:
        return estimate(request), request.concurrency
    settled = estimate_at_rate(request, rate)
    if settled is None:
        raise RowError(
            "rate",
            f"{rate:g} requests per second are more than this placement serves: the queue grows "
            "without end. Lower the rate, raise tp or add replicas",
        )
    return settled


def _model(org: Org, query: EstimateQuery) -> ResolvedModel:
    try:
        if query.config is not None:
            return model_from_config(query.config)
        name = query.model or ""
        return _folder(org, name) or known_model(name)
    except ShapeError as error:
        raise _refused("config" if query.config is not None else "model", str(error)) from None
    except UnknownNameError as error:
        raise _refused("model", f"{error}. Or give its config.json") from None


def _folder(org: Org, name: str) -> ResolvedModel | None:
    """A model folder that an agent of the organisation offers under this name."""
    for agent in agents_of(org):
        for model in agent.hello.models:
            if model.name == name and model.config is not None:
                return model_from_config(model.config, name)
    return None


def _device(org: Org, query: EstimateQuery) -> GpuSpec:
    if query.gpu is not None:
        try:
            return find_gpu(query.gpu)
        except UnknownNameError as error:
            raise _refused("gpu", str(error)) from None
    agent = agents_of(org).filter(slug=query.agent).first()
    if agent is None:
        raise _refused("agent", "There is no agent of this name")
    device = device_of_agent(agent)
    if device is None:
        name = agent.hello.gpus[0].name
        raise _refused("agent", f"Its GPU {name} is not in the catalogue; name one like it in gpu")
    return device


def _refused(field: str, message: str) -> InvalidInput:
    text = f"{message[:1].upper()}{message[1:]}".rstrip(".") + "."
    known = field if field in EstimateQuery.model_fields else "config"
    return InvalidInput(f"{known}: {text}", {known: [text]})


def devices_of(org: Org) -> Sequence[tuple[str, GpuSpec]]:
    """(agent, device) of every agent whose device is known."""
    pairs = ((agent.slug, device_of_agent(agent)) for agent in agents_of(org))
    return [(slug, device) for slug, device in pairs if device is not None]
