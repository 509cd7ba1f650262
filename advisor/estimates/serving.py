"""TTFT and TPOT of a serving point: fitted floors, group effects, and conformal intervals.

log t = log(Σ θ·floors) + Σ_levels (a_g + b_g·load) + mechanism + local terms - shift(domain).
Levels go from the engine down to one engine, GPU, precision and model; a group that was never
measured adds nothing, so an unseen model or GPU falls back on what its engine and hardware class
share. Intervals are conformal: quantiles of held-out errors of the same kind of extrapolation.
Coefficients: `data/serving_model.json`, written by `scripts/fit_predictor.py`.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from advisor.estimates.features import (
    LEVELS,
    PointFeatures,
    ServingPoint,
    Vector,
    point_features,
)

# Kinds of extrapolation, from interpolation outwards. INSIDE: the cell and these token counts were
# measured; BETWEEN: the cell was, at token counts around these.
INSIDE, BETWEEN, NEAR, NEW_MODEL, NEW_HARDWARE, OUTSIDE = (
    "inside",
    "between",
    "near",
    "new_model",
    "new_hardware",
    "outside",
)
DOMAINS = (INSIDE, BETWEEN, NEAR, NEW_MODEL, NEW_HARDWARE, OUTSIDE)
_LOCAL_LEVELS = ("cell", "engine_gpu_precision", "engine")
_SIGMA_FEATURES = 9


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with the bounds of its 90 % interval; same unit."""

    value: float
    low: float
    high: float

    def scaled(self, factor: float) -> Interval:
        return Interval(self.value * factor, self.low * factor, self.high * factor)

    def above(self, floor: float) -> Interval:
        """The interval with nothing below `floor`."""
        return Interval(max(self.value, floor), max(self.low, floor), max(self.high, floor))

    def as_dict(self) -> dict[str, float]:
        return {"value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True, slots=True)
class ServingPrediction:
    """Times of one point. `domain` says what kind of extrapolation the interval stands for."""

    ttft_s: Interval
    tpot_s: Interval
    domain: str
    features: PointFeatures

    @property
    def in_domain(self) -> bool:
        return self.domain in (INSIDE, BETWEEN)


@dataclass(frozen=True, slots=True)
class LocalBasis:
    """A smooth basis over positions: Gaussian bumps at landmarks, whitened (Nyström features)."""

    landmarks: Vector  # [m, 6]
    whitener: Vector  # [m, m]
    length: float

    def __call__(self, position: Vector) -> Vector:
        """Basis values at one position [6] or several [n, 6]."""
        gap = position[..., None, :] - self.landmarks
        bumps = np.exp(-np.sum(gap * gap, axis=-1) / (2.0 * self.length**2))
        return np.asarray(bumps @ self.whitener)


@dataclass(frozen=True, slots=True)
class TargetModel:
    """Fitted numbers of one target (ttft or tpot)."""

    theta: Vector
    effects: tuple[dict[str, Vector], ...]  # per level: group -> [intercept, slopes…]
    mechanism: dict[str, Vector]  # "" for all, and per engine
    basis: LocalBasis
    local: tuple[dict[str, Vector], ...]  # per local level: group -> weights of the local basis
    sigma: dict[str, Vector]  # per domain: coefficients of log sigma
    quantiles: dict[str, tuple[float, float]]  # per domain: low and high of error / sigma
    shift: dict[str, float]  # per domain: share of sigma squared taken off


@dataclass(frozen=True, slots=True)
class ServingModel:
    """Both targets and the measured domain."""

    ttft: TargetModel
    tpot: TargetModel
    boxes: dict[str, tuple[Vector, Vector]]  # cell -> least and greatest measured position
    counts: dict[str, int]  # cell -> measured points
    lengths: dict[str, frozenset[str]]  # cell -> measured "isl/osl"
    provenance: dict[str, Any]

    def predict(self, point: ServingPoint) -> ServingPrediction | None:
        """Times of a point; None when no measurement of this engine exists at all."""
        features = point_features(point)
        if features.groups[1] not in self.tpot.effects[1]:
            return None
        domain = self.domain_of(features)
        tpot = self._interval(self.tpot, features, features.tpot_terms, domain)
        if domain in (NEW_MODEL, NEW_HARDWARE):
            # Nothing measured says that this model speculates: a step reads its weights and cache.
            tpot = tpot.above(features.floor.weights_s + features.floor.kv_s)
        return ServingPrediction(
            ttft_s=self._interval(self.ttft, features, features.ttft_terms, domain),
            tpot_s=tpot,
            domain=domain,
            features=features,
        )

    def domain_of(self, features: PointFeatures) -> str:
        """How far the point lies from the measurements, by its groups and its cell's box."""
        groups = dict(zip(LEVELS, features.groups, strict=True))
        known = {name: groups[name] in self.tpot.effects[LEVELS.index(name)] for name in LEVELS}
        if not known["engine"]:
            return OUTSIDE
        if known["cell"]:
            low, high = self.boxes[groups["cell"]]
            slack = np.array([0.5, 0.4, 0.4, 0.1, 0.1, 0.1])
            inside = np.all(features.position >= low - slack) and np.all(
                features.position <= high + slack
            )
            if not inside:
                return NEAR
            return INSIDE if features.lengths in self.lengths[groups["cell"]] else BETWEEN
        if not known["gpu_precision"] and not known["gpu"]:
            return NEW_HARDWARE
        if not known["model"]:
            return NEW_MODEL
        return NEAR if known["engine_gpu_precision"] or known["engine_model"] else NEW_MODEL

    def log_mean(self, target: TargetModel, features: PointFeatures, terms: Vector) -> float:
        """log of the fitted time, before the shift."""
        total = math.log(max(float(target.theta @ terms), 1e-4))
        for level, group in zip(target.effects, features.groups, strict=True):
            weights = level.get(group)
            if weights is not None:
                total += float(weights[0] + weights[1:] @ features.load)
        for key in ("", features.groups[1]):
            mechanism = target.mechanism.get(key)
            if mechanism is not None:
                total += float(mechanism @ features.mechanism)
        basis: Vector | None = None
        groups = dict(zip(LEVELS, features.groups, strict=True))
        for level_name, table in zip(_LOCAL_LEVELS, target.local, strict=True):
            weights = table.get(groups[level_name])
            if weights is not None:
                if basis is None:
                    basis = target.basis(features.position)
                total += float(weights @ basis)
        return total

    def sigma(self, target: TargetModel, features: PointFeatures, domain: str) -> float:
        """Expected size of the log error of a point of this domain."""
        count = self.counts.get(features.groups[LEVELS.index("cell")], 0)
        return sigma_of(target.sigma[domain], sigma_features(features, count))

    def _interval(
        self, target: TargetModel, features: PointFeatures, terms: Vector, domain: str
    ) -> Interval:
        mean = self.log_mean(target, features, terms)
        sigma = self.sigma(target, features, domain)
        low, high = target.quantiles[domain]
        # Under a skewed error the unbiased value of least relative error lies below the median.
        value = mean - target.shift[domain] * sigma * sigma
        return Interval(
            math.exp(value),
            math.exp(min(mean + low * sigma, value)),
            math.exp(max(mean + high * sigma, value)),
        )


def sigma_features(features: PointFeatures, cell_count: int) -> Vector:
    """What the size of an error depends on: load, queueing, engine, support."""
    engine = features.groups[1]
    load = features.load
    return np.array(
        [
            1.0,
            float(engine == "vllm"),
            float(engine == "sglang"),
            load[0],
            load[11],
            load[12],
            load[14],
            math.log1p(cell_count) - 3.0,
            load[4],
        ]
    )


def sigma_of(weights: Vector, features: Vector) -> float:
    return float(np.clip(math.exp(float(weights @ features)), 0.01, 1.5))


@cache
def serving_model() -> ServingModel:
    """The fitted model that ships with the package."""
    text = (
        resources.files("advisor.estimates")
        .joinpath("data", "serving_model.json")
        .read_text(encoding="utf-8")
    )
    return model_from_json(json.loads(text))


def model_from_json(data: dict[str, Any]) -> ServingModel:
    return ServingModel(
        ttft=_target(data["ttft"]),
        tpot=_target(data["tpot"]),
        boxes={k: (np.array(low), np.array(high)) for k, (low, high) in data["boxes"].items()},
        counts=dict(data["counts"]),
        lengths={cell: frozenset(pairs) for cell, pairs in data["lengths"].items()},
        provenance=dict(data["provenance"]),
    )


def _target(data: dict[str, Any]) -> TargetModel:
    def table(rows: dict[str, list[float]]) -> dict[str, Vector]:
        return {key: np.array(row) for key, row in rows.items()}

    return TargetModel(
        theta=np.array(data["theta"]),
        effects=tuple(table(data["effects"][name]) for name in LEVELS),
        mechanism=table(data["mechanism"]),
        basis=LocalBasis(
            np.array(data["basis"]["landmarks"]),
            np.array(data["basis"]["whitener"]),
            data["basis"]["length"],
        ),
        local=tuple(table(data["local"][name]) for name in _LOCAL_LEVELS),
        sigma=table(data["sigma"]),
        quantiles={key: (low, high) for key, (low, high) in data["quantiles"].items()},
        shift=dict(data["shift"]),
    )
