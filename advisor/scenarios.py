"""What each scenario aims at and which settings it turns first. Pure.

Lengths, default targets and the trade-off are those of `advisor.presets`.
"""

from __future__ import annotations

from dataclasses import dataclass

from advisor import units
from advisor.knobs import knob_name
from advisor.presets import PRESETS
from advisor.targets import limit_text, target_name
from gpuagent.wire.workload import Preset


@dataclass(frozen=True, slots=True)
class Scenario:
    """objective: what is best, in words. knobs: canonical settings in scope, strongest first."""

    objective: str
    knobs: tuple[str, ...]


SCENARIOS: dict[Preset, Scenario] = {
    "chat": Scenario(
        "Keep the first token and the gap between tokens within their limits.",
        ("max_batched_tokens", "chunked_prefill", "max_running", "cuda_graphs", "dtype"),
    ),
    "api": Scenario(
        "Keep the whole answer within its limit, prompt included.",
        ("prefix_cache", "max_batched_tokens", "max_running", "cuda_graphs", "dtype"),
    ),
    "edge": Scenario(
        "Keep memory within the device, then the gap between tokens within its limit.",
        ("dtype", "quantization", "kv_dtype", "memory_share_frac", "threads", "attention"),
    ),
    "batch": Scenario(
        "Make as many tokens a second as the money allows; nobody waits for one.",
        ("max_running", "max_batched_tokens", "memory_share_frac", "kv_dtype", "quantization"),
    ),
}


def scenarios_markdown() -> str:
    """`docs/scenarios.md`; a test holds the file against it."""
    lines = [
        "# Scenarios",
        "",
        "Written from `advisor/scenarios.py` and `advisor/presets.py` (`UPDATE_GOLDEN=1 pytest"
        " tests/advisor/test_scenarios.py` writes",
        "it anew). Targets are defaults: change them in the form, or afterwards under “What if”,"
        " together with the price. A small",
        "set of lengths and limits is used on agents without a GPU. Settings are named as in"
        " [knobs.md](knobs.md).",
        "",
    ]
    for key, scenario in SCENARIOS.items():
        preset = PRESETS[key]
        lines += [
            f"## {preset.title}",
            "",
            preset.summary,
            "",
            f"- Objective: {scenario.objective}",
            f"- Trade-off: {preset.trade_off}",
            f"- Targets: {_targets(key, small=False)}; small: {_targets(key, small=True)}.",
            f"- Settings in scope: {', '.join(knob_name(knob) for knob in scenario.knobs)}.",
            "",
        ]
    return "\n".join(lines).replace(units.NBSP, " ")


def _targets(key: Preset, *, small: bool) -> str:
    return ", ".join(
        f"{target_name(target)} {'≥' if target.higher_is_better else '≤'} {limit_text(target)}"
        for target in PRESETS[key].targets_for(small=small)
    )
