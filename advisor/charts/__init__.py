"""Charts by id. A new chart is one file, one line here and one test file.

Pure: evidence in, values out; knows neither Django nor the network.
"""

from advisor.charts import (
    attention,
    batching,
    boundary,
    coordinates,
    day,
    device,
    formats,
    highest_rate,
    kernels,
    kv_blocks,
    kv_cache,
    kv_forms,
    latency_spread,
    latency_trials,
    parallel,
    roofline,
    server_timeline,
    speed_grid,
    tradeoff,
)
from advisor.charts.base import Builder, Chart, ChartInput, Column

CHARTS: dict[str, Builder] = {
    "ttft-trials": latency_trials.ttft,
    "itl-trials": latency_trials.itl,
    "e2e-trials": latency_trials.e2e,
    "ttft-spread": latency_spread.ttft,
    "itl-spread": latency_spread.itl,
    "kv-speed": kv_cache.speed,
    "kv-memory": kv_cache.memory,
    "kv-forms": kv_forms.forms,
    "kv-blocks": kv_blocks.waste,
    "prefill-grid": speed_grid.prefill,
    "decode-grid": speed_grid.decode,
    "ceilings": device.ceilings,
    "recoverable": device.recoverable,
    "step-forms": kernels.steps,
    "gemm-share": kernels.products,
    "attention-time": attention.time,
    "attention-memory": attention.structures,
    "format-tradeoff": formats.tradeoff,
    "batch-scaling": batching.scaling,
    "tensor-parallel": parallel.sizes,
    "coordinates": coordinates.trials,
    "tradeoff": tradeoff.pareto,
    "roofline": roofline.points,
    "ttft-by-rate": boundary.ttft,
    "itl-by-rate": boundary.itl,
    "e2e-by-rate": boundary.e2e,
    "goodput-by-rate": boundary.good,
    "throughput-by-rate": boundary.output,
    "highest-rate": highest_rate.highest,
    "day-load": day.study,
    "server-timeline": server_timeline.timeline,
}

STUDY_CHARTS: tuple[tuple[str, ...], ...] = (
    ("ttft-by-rate", "itl-by-rate", "e2e-by-rate"),
    ("highest-rate", "goodput-by-rate", "throughput-by-rate"),
    ("day-load",),
    ("ttft-trials", "itl-trials", "e2e-trials"),
    ("ttft-spread", "itl-spread"),
    ("tradeoff",),
    ("kv-speed", "kv-memory", "kv-forms", "kv-blocks"),
    ("prefill-grid", "decode-grid"),
    ("roofline", "recoverable", "step-forms", "gemm-share", "ceilings"),
    ("attention-time", "attention-memory"),
    ("format-tradeoff",),
    ("batch-scaling",),
    ("tensor-parallel",),
    ("coordinates",),
)
"""Charts of a study page, in order; those of one tuple share a box with a switch."""

ONLY_WHEN_MEASURED = frozenset(
    {
        "recoverable",
        "step-forms",
        "gemm-share",
        "ceilings",
        "attention-time",
        "attention-memory",
        "format-tradeoff",
        "batch-scaling",
    }
)
"""Charts of experiments that only a diagnosis runs: no empty box stands for them."""

ONLY_WITH_SEVERAL = frozenset({"coordinates", "tradeoff", "roofline"})
"""Charts of several configurations or products: a study without them is not short of anything."""

ONLY_FOR_BOUNDARY = frozenset(
    {"ttft-by-rate", "itl-by-rate", "e2e-by-rate", "goodput-by-rate", "throughput-by-rate"}
    | {"highest-rate"}
)
"""Charts of studies that look for the highest rate."""

ONLY_WITH_TARGET = {"e2e-trials": "e2e_s"}
"""Charts that answer nobody's question unless the study has a target on the metric."""

ONLY_FOR_GOAL = {"tensor-parallel": "diagnose"}
"""Predictions that belong to a diagnosis; without a known GPU their box says why it is empty."""


def _wanted(chart_id: str, data: ChartInput) -> bool:
    if chart_id in ONLY_FOR_BOUNDARY and not data.evidence.spec.boundary:
        return False
    if chart_id == "day-load" and data.evidence.spec.day_req_s is None:
        return False
    metric, goal = ONLY_WITH_TARGET.get(chart_id), ONLY_FOR_GOAL.get(chart_id)
    if metric is not None and data.target(metric) is None:
        return False
    return goal is None or data.evidence.spec.goal == goal


def chart(chart_id: str, data: ChartInput) -> Chart:
    """Build one chart. Raises KeyError for an id that is not registered."""
    return CHARTS[chart_id](data)


def study_charts(data: ChartInput) -> tuple[tuple[Chart, ...], ...]:
    """The groups of a study page. In each, empty charts are left out unless all are empty."""
    # What a simulator or a file cannot hold is nobody's next step.
    simulated = data.evidence.spec.engine in ("simulated", "imported")
    groups = []
    for ids in STUDY_CHARTS:
        built = [chart(i, data) for i in ids if _wanted(i, data)]
        if not built:
            continue
        drawn = tuple(c for c in built if not c.is_empty)
        if drawn or not (simulated or ids[0] in ONLY_WHEN_MEASURED | ONLY_WITH_SEVERAL):
            groups.append(drawn or (built[0],))
    return tuple(groups)


__all__ = ["CHARTS", "Chart", "ChartInput", "Column", "chart", "study_charts"]
