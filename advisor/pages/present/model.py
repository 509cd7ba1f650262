"""An estimate as the Model page shows it: words, cells, bars and rows. No HTML, no queries."""

from __future__ import annotations

from dataclasses import dataclass, replace

from advisor import units
from advisor.catalog import MARKETS, list_gpus, price_basis
from advisor.charts import Chart
from advisor.charts.day import load
from advisor.charts.estimates import latency
from advisor.charts.gpu_cost import by_gpu
from advisor.estimates.cost import DayCost, token_cost
from advisor.estimates.memory import MemoryPlan
from advisor.estimates.options import LOADS, GpuOption, per_gpu, per_load
from advisor.estimates.query import EstimateQuery
from advisor.estimates.service import EstimateRequest, request_gpus
from advisor.estimates.serving import Interval, serving_model
from advisor.pages.present.traces import Slice
from advisor.studies.estimating import EstimateAnswer

MOST_OPTIONS = 12

_PARTS = {
    "weights": ("k1", "Weights"),
    "KV cache": ("k2", "KV cache of this load"),
    "activation peak": ("k3", "Activation peak"),
    "graphs": ("k4", "CUDA graphs"),
    "runtime overhead": ("k5", "Runtime"),
}
_DOMAINS = {
    "inside": "The same engine, GPU, precision and model were measured at these token counts.",
    "between": "The same engine, GPU, precision and model were measured at token counts around "
    "these.",
    "near": "Measured points lie near, but not around this one.",
    "new_model": "This model was not measured; its shape decides, and the interval is wide.",
    "new_hardware": "This GPU was not measured; its rates decide, and the interval is wide.",
    "outside": "Neither this model nor this GPU was measured.",
    "roofline": "Nothing published was measured there: bandwidth and arithmetic of the device "
    "decide.",
}


_TRUST = {
    "inside": ("good", "among measured points"),
    "between": ("good", "between measured points"),
    "near": ("info", "near measured points"),
    "new_model": ("warn", "for an unmeasured model"),
    "new_hardware": ("warn", "for an unmeasured GPU"),
    "outside": ("warn", "far from measured points"),
    "roofline": ("warn", "from the roofline alone"),
    "none": ("na", "not predicted"),
}


@dataclass(frozen=True, slots=True)
class Cell:
    """A headline figure with its interval."""

    name: str
    definition: str
    value: str
    range_text: str


@dataclass(frozen=True, slots=True)
class MemoryRow:
    key: str
    label: str
    size: str
    share: str
    range_text: str
    source: str


@dataclass(frozen=True, slots=True)
class OptionRow:
    """The model on another GPU. chosen: the GPU of the question."""

    gpu: str
    chosen: bool
    gpus: str
    weights: str
    kv_tokens: str
    ttft: str
    tpot: str
    throughput: str
    usd: str
    trust: tuple[str, str]


@dataclass(frozen=True, slots=True)
class CostRow:
    market: str
    chosen: bool
    per_hour: str
    output: str
    into: str
    total: str
    basis: str


@dataclass(frozen=True, slots=True)
class ModelPage:
    """All parts; an empty tuple leaves a part out."""

    status: tuple[str, str]
    trust: tuple[str, str]
    title: str
    lede: str
    facts: tuple[tuple[str, str], ...]
    cells: tuple[Cell, ...]
    memory_title: str
    slices: tuple[Slice, ...]
    memory: tuple[MemoryRow, ...]
    cache: tuple[tuple[str, str], ...]
    charts: tuple[tuple[Chart, ...], ...]
    cost_chart: tuple[Chart, ...]
    day_chart: tuple[Chart, ...]
    options: tuple[OptionRow, ...]
    more_options: tuple[OptionRow, ...]
    too_small: str
    costs: tuple[CostRow, ...]
    energy: str
    day: tuple[DayCost, ...]
    day_title: str
    notes: tuple[str, ...]
    assumptions: tuple[tuple[str, str], ...]


