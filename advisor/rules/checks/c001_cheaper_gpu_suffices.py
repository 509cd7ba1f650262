"""A cheaper GPU of the catalogue keeps the latency targets by calibrated prediction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from advisor import units
from advisor.catalog import GpuSpec, list_gpus, price_basis
from advisor.estimates.options import GpuOption, per_gpu
from advisor.estimates.rows import RowError
from advisor.estimates.service import Estimate
from advisor.evidence import StudyEvidence
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import (
    device_spec,
    needed_concurrency,
    not_applicable,
    plain,
    request_of,
)
from advisor.shapes import ShapeError
from advisor.targets import target_name
from gpuagent.wire import SlaTarget

ID = "cheaper-gpu-suffices"
# The engine whose measurements the predictor is fitted on.
_ENGINE = "vllm"
_TIMES = ("ttft_s", "itl_s", "e2e_s")


def check(evidence: StudyEvidence) -> list[Finding]:
    if evidence.spec.engine == "openai":
        missing = "A server that the agent starts: the GPU of an endpoint is not known"
        return not_applicable(ID, "GPUs are not compared", missing)
    device, spec = evidence.device, device_spec(evidence)
    targets = [t for t in evidence.spec.targets if t.metric in (*_TIMES, "output_tok_s")]
    request = request_of(evidence)
    if device is None or device.kind != "gpu" or spec is None or request is None or not targets:
        missing = "A GPU of the catalogue, a readable config, and a latency or throughput target"
        return not_applicable(ID, "GPUs are not compared", missing)
    prices = evidence.prices
    price = price_basis(spec, overrides=prices)
    if price is None:
        return not_applicable(ID, f"No price is known for {spec.name}", "A price of the GPU in use")
    needed = needed_concurrency(evidence)
    if needed is None and evidence.spec.workload.request_rate_per_s is not None:
        missing = "A valid baseline: the rate alone does not say how many requests run at once"
        return not_applicable(ID, "GPUs are not compared", missing)
    load = replace(request, engine=_ENGINE, concurrency=needed[0] if needed is not None else 1)
    try:
        options = per_gpu(load, list_gpus())
    except (RowError, ShapeError) as error:
        return not_applicable(ID, "GPUs are not compared", f"A load within range ({error})")
    now = price.usd_per_gpu_hour
    own = next((o for o in options if o.gpu.name == spec.name), None)
    cheaper = [
        (cost, option)
        for option in options
        if (cost := _hourly(option, prices)) is not None
        and cost < now
        and _keeps(option.estimate, targets)
    ]
    if not cheaper:
        item = EvidenceItem(
            text=f"{spec.name} costs {now:.2f} USD per hour ({price.basis}); of {len(options)} "
            "GPUs none that was measured is cheaper and keeps every target",
            value=now,
            unit="USD/h",
            n=len(options),
        )
        return plain(ID, Verdict.PASS, "No cheaper GPU keeps the targets by prediction", item)
    cost, best = min(cheaper, key=lambda row: row[0])
    left_out = [t for t in evidence.spec.targets if t not in targets]
    return [_finding(spec, now, price.basis, own, cost, best, left_out)]


def _hourly(option: GpuOption, prices: Mapping[str, float]) -> float | None:
    """USD per hour of one copy on a GPU that the predictor was fitted on."""
    found = option.estimate
    price = price_basis(option.gpu, overrides=prices)
    if found is None or price is None or option.tp is None or not found.fits:
        return None
    if found.basis != "calibrated" or found.domain in ("new_hardware", "roofline"):
        return None
    return price.usd_per_gpu_hour * option.tp


def _keeps(found: Estimate | None, targets: list[SlaTarget]) -> bool:
    """Whether the pessimistic end of the prediction keeps every target."""
    if found is None or found.ttft_s is None or found.tpot_s is None:
        return False
    if found.throughput_tok_s is None:
        return False
    first, gap = found.ttft_s.high, found.tpot_s.high
    values = {"ttft_s": first, "itl_s": gap, "output_tok_s": found.throughput_tok_s.low}
    if any(t.metric == "e2e_s" for t in targets):
        return False  # the length of each answer is not part of the prediction
    return all(
        values[t.metric] >= t.limit if t.higher_is_better else values[t.metric] <= t.limit
        for t in targets
    )


def _finding(
    spec: GpuSpec,
    now: float,
    basis: str,
    own: GpuOption | None,
    cost: float,
    best: GpuOption,
    left_out: list[SlaTarget],
) -> Finding:
    items = [
        EvidenceItem(
            text=f"{spec.name}: {now:.2f} USD per hour ({basis}){_times(own)}",
            value=now,
            unit="USD/h",
        ),
        EvidenceItem(
            text=f"{best.tp} × {best.gpu.name}: {cost:.2f} USD per hour{_times(best)}",
            value=cost,
            unit="USD/h",
        ),
    ]
    known = best.estimate is not None and best.estimate.in_domain
    return Finding(
        rule_id=ID,
        verdict=Verdict.FAIL,
        title=f"Try {best.tp} × {best.gpu.name}: by prediction it keeps the targets for "
        f"{units.percent(cost / now)} of the price",
        summary=f"Predicted for {_ENGINE}, with the pessimistic end of each interval; measure on "
        f"that GPU before moving.{_not_predicted(left_out)}",
        evidence=tuple(items),
        change=Change(text=f"Run this study on a host with {best.tp} × {best.gpu.name}."),
        confidence="medium" if known else "low",
        confidence_reason="model and GPU are among the measured ones"
        if known
        else "the model itself was not measured on this GPU",
    )


def _not_predicted(targets: list[SlaTarget]) -> str:
    names = ", ".join(target_name(target) for target in targets)
    return f" Not part of the prediction: {names}." if names else ""


def _times(option: GpuOption | None) -> str:
    found = option.estimate if option is not None else None
    if found is None or found.ttft_s is None or found.tpot_s is None:
        return ""
    return (
        f"; predicted TTFT {units.seconds(found.ttft_s.value)} (up to "
        f"{units.seconds(found.ttft_s.high)}), gap {units.seconds(found.tpot_s.value)} (up to "
        f"{units.seconds(found.tpot_s.high)})"
    )


RULE = Rule(
    id=ID,
    code="c001",
    group="cost and energy",
    title="No cheaper GPU keeps the targets",
    failing_title="Try a cheaper GPU",
    why="A GPU that is faster than the targets ask is paid for every hour and used in none.",
    how_measured="Calibrated prediction of the model and load on every GPU of the catalogue at its "
    "smallest group that fits; the organisation's own prices, else median on-demand prices seen on "
    "a date.",
    threshold="Fails when a measured GPU costs less per hour and the pessimistic end of its "
    "prediction keeps every target.",
    source="prices and predictor of the catalogue (docs/prediction.md)",
    when_not="When the price in use is a contract's: set your own prices first.",
    needs=("a GPU of the catalogue with a price", "a latency or throughput target"),
    knobs=(),
    check=check,
)
