"""Telemetry of a trial in a table: least, median and greatest of what the agent sampled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from advisor import units
from advisor.pages.present.live import spark
from gpuagent.wire import GpuSample, HostSample

_Text = Callable[[float | None], str]


@dataclass(frozen=True, slots=True)
class Reading:
    """One quantity over the trial."""

    name: str
    least: str
    middle: str
    greatest: str
    n: int
    points: str


def with_unit(unit: str, scale: float = 1.0) -> _Text:
    """A formatter: value times `scale` with three digits and `unit`, the dash for None."""

    def text(value: float | None) -> str:
        return units.DASH if value is None else f"{units.number(value * scale)}{units.NBSP}{unit}"

    return text


HOST: tuple[tuple[str, str, _Text], ...] = (
    ("CPU utilisation", "cpu_frac", units.percent),
    ("Load (1 min)", "load_1min", units.number),
    ("Free memory", "memory_available_bytes", units.memory),
    ("Memory of the trial", "child_rss_bytes", units.memory),
    ("CPU of the trial", "child_cpu_cores", with_unit("cores")),
)
GPU: tuple[tuple[str, str, _Text], ...] = (
    ("utilisation", "util_frac", units.percent),
    ("memory", "memory_used_bytes", units.memory),
    ("power", "power_w", with_unit("W")),
    ("temperature", "temperature_c", with_unit("°C")),
    ("SM clock", "sm_clock_hz", with_unit("MHz", 1e-6)),
    ("memory clock", "memory_clock_hz", with_unit("MHz", 1e-6)),
    ("foreign processes", "foreign_processes", units.count),
)


def readings(samples: Sequence[HostSample]) -> tuple[Reading, ...]:
    """Every quantity that was sampled at least once, host first."""
    found = [_reading(name, [getattr(s, key) for s in samples], text) for name, key, text in HOST]
    for index in sorted({gpu.index for sample in samples for gpu in sample.gpus}):
        gpus = [_gpu(sample, index) for sample in samples]
        found += [
            _reading(f"GPU {index} {name}", [getattr(g, key) if g else None for g in gpus], text)
            for name, key, text in GPU
        ]
    return tuple(reading for reading in found if reading is not None)


def throttling(samples: Sequence[HostSample]) -> tuple[str, ...]:
    """Reasons for which a GPU lowered its clocks, each with its share of the samples."""
    counts: dict[str, int] = {}
    for sample in samples:
        for reason in {r for gpu in sample.gpus for r in gpu.throttle_reasons}:
            counts[reason] = counts.get(reason, 0) + 1
    return tuple(
        f"{reason}: {units.percent(count / len(samples))} of the samples"
        for reason, count in sorted(counts.items(), key=lambda item: -item[1])
    )


def _gpu(sample: HostSample, index: int) -> GpuSample | None:
    return next((gpu for gpu in sample.gpus if gpu.index == index), None)


def _reading(name: str, values: Sequence[float | None], text: _Text) -> Reading | None:
    known = [v for v in values if v is not None]
    if not known:
        return None
    return Reading(
        name=name,
        least=text(min(known)),
        middle=text(median(known)),
        greatest=text(max(known)),
        n=len(known),
        points=spark(values),
    )