def model_view(found: EstimateAnswer, query: EstimateQuery) -> ModelPage:
    """Everything the page says about `found`."""
    request, result = found.request, found.estimate
    request = replace(request, concurrency=found.concurrency)
    options = per_gpu(request, [gpu for gpu in list_gpus() if gpu.vendor != "CPU"])
    rows = [_option(option, request) for option in options if option.estimate is not None]
    # The GPU that was asked for stands in the first table, wherever its price puts it.
    first = [row for at, row in enumerate(rows) if at < MOST_OPTIONS or row.chosen]
    small = [option.gpu.name for option in options if option.estimate is None]
    loads = per_load(request) if result.fits else ()
    return ModelPage(
        status=("good", "Fits") if result.fits else ("bad", "Does not fit"),
        trust=_trust(found),
        title=_title(found),
        lede=_lede(found),
        facts=_facts(found),
        cells=_cells(found) if result.ttft_s is not None else (),
        memory_title=_memory_title(result.memory, result.fits),
        slices=_slices(result.memory),
        memory=_memory(result.memory),
        cache=_cache(found),
        charts=tuple((latency(m, LOADS, loads, found.concurrency),) for m in ("tpot", "ttft"))
        if loads
        else (),
        cost_chart=_group(by_gpu(options, request.gpu.name)),
        day_chart=_group(_day_chart(found, query)),
        options=tuple(first),
        more_options=tuple(row for row in rows if row not in first),
        too_small=", ".join(small),
        costs=_costs(found),
        energy=_energy(found),
        day=found.serving.day if found.serving is not None else (),
        day_title=_day_title(found, query),
        notes=tuple(f"{note[:1].upper()}{note[1:]}." for note in result.notes),
        assumptions=_assumptions(found),
    )


def _group(chart: Chart | None) -> tuple[Chart, ...]:
    return () if chart is None else (chart,)


def _day_chart(found: EstimateAnswer, query: EstimateQuery) -> Chart | None:
    if found.serving is None or query.day_req_s is None:
        return None
    return load(query.day_req_s, found.serving.capacity_req_s, query.headroom)


def _placement(request: EstimateRequest) -> str:
    if request.gpu.vendor == "CPU":
        return request.gpu.name
    return f"{request_gpus(request)}{units.NBSP}×{units.NBSP}{request.gpu.name}"


def _trust(found: EstimateAnswer) -> tuple[str, str]:
    result = found.estimate
    if result.ttft_s is None:
        return "na", "No times"
    if result.basis == "calibrated" and result.domain == "roofline":
        return "warn", "Roofline, corrected by own measurements"
    kind, word = _TRUST[result.domain]
    return kind, f"Prediction {word}"


def _title(found: EstimateAnswer) -> str:
    request, memory = found.request, found.estimate.memory
    name, where = request.model.name, _placement(request)
    if not found.estimate.fits:
        return f"{name} does not fit on {where}"
    context = request.context or request.isl + request.osl
    return (
        f"{name} fits on {where} with room for {memory.max_concurrency:,} "
        f"sequence{'s' if memory.max_concurrency != 1 else ''} of {context:,} tokens"
    )


def _lede(found: EstimateAnswer) -> str:
    result = found.estimate
    if result.ttft_s is None or result.tpot_s is None:
        return ""
    flight = found.concurrency
    return (
        f"With {flight:,} request{'s' if flight != 1 else ''} in flight the first token is "
        f"predicted after {units.seconds(result.ttft_s.value, 2)}, then one every "
        f"{units.seconds(result.tpot_s.value, 2)}. {_DOMAINS.get(result.domain, '')}"
    )


def _facts(found: EstimateAnswer) -> tuple[tuple[str, str], ...]:
    shape, result = found.estimate.shape, found.estimate
    active = ""
    if shape.params_active != shape.params_total:
        active = f", {units.count(shape.params_active)} active"
    facts = [
        ("Parameters", f"{units.count(shape.params_total)}{active}"),
        ("Layers", f"{shape.layers}"),
        ("Attention", shape.attention),
        ("Weights", units.memory(result.weight_bytes)),
        ("KV cache", f"{units.memory(shape.kv_bytes_per_token(result.kv_itemsize))} a token"),
    ]
    if state := shape.state_bytes_per_seq():
        facts.append(("Fixed state", f"{units.memory(state)} a sequence"))
    return tuple(facts)


