"""The traffic of each scenario: lengths, amount and default targets, for studies and the load tool.

Every preset comes twice: for servers, and small, so that a model of 0.1-1 B parameters on a few CPU
cores finishes a study in minutes. Rates are None: a rate is the user's own number, and without one
requests follow each other and no latency at a rate is claimed. Percentiles fit the number of
requests: p95 needs 72 to be shown and 59 to be proven, p90 needs 36 and 29.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuagent.wire import LengthSpec, SlaTarget, Workload
from gpuagent.wire.sla import parse_target
from gpuagent.wire.workload import Preset


@dataclass(frozen=True, slots=True)
class PresetTraffic:
    """What is asked, and what of it counts as good."""

    workload: Workload
    targets: tuple[SlaTarget, ...]
    small_workload: Workload
    small_targets: tuple[SlaTarget, ...]


def _lengths(mean: int, p95: int | None = None) -> LengthSpec:
    if p95 is None:
        return LengthSpec(mean=mean)
    # Cut at twice the 95th percentile: a lognormal tail has no end, a context window has one.
    return LengthSpec(kind="lognormal", mean=mean, p95=p95, maximum=2 * p95)


def _workload(preset: Preset, inputs: LengthSpec, outputs: LengthSpec, requests: int) -> Workload:
    return Workload(preset=preset, input_tokens=inputs, output_tokens=outputs, requests=requests)


def _targets(*texts: str) -> tuple[SlaTarget, ...]:
    return tuple(parse_target(text) for text in texts)


TRAFFIC: dict[Preset, PresetTraffic] = {
    "chat": PresetTraffic(
        workload=_workload("chat", _lengths(512, 1400), _lengths(256, 640), 120),
        targets=_targets("ttft_s:p95<=0.5", "itl_s:p95<=0.05"),
        small_workload=_workload("chat", _lengths(64), _lengths(16), 40),
        small_targets=_targets("ttft_s:p90<=0.5", "itl_s:p90<=0.06"),
    ),
    "api": PresetTraffic(
        workload=_workload("api", _lengths(1024, 3000), _lengths(96, 240), 120),
        targets=_targets("e2e_s:p95<=3", "ttft_s:p95<=1"),
        small_workload=_workload("api", _lengths(128), _lengths(12), 40),
        small_targets=_targets("e2e_s:p90<=2"),
    ),
    "edge": PresetTraffic(
        workload=_workload("edge", _lengths(128, 320), _lengths(64, 160), 80),
        targets=_targets(f"memory_bytes:peak<={4 * 1024**3}", "itl_s:p95<=0.1"),
        small_workload=_workload("edge", _lengths(48), _lengths(16), 40),
        small_targets=_targets(f"memory_bytes:peak<={2 * 1024**3}", "itl_s:p90<=0.1"),
    ),
    "batch": PresetTraffic(
        workload=_workload("batch", _lengths(1024, 2400), _lengths(512, 1200), 60),
        targets=_targets("output_tok_s:mean>=100"),
        small_workload=_workload("batch", _lengths(96), _lengths(24), 30),
        small_targets=_targets("output_tok_s:mean>=15"),
    ),
}
