"""Scenario presets: who waits for what, as lengths and default targets. Pure.

Every preset comes twice: for servers, and small, so that a model of 0.1-1 B parameters on a few CPU
cores finishes a study in minutes. Rates are None: a rate is the user's own number, and without one
requests follow each other and no latency at a rate is claimed. Percentiles fit the number of
requests: p95 needs 72 to be shown and 59 to be proven, p90 needs 36 and 29.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuagent.wire import LengthSpec, SlaTarget, Workload
from gpuagent.wire.workload import Preset


@dataclass(frozen=True, slots=True)
class ScenarioPreset:
    """title and summary are shown beside the choice; `trade_off` says what gives way to what."""

    key: Preset
    title: str
    summary: str
    trade_off: str
    workload: Workload
    targets: tuple[SlaTarget, ...]
    small_workload: Workload
    small_targets: tuple[SlaTarget, ...]

    def workload_for(self, *, small: bool) -> Workload:
        return self.small_workload if small else self.workload

    def targets_for(self, *, small: bool) -> tuple[SlaTarget, ...]:
        return self.small_targets if small else self.targets


def _target(metric: str, statistic: str, limit: float) -> SlaTarget:
    return SlaTarget.model_validate({"metric": metric, "statistic": statistic, "limit": limit})


def _lengths(mean: int, p95: int | None = None) -> LengthSpec:
    if p95 is None:
        return LengthSpec(mean=mean)
    # Cut at twice the 95th percentile: a lognormal tail has no end, a context window has one.
    return LengthSpec(kind="lognormal", mean=mean, p95=p95, maximum=2 * p95)


PRESETS: dict[Preset, ScenarioPreset] = {
    "chat": ScenarioPreset(
        key="chat",
        title="Chat",
        summary="A person reads along: the first word soon, then no stutter.",
        trade_off="Low latency per token against requests per device.",
        workload=Workload(
            preset="chat",
            input_tokens=_lengths(512, 1400),
            output_tokens=_lengths(256, 640),
            requests=120,
        ),
        targets=(_target("ttft_s", "p95", 0.5), _target("itl_s", "p95", 0.05)),
        small_workload=Workload(
            preset="chat",
            input_tokens=_lengths(64),
            output_tokens=_lengths(16),
            requests=40,
        ),
        small_targets=(_target("ttft_s", "p90", 0.5), _target("itl_s", "p90", 0.06)),
    ),
    "api": ScenarioPreset(
        key="api",
        title="API",
        summary="A program waits for the whole answer: long prompts, short structured output.",
        trade_off="End-to-end latency against requests per device.",
        workload=Workload(
            preset="api",
            input_tokens=_lengths(1024, 3000),
            output_tokens=_lengths(96, 240),
            requests=120,
        ),
        targets=(_target("e2e_s", "p95", 3.0), _target("ttft_s", "p95", 1.0)),
        small_workload=Workload(
            preset="api",
            input_tokens=_lengths(128),
            output_tokens=_lengths(12),
            requests=40,
        ),
        small_targets=(_target("e2e_s", "p90", 2.0),),
    ),
    "edge": ScenarioPreset(
        key="edge",
        title="Edge",
        summary="One user on a small device: memory and energy decide, then speed.",
        trade_off="Memory and energy against precision.",
        workload=Workload(
            preset="edge",
            input_tokens=_lengths(128, 320),
            output_tokens=_lengths(64, 160),
            requests=80,
        ),
        targets=(_target("memory_bytes", "peak", 4 * 1024**3), _target("itl_s", "p95", 0.1)),
        small_workload=Workload(
            preset="edge",
            input_tokens=_lengths(48),
            output_tokens=_lengths(16),
            requests=40,
        ),
        small_targets=(_target("memory_bytes", "peak", 2 * 1024**3), _target("itl_s", "p90", 0.1)),
    ),
    "batch": ScenarioPreset(
        key="batch",
        title="Batch",
        summary="Nobody waits: as many tokens as possible for the money.",
        trade_off="Throughput and cost against latency.",
        workload=Workload(
            preset="batch",
            input_tokens=_lengths(1024, 2400),
            output_tokens=_lengths(512, 1200),
            requests=60,
        ),
        targets=(_target("output_tok_s", "mean", 100.0),),
        small_workload=Workload(
            preset="batch",
            input_tokens=_lengths(96),
            output_tokens=_lengths(24),
            requests=30,
        ),
        small_targets=(_target("output_tok_s", "mean", 15.0),),
    ),
}