def _cells(found: EstimateAnswer) -> tuple[Cell, ...]:
    result = found.estimate

    def cell(name: str, definition: str, value: Interval | None, kind: str) -> Cell:
        if value is None:
            return Cell(name, definition, units.DASH, "not predicted")
        show = _money if kind == "usd" else (lambda v: units.metric(kind, v))
        return Cell(name, definition, show(value.value), f"{show(value.low)} to {show(value.high)}")

    usd = "USD per million output tokens of this placement at this load"
    return (
        cell("TTFT", "send to first token, waiting for memory included", result.ttft_s, "ttft_s"),
        cell("TPOT", "(last − first token) ÷ (output tokens − 1)", result.tpot_s, "itl_s"),
        cell(
            "Throughput",
            "output tokens a second of the whole placement",
            result.throughput_tok_s,
            "output_tok_s",
        ),
        cell("Cost per M output tokens", usd, result.usd_per_million_tokens, "usd"),
    )


def _money(value: float | None) -> str:
    return units.DASH if value is None else f"${units.number(value)}"


# --- memory ---


def _lines(plan: MemoryPlan) -> list[tuple[str, int]]:
    """The five lines; of a cache that is too small for the load only what it holds."""
    lines = dict(plan.lines())
    if plan.fits:
        lines["KV cache"] = min(plan.kv, plan.kv_available)
    return list(lines.items())


def _memory_title(plan: MemoryPlan, fits: bool) -> str:
    used = sum(size for _, size in _lines(plan))
    where = f"{units.memory(used)} of {units.memory(plan.usable)} on each device"
    if not fits:
        return f"Memory: {where}" if plan.fits else f"Too large: {where}"
    if plan.kv > plan.kv_available:
        return f"{where}; the cache holds a part of the load at once"
    return where


def _slices(plan: MemoryPlan) -> tuple[Slice, ...]:
    lines = _lines(plan)
    used = sum(size for _, size in lines)
    whole = max(used, plan.usable)
    parts = [(*_PARTS[name], size) for name, size in lines if size > 0]
    if plan.usable > used:
        parts.append(("k0", "Free", plan.usable - used))
    slices, left = [], 0.0
    for key, label, size in parts:
        width = round(100 * size / whole, 3)
        slices.append(Slice(key, label, size / whole, None, left=round(left, 3), width=width))
        left += width
    return tuple(slices)


def _memory(plan: MemoryPlan) -> tuple[MemoryRow, ...]:
    bands = {
        "activation peak": plan.activation,
        "graphs": plan.graphs,
        "runtime overhead": plan.runtime,
    }
    exact = {
        "weights": "bytes of every tensor in its format, an equal share of each device",
        "KV cache": "needed by the requests in flight, up to what is left",
    }
    rows = []
    for name, size in _lines(plan):
        key, label = _PARTS[name]
        band = bands.get(name)
        spread = f"{units.memory(band.low)} to {units.memory(band.high)}" if band else "exact"
        source = band.source if band else exact[name]
        share = units.percent(size / plan.usable)
        rows.append(MemoryRow(key, label, units.memory(size), share, spread, source))
    return tuple(rows)


def _cache(found: EstimateAnswer) -> tuple[tuple[str, str], ...]:
    plan = found.estimate.memory
    rows = [
        ("Left for the cache", f"{units.memory(plan.kv_available)} a device"),
        (
            "Range of that",
            f"{units.memory(plan.kv_available_low)} to {units.memory(plan.kv_available_high)}",
        ),
        ("Tokens it holds", f"{plan.kv_capacity_tokens:,}"),
        ("Longest sequence", f"{plan.max_context:,} tokens"),
        ("Needed a token", f"{plan.kv_needed_per_token:,} B a device"),
        ("Reserved by the engine", f"{plan.kv_reserved_per_token:,} B a device"),
    ]
    if plan.state_per_seq:
        rows.append(("State a sequence", f"{units.memory(plan.state_per_seq)} a device"))
    return tuple(rows)


