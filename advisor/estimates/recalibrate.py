"""An organisation's own measurements on a GPU correct the prediction there.

The mean log residual of the own points, shrunk towards zero, shifts the prediction; their spread
replaces the published interval as they become many.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from advisor.estimates.features import ServingPoint
from advisor.estimates.serving import Interval, ServingModel, ServingPrediction

# One own point moves the prediction by two thirds of what it shows; run-to-run noise is 5 %.
SHRINK = 0.5
_Z90 = 1.645
_NOISE = 0.05


@dataclass(frozen=True, slots=True)
class OwnMeasurement:
    """A measured point of the organisation, in seconds; None where not measured."""

    point: ServingPoint
    ttft_s: float | None
    tpot_s: float | None


@dataclass(frozen=True, slots=True)
class Recalibrated:
    """A corrected prediction and the sentence that says so."""

    prediction: ServingPrediction
    points: int
    note: str


def recalibrate(
    prediction: ServingPrediction, own: Sequence[OwnMeasurement], model: ServingModel
) -> Recalibrated:
    """`prediction` corrected by own points of the same hardware; unchanged without usable ones."""
    residuals: dict[str, list[float]] = {"ttft": [], "tpot": []}
    for item in own:
        predicted = model.predict(item.point)
        if predicted is None:
            continue
        for name, measured, fitted in (
            ("ttft", item.ttft_s, predicted.ttft_s.value),
            ("tpot", item.tpot_s, predicted.tpot_s.value),
        ):
            if measured is not None and measured > 0:
                residuals[name].append(math.log(measured / fitted))
    count = max(len(values) for values in residuals.values())
    if count == 0:
        return Recalibrated(prediction, 0, "")
    changed = replace(
        prediction,
        ttft_s=_corrected(prediction.ttft_s, residuals["ttft"]),
        tpot_s=_corrected(prediction.tpot_s, residuals["tpot"]),
    )
    tpot = math.exp(sum(residuals["tpot"]) / max(len(residuals["tpot"]), 1)) - 1
    note = (
        f"recalibrated on {count} own measurement{'s' if count > 1 else ''} on this hardware: "
        f"measured TPOT was {tpot:+.0%} against the published fit"
    )
    return Recalibrated(changed, count, note)


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
