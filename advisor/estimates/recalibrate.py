"""An organisation's own measurements on a GPU correct the prediction there.

The mean log residual of the own points, shrunk towards zero, shifts the prediction; their spread
replaces the published interval as they become many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from advisor.estimates.features import ServingPoint
from advisor.estimates.serving import Interval

# One own point moves the prediction by two thirds of what it shows; run-to-run noise is 5 %.
SHRINK = 0.5
_Z90 = 1.645
_NOISE = 0.05

Times = tuple[Interval, Interval]
"""TTFT and TPOT of a point."""


@dataclass(frozen=True, slots=True)
class OwnMeasurement:
    """A measured point of the organisation, in seconds; None where not measured."""

    point: ServingPoint
    ttft_s: float | None
    tpot_s: float | None


@dataclass(frozen=True, slots=True)
class Recalibrated:
    """Corrected times and the sentence that says so; `points` 0 and no note without usable ones."""

    times: Times
    points: int
    note: str


def recalibrate(
    point: ServingPoint,
    times: Times,
    own: Sequence[OwnMeasurement],
    predict: Callable[[ServingPoint], Times],
) -> Recalibrated:
    """`times` of `point` corrected by own points on the same GPU and engine.

    Points of the same model and arithmetic alone count where there are any, then those of the
    same model. `predict` gives what was predicted for an own point without this correction.
    """
    usable = [item for item in own if _same_machine(item.point, point)]
    same = [item for item in usable if item.point.model == point.model]
    dtype = point.roofline.compute_dtype
    alike = [item for item in same if item.point.roofline.compute_dtype == dtype]
    ttft, tpot = [], []
    for item in alike or same or usable:
        expected = predict(item.point)
        ttft += _residual(item.ttft_s, expected[0])
        tpot += _residual(item.tpot_s, expected[1])
    count = max(len(ttft), len(tpot))
    if count == 0:
        return Recalibrated(times, 0, "")
    corrected = (_corrected(times[0], ttft), _corrected(times[1], tpot))
    name, shown = ("TPOT", tpot) if tpot else ("TTFT", ttft)
    off = math.exp(sum(shown) / len(shown)) - 1
    which = "of this model" if same else "of other models"
    note = (
        f"recalibrated on {count} own measurement{'s' if count > 1 else ''} {which} on this "
        f"hardware: measured {name} was {off:+.0%} against the prediction without them"
    )
    return Recalibrated(corrected, count, note)


def _same_machine(a: ServingPoint, b: ServingPoint) -> bool:
    return a.engine == b.engine and a.roofline.place.gpu.name == b.roofline.place.gpu.name


def _residual(measured: float | None, expected: Interval) -> list[float]:
    if measured is None or not measured > 0:
        return []
    return [math.log(measured / expected.value)]


def _corrected(interval: Interval, residuals: Sequence[float]) -> Interval:
    n = len(residuals)
    if n == 0:
        return interval
    mean = sum(residuals) / (n + SHRINK)
    spread = math.sqrt(sum((r - mean) ** 2 for r in residuals) / max(n - 1, 1) + _NOISE**2)
    # What the published interval still says beside n own points.
    share = SHRINK / (n + SHRINK)
    low = math.log(interval.value / interval.low) * share + _Z90 * spread * (1 - share)
    high = math.log(interval.high / interval.value) * share + _Z90 * spread * (1 - share)
    value = interval.value * math.exp(mean)
    return Interval(value, value * math.exp(-low), value * math.exp(high))