# --- other GPUs ---


def _option(option: GpuOption, request: EstimateRequest) -> OptionRow:
    result, tp = option.estimate, option.tp
    if result is None or tp is None:
        raise ValueError("an option without an estimate has no row")
    ttft, tpot, rate = result.ttft_s, result.tpot_s, result.throughput_tok_s
    return OptionRow(
        gpu=option.gpu.name,
        chosen=option.gpu.name == request.gpu.name,
        gpus=f"{tp}",
        weights=units.memory(result.memory.weights),
        kv_tokens=f"{result.memory.kv_capacity_tokens:,}",
        ttft=units.seconds(ttft.value, 2) if ttft is not None else units.DASH,
        tpot=units.seconds(tpot.value, 2) if tpot is not None else units.DASH,
        throughput=units.rate(rate.value, 2) if rate is not None else units.DASH,
        usd=_money(option.usd_per_million),
        trust=_TRUST[result.domain],
    )


# --- money ---


def _costs(found: EstimateAnswer) -> tuple[CostRow, ...]:
    request, rate = found.request, found.estimate.throughput_tok_s
    if rate is None:
        return ()
    rows = []
    for market in MARKETS:
        price = price_basis(request.gpu, market=market, overrides=request.prices)
        own = request.gpu.name in request.prices
        if price is None or (own and market != request.market):
            continue
        cost = token_cost(
            output_tok_s=rate.value,
            isl=request.isl,
            osl=request.osl,
            gpus=request_gpus(request),
            price=price,
        )
        rows.append(
            CostRow(
                market="Own price" if own else market.capitalize(),
                chosen=market == request.market,
                per_hour=_money(cost.usd_per_hour),
                output=_money(cost.per_million_output),
                into=_money(cost.per_million_input),
                total=_money(cost.per_million_total),
                basis=f"{_money(price.usd_per_gpu_hour)} a GPU and hour: {price.basis}",
            )
        )
    return tuple(rows)


def _energy(found: EstimateAnswer) -> str:
    if found.serving is None:
        return ""
    energy = found.serving.energy
    if energy.at_most is None:
        return "Energy is not known: no power limit in the catalogue."
    return f"Energy: at most {units.energy(energy.at_most, 2)}; {energy.reason}."


def _day_title(found: EstimateAnswer, query: EstimateQuery) -> str:
    serving = found.serving
    if serving is None or serving.replicas is None or query.day_req_s is None:
        return ""
    plan = serving.replicas
    return (
        f"{plan.replicas} replica{'s' if plan.replicas != 1 else ''} for "
        f"{units.number(max(query.day_req_s))} requests a second, each loaded to "
        f"{units.percent(plan.load_per_replica)} of {units.number(serving.capacity_req_s)} req/s"
    )


def _assumptions(found: EstimateAnswer) -> tuple[tuple[str, str], ...]:
    request, result = found.request, found.estimate
    dtype = result.roofline.place.dtype
    dtype = "as published" if dtype == "auto" else dtype
    rows = [
        (
            "Load",
            f"{request.isl:,} tokens in, {request.osl:,} out, {found.concurrency:,} in flight",
        ),
        ("Placement", f"TP {request.tp}, PP {request.pp}, {_placement(request)}"),
        ("Weights", f"{dtype}, {units.memory(result.weight_bytes)} in all"),
        ("KV cache", f"{units.number(result.kv_itemsize)} B an element"),
        ("Engine", f"{request.engine} {request.engine_version}".strip()),
        ("Device", request.gpu.source),
    ]
    if result.basis == "calibrated":
        points = serving_model().provenance.get("unique_points")
        rows.append(("Times", f"fitted on {points:,} published measurements; intervals hold 90 %"))
    if found.price is not None:
        rows.append(("Price", found.price.basis))
    return tuple(rows)
