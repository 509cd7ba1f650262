"""Scenario presets: who waits for what, in words, with the traffic of `gpuagent.presets`. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gpuagent.presets import TRAFFIC, PresetTraffic
from gpuagent.wire import SlaTarget, Workload
from gpuagent.wire.workload import Preset


@dataclass(frozen=True, slots=True)
class ScenarioPreset:
    """title and summary are shown beside the choice; `trade_off` says what gives way to what."""

    key: Preset
    title: str
    summary: str
    trade_off: str

    @property
    def traffic(self) -> PresetTraffic:
        return TRAFFIC[self.key]

    def workload_for(self, *, small: bool) -> Workload:
        return self.traffic.small_workload if small else self.traffic.workload

    def targets_for(self, *, small: bool) -> tuple[SlaTarget, ...]:
        return self.traffic.small_targets if small else self.traffic.targets


PRESETS: dict[Preset, ScenarioPreset] = {
    preset.key: preset
    for preset in (
        ScenarioPreset(
            key="chat",
            title="Chat",
            summary="A person reads along: the first word soon, then no stutter.",
            trade_off="Low latency per token against requests per device.",
        ),
        ScenarioPreset(
            key="api",
            title="API",
            summary="A program waits for the whole answer: long prompts, short structured output.",
            trade_off="End-to-end latency against requests per device.",
        ),
        ScenarioPreset(
            key="edge",
            title="Edge",
            summary="One user on a small device: memory and energy decide, then speed.",
            trade_off="Memory and energy against precision.",
        ),
        ScenarioPreset(
            key="batch",
            title="Batch",
            summary="Nobody waits: as many tokens as possible for the money.",
            trade_off="Throughput and cost against latency.",
        ),
    )
}
