"""Fits the serving predictor on measured points and writes its coefficients and its evaluation.

    python scripts/fit_predictor.py --measured ../shared/data/serving-measured.csv \
        --out advisor/estimates/data/serving_model.json --report evaluation.json

The measured table has one row per point: engine, version, model, GPU, precision, lengths,
concurrency, parallel sizes, TTFT and TPOT in milliseconds. Rows that repeat one measurement count
once, so that no split has the same point on both sides. About two minutes on one core; numpy only.
"""

from __future__ import annotations

import argparse
import copy
import csv
import hashlib
import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from advisor.catalog import find_gpu
from advisor.estimates.features import (
    LEVELS,
    Load,
    PointFeatures,
    ServingPoint,
    point_features,
)
from advisor.estimates.models import resolve_model, shape_key
from advisor.estimates.roofline import Roofline
from advisor.estimates.rows import placement_of, read_parallelism, row_dtype, row_int
from advisor.estimates.serving import (
    BETWEEN,
    DOMAINS,
    INSIDE,
    NEAR,
    NEW_HARDWARE,
    NEW_MODEL,
    OUTSIDE,
    LocalBasis,
    model_from_json,
    sigma_features,
    sigma_of,
)

Array = NDArray[np.float64]
LOCAL_LEVELS = ("cell", "engine_gpu_precision", "engine")
BASIS = 64
COVERAGE = 0.90

# Prior scales of the group effects: (intercept, slope) per level, and of the shared parts. Found by
# random search on the splits below (--tune); larger means that level may move further.
HYPER_FILE = Path(__file__).with_name("predictor_hyper.json")


@dataclass(slots=True)
class Measured:
    """One unique measured point."""

    point: ServingPoint
    features: PointFeatures
    ttft_s: float
    tpot_s: float
    name: str


def load_measured(path: Path) -> list[Measured]:
    """Unique measured points of the table."""
    seen: set[tuple[Any, ...]] = set()
    result = []
    rooflines: dict[tuple[Any, ...], Roofline] = {}
    with path.open(newline="") as handle:
        for row in csv.DictReader(handle):
            gpu = find_gpu(row["system"])
            model = resolve_model(row["model_path"])
            plan = read_parallelism(row, gpus_per_node=gpu.gpus_per_node)
            # The identifier holds the client's concurrency where the batch column is ambiguous.
            stated = re.search(r"_c(\d+)_", row["id"])
            concurrency = int(stated.group(1)) if stated else plan.concurrency
            load = Load(
                row_int(row, "isl", None, 1 << 24), row_int(row, "osl", None, 1 << 24), concurrency
            )
            ttft, tpot = float(row["silicon_ttft_ms"]) / 1e3, float(row["silicon_tpot_ms"]) / 1e3
            key = (shape_key(model.shape), gpu.name, load, round(ttft, 3), round(tpot, 5))
            if key in seen or ttft <= 0 or tpot <= 0:
                continue
            seen.add(key)
            place = placement_of(model.shape, gpu, plan, row_dtype(row))
            where = (
                row["model_path"],
                *(getattr(place, f) for f in place.__slots__ if f != "gpu"),
                gpu.name,
            )
            if where not in rooflines:
                rooflines[where] = Roofline(model.shape, place)
            point = ServingPoint(
                rooflines[where],
                row["backend"],
                row["backend_version"],
                load,
                shape_key(model.shape),
            )
            result.append(Measured(point, point_features(point), ttft, tpot, model.name))
    return result


@dataclass(slots=True)
class Table:
    """Measured points as arrays."""

    rows: list[Measured]
    load: Array
    mechanism: Array
    position: Array
    groups: NDArray[np.int64]  # [level, row]: index of the group
    names: list[list[str]]  # [level][index]
    terms: dict[str, Array]
    seconds: dict[str, Array]


def as_table(rows: list[Measured]) -> Table:
    groups, names = [], []
    for level in range(len(LEVELS)):
        unique, inverse = np.unique(
            [row.features.groups[level] for row in rows], return_inverse=True
        )
        groups.append(inverse)
        names.append([str(name) for name in unique])
    return Table(
        rows,
        np.stack([row.features.load for row in rows]),
        np.stack([row.features.mechanism for row in rows]),
        np.stack([row.features.position for row in rows]),
        np.stack(groups),
        names,
        {
            "tpot": np.stack([row.features.tpot_terms for row in rows]),
            "ttft": np.stack([row.features.ttft_terms for row in rows]),
        },
        {
            "tpot": np.array([row.tpot_s for row in rows]),
            "ttft": np.array([row.ttft_s for row in rows]),
        },
    )


def nonnegative_least_squares(a: Array, b: Array, sweeps: int = 300) -> Array:
    """argmin |a x - b| with x >= 0, by coordinate descent on the normal equations."""
    x = np.zeros(a.shape[1])
    gram, right = a.T @ a, a.T @ b
    for _ in range(sweeps):
        for j in range(len(x)):
            step = (right[j] - gram[j] @ x) / max(gram[j, j], 1e-30)
            x[j] = max(0.0, x[j] + step)
    return x


def fit_floors(terms: Array, seconds: Array) -> Array:
    """Non-negative weights of the floors under relative error, robust to wild rows."""
    relative = terms / seconds[:, None]
    scale = np.linalg.norm(relative, axis=0) + 1e-12
    theta = nonnegative_least_squares(relative / scale, np.ones(len(seconds)))
    for _ in range(3):
        error = relative / scale @ theta - 1
        weight = 1 / np.maximum(1, np.abs(error) / 0.3)
        theta = nonnegative_least_squares(relative * weight[:, None] / scale, weight, 200)
    return theta / scale


def basis_of(position: Array, length: float, size: int = BASIS) -> LocalBasis:
    """Landmarks among the measured positions by pivoted Cholesky, and their whitening matrix."""
    unique = np.unique(np.round(position, 6), axis=0)
    gap = unique[:, None, :] - unique[None, :, :]
    gram = np.exp(-np.sum(gap * gap, axis=-1) / (2 * length**2))
    left = np.diag(gram).copy()
    chosen: list[int] = []
    columns = np.zeros((len(unique), 0))
    for _ in range(min(size, len(unique))):
        pivot = int(np.argmax(left))
        if left[pivot] < 1e-6:
            break
        column = (gram[:, pivot] - columns @ columns[pivot]) / math.sqrt(left[pivot])
        columns = np.column_stack([columns, column])
        left = np.maximum(left - column**2, 0)
        chosen.append(pivot)
    inner = gram[np.ix_(chosen, chosen)] + 1e-6 * np.eye(len(chosen))
    # k(x, Z) (L L')^-1 k(Z, x'): the whitener is L'^-1.
    whitener = np.linalg.inv(np.linalg.cholesky(inner)).T
    return LocalBasis(unique[chosen], whitener, length)


def kernel(table: Table, hyper: dict[str, float], local: Array) -> Array:
    """Prior covariance of the group effects between all points."""
    n = len(table.rows)
    loads = table.load @ table.load.T
    total = np.zeros((n, n))
    for level, name in enumerate(LEVELS):
        same = table.groups[level][:, None] == table.groups[level][None, :]
        total += same * (hyper[f"s_{name}"] ** 2 + hyper[f"f_{name}"] ** 2 * loads)
    engine = table.groups[LEVELS.index("engine")]
    same = engine[:, None] == engine[None, :]
    total += hyper["mechanism"] ** 2 * (table.mechanism @ table.mechanism.T) * (0.3 + same)
    smooth = local @ local.T
    for name in LOCAL_LEVELS:
        index = table.groups[LEVELS.index(name)]
        total += hyper[f"local_{name}"] ** 2 * smooth * (index[:, None] == index[None, :])
    return total


def robust_dual(covariance: Array, y: Array, noise: float, rounds: int = 4) -> Array:
    """Dual weights of the posterior mean under Student-t errors (reweighted Gaussian)."""
    weight = np.ones(len(y))
    alpha = np.zeros(len(y))
    for _ in range(rounds):
        matrix = covariance.copy()
        matrix[np.diag_indices(len(y))] += noise**2 / weight
        alpha = np.linalg.solve(matrix, y)
        residual = (y - covariance @ alpha) / noise
        weight = 4 / (3 + residual**2)
    return alpha


def fit_target(
    table: Table,
    train: NDArray[np.int64],
    name: str,
    hyper: dict[str, float],
    covariance: Array,
    local: Array,
) -> dict[str, Any]:
    """Coefficients of one target from the points of `train`."""
    seconds = table.seconds[name][train]
    terms = table.terms[name][train]
    theta = fit_floors(terms, seconds)
    y = np.log(seconds / np.maximum(terms @ theta, 1e-4))
    alpha = robust_dual(covariance[np.ix_(train, train)], y, hyper["noise"])
    effects: dict[str, dict[str, list[float]]] = {}
    weighted = alpha[:, None] * table.load[train]
    for level, level_name in enumerate(LEVELS):
        s2, f2 = hyper[f"s_{level_name}"] ** 2, hyper[f"f_{level_name}"] ** 2
        index = table.groups[level][train]
        effects[level_name] = {
            table.names[level][g]: [
                s2 * float(alpha[index == g].sum()),
                *(f2 * weighted[index == g].sum(0)).tolist(),
            ]
            for g in np.unique(index)
        }
    engine_level = LEVELS.index("engine")
    engines = table.groups[engine_level][train]
    m2 = hyper["mechanism"] ** 2
    drive = alpha[:, None] * table.mechanism[train]
    mechanism = {"": (0.3 * m2 * drive.sum(0)).tolist()}
    for g in np.unique(engines):
        mechanism[table.names[engine_level][g]] = (m2 * drive[engines == g].sum(0)).tolist()
    spread = alpha[:, None] * local[train]
    locals_: dict[str, dict[str, list[float]]] = {}
    for level_name in LOCAL_LEVELS:
        level = LEVELS.index(level_name)
        index, l2 = table.groups[level][train], hyper[f"local_{level_name}"] ** 2
        locals_[level_name] = {
            table.names[level][g]: (l2 * spread[index == g].sum(0)).tolist()
            for g in np.unique(index)
        }
    flat = {domain: [math.log(0.2)] + [0.0] * 8 for domain in DOMAINS}
    return {
        "theta": theta.tolist(),
        "effects": effects,
        "mechanism": mechanism,
        "local": locals_,
        "sigma": flat,
        "quantiles": {domain: [-1.6, 1.6] for domain in DOMAINS},
        "shift": dict.fromkeys(DOMAINS, 0.0),
    }


def domain_data(table: Table, train: NDArray[np.int64]) -> dict[str, Any]:
    """Measured range, token counts and number of points of every cell."""
    level = LEVELS.index("cell")
    index = table.groups[level][train]
    boxes, counts, lengths = {}, {}, {}
    for g in np.unique(index):
        rows = (table.rows[i] for i in train[index == g])
        lengths[table.names[level][g]] = sorted({row.features.lengths for row in rows})
        inside = table.position[train][index == g]
        boxes[table.names[level][g]] = [inside.min(0).tolist(), inside.max(0).tolist()]
        counts[table.names[level][g]] = len(inside)
    return {"boxes": boxes, "counts": counts, "lengths": lengths}


class Fitter:
    """Fits on any subset of one table; the covariances are computed once."""

    def __init__(self, table: Table, hypers: dict[str, dict[str, float]]) -> None:
        self.table, self.hypers = table, hypers
        self.basis = {
            name: basis_of(table.position, hyper["length"]) for name, hyper in hypers.items()
        }
        self.local = {name: basis(table.position) for name, basis in self.basis.items()}
        self.covariance = {
            name: kernel(table, hyper, self.local[name]) for name, hyper in hypers.items()
        }

    def fit(self, train: NDArray[np.int64]) -> dict[str, Any]:
        data: dict[str, Any] = {
            name: fit_target(
                self.table, train, name, hyper, self.covariance[name], self.local[name]
            )
            for name, hyper in self.hypers.items()
        }
        for name, basis in self.basis.items():
            data[name]["basis"] = {
                "landmarks": basis.landmarks.tolist(),
                "whitener": basis.whitener.tolist(),
                "length": basis.length,
            }
        data |= domain_data(self.table, train)
        data["provenance"] = {}
        return data


# --- splits ---


def splits(
    table: Table, kind: str, seed: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """(train, test) index pairs: random fifths, or a model, GPU or set of length pairs left out."""
    rng = np.random.default_rng(seed)
    n = len(table.rows)
    if kind == "random":
        part = rng.permutation(n) % 5
    elif kind == "shape":
        pairs = np.array([f"{r.point.load.isl}/{r.point.load.osl}" for r in table.rows])
        unique, inverse = np.unique(pairs, return_inverse=True)
        part = (rng.permutation(len(unique)) % 6)[inverse]
    else:
        part = table.groups[LEVELS.index(kind)]
    for value in np.unique(part):
        yield np.flatnonzero(part != value), np.flatnonzero(part == value)


@dataclass(slots=True)
class HeldOut:
    """Held-out log errors (measured over fitted) of one split kind."""

    kind: str
    rows: list[int]
    domains: list[str]
    sigma_features: Array
    error: dict[str, Array]


def held_out(fitter: Fitter, kind: str, seed: int) -> HeldOut:
    table = fitter.table
    rows: list[int] = []
    domains: list[str] = []
    sigma: list[Array] = []
    error: dict[str, list[float]] = {"ttft": [], "tpot": []}
    cell = LEVELS.index("cell")
    for train, test in splits(table, kind, seed):
        model = model_from_json(fitter.fit(train))
        for i in test:
            features = table.rows[i].features
            rows.append(int(i))
            domains.append(model.domain_of(features))
            sigma.append(sigma_features(features, model.counts.get(features.groups[cell], 0)))
            for name, target in (("ttft", model.ttft), ("tpot", model.tpot)):
                mean = model.log_mean(target, features, table.terms[name][i])
                error[name].append(math.log(table.seconds[name][i]) - mean)
    return HeldOut(kind, rows, domains, np.stack(sigma), {k: np.array(v) for k, v in error.items()})


# --- prior scales ---

# What a split counts for in the search: points like the measured ones come first.
SPLIT_WEIGHT = {"random": 2.0, "model": 0.5, "gpu": 0.25, "shape": 0.4}


def robust_weights(covariance: Array, y: Array, noise: float) -> Array:
    """Weights of the points under Student-t errors at these scales."""
    weight = np.ones(len(y))
    for _ in range(3):
        matrix = covariance.copy()
        matrix[np.diag_indices(len(y))] += noise**2 / weight
        residual = noise / weight * np.linalg.solve(matrix, y)
        weight = 4 / (3 + residual**2)
    return weight


def search_loss(
    covariance: Array,
    y: Array,
    noise: float,
    weight: Array,
    folds: dict[str, list[NDArray[np.int64]]],
) -> float:
    """Weighted held-out relative error over all splits, from one inverse.

    Leaving a set out of a Gaussian model is closed form: its residuals are the solution of the
    inverse's own block with the dual weights of the whole.
    """
    matrix = covariance.copy()
    matrix[np.diag_indices(len(y))] += noise**2 / weight + 1e-6
    inverse = np.linalg.inv(matrix)
    dual = inverse @ y
    loss = 0.0
    for kind, parts in folds.items():
        error = np.zeros(len(y))
        for part in parts:
            error[part] = np.linalg.solve(inverse[np.ix_(part, part)], dual[part])
        # The shift of the point estimate is fitted later; its best constant stands in for it.
        best = min(
            float(np.mean(np.minimum(np.abs(np.exp(-error - shift) - 1), 1.5)))
            for shift in np.linspace(0.0, 0.6, 13)
        )
        loss += SPLIT_WEIGHT[kind] * best
    return loss


def search_scales(
    table: Table, name: str, hyper: dict[str, float], seconds: float, seed: int = 1
) -> dict[str, float]:
    """Random search over the prior scales of one target, from `hyper`, for `seconds`."""
    everything = np.arange(len(table.rows))
    theta = fit_floors(table.terms[name], table.seconds[name])
    y = np.log(table.seconds[name] / np.maximum(table.terms[name] @ theta, 1e-4))
    folds = {kind: [test for _, test in splits(table, kind, seed)] for kind in SPLIT_WEIGHT}
    rng = np.random.default_rng(seed)

    def build(scales: dict[str, float]) -> Array:
        return kernel(table, scales, basis_of(table.position, scales["length"])(table.position))

    def score(scales: dict[str, float], weight: Array) -> float:
        return search_loss(build(scales), y, scales["noise"], weight, folds)

    weight = robust_weights(build(hyper), y, hyper["noise"])
    best, loss = dict(hyper), score(hyper, weight)
    print(f"{name}: loss {loss:.4f} on {len(everything)} points", flush=True)
    step = dict.fromkeys(hyper, 0.5)
    ends, tries = time.monotonic() + seconds, 0
    while time.monotonic() < ends:
        keys = rng.choice(list(best), size=rng.integers(1, 4), replace=False)
        trial = dict(best)
        for key in keys:
            trial[key] = float(np.clip(trial[key] * math.exp(rng.normal() * step[key]), 1e-3, 3.0))
        found = score(trial, weight)
        tries += 1
        for key in keys:
            step[key] = min(step[key] * 1.3, 1.0) if found < loss else max(step[key] * 0.9, 0.15)
        if found < loss - 1e-5:
            best, loss = trial, found
        if tries % 30 == 0:
            weight = robust_weights(build(best), y, best["noise"])
            loss = score(best, weight)
    print(f"{name}: loss {loss:.4f} after {tries} tries", flush=True)
    return {key: round(value, 4) for key, value in best.items()}


# --- intervals ---


def fit_sigma(features: Array, error: Array, ridge: float = 3.0) -> Array:
    """Coefficients of log |error| on the sigma features, ridge on all but the constant."""
    y = np.log(np.abs(error) + 0.01)
    penalty = ridge * np.eye(features.shape[1])
    penalty[0, 0] = 1e-6
    # E log|N(0,1)| is about -0.635: brings the scale back to a standard deviation.
    weights: Array = np.asarray(np.linalg.solve(features.T @ features + penalty, features.T @ y))
    weights[0] += 0.635
    return weights


def sigma_values(weights: Array, features: Array) -> Array:
    return np.clip(np.exp(features @ weights), 0.01, 1.5)


def conformal(error: Array, sigma: Array, coverage: float) -> tuple[float, float]:
    """Low and high multiple of sigma that hold `coverage` of the held-out errors, tails alike."""
    score = np.sort(error / sigma)
    n = len(score)
    tail = (1 - coverage) / 2
    low = score[max(0, math.floor(tail * (n + 1)) - 1)]
    high = score[min(n - 1, math.ceil((1 - tail) * (n + 1)) - 1)]
    return float(low), float(high)


def best_shift(error: Array, sigma: Array) -> float:
    """Share of sigma squared off the log mean: least mean relative error plus half the bias.

    Relative error alone forgives low guesses and would pull every wide prediction down.
    """
    options = np.linspace(0.0, 1.5, 31)
    relative = [np.exp(-s * sigma**2 - error) - 1 for s in options]
    loss = [np.mean(np.abs(r)) + 0.5 * abs(np.mean(r)) for r in relative]
    return float(options[int(np.argmin(loss))])


def calibrate(
    data: dict[str, Any], held: dict[str, HeldOut], use: Callable[[int], bool] = lambda _row: True
) -> None:
    """Fill sigma, quantiles and shift of every domain from held-out errors of that kind.

    `use` picks the rows whose errors may be looked at.
    """
    sources = {
        INSIDE: ("random",),
        BETWEEN: ("shape",),
        NEAR: ("random", "shape", "gpu"),
        NEW_MODEL: ("model",),
        NEW_HARDWARE: ("gpu",),
        OUTSIDE: ("model", "gpu"),
    }
    for name in ("ttft", "tpot"):
        for domain, kinds in sources.items():
            features, errors = [], []
            for kind in kinds:
                part = held[kind]
                picked = [use(row) for row in part.rows]
                match = [d != INSIDE if domain == OUTSIDE else d == domain for d in part.domains]
                keep = np.array(picked) & np.array(match)
                features.append(part.sigma_features[keep])
                errors.append(part.error[name][keep])
            x, e = np.concatenate(features), np.concatenate(errors)
            weights = fit_sigma(x, e, 3.0 if domain == INSIDE else 30.0)
            sigma = sigma_values(weights, x)
            data[name]["sigma"][domain] = weights.tolist()
            data[name]["quantiles"][domain] = list(conformal(e, sigma, COVERAGE))
            data[name]["shift"][domain] = best_shift(e, sigma)


# --- evaluation ---


@dataclass(slots=True)
class Judged:
    """Held-out points with what the calibrated model said of them."""

    rows: list[Measured]
    relative: Array  # prediction over measurement, minus 1
    covered: NDArray[np.bool_]

    def scores(self, keep: Callable[[Measured], bool] = lambda _row: True) -> dict[str, float]:
        """MAPE, median, bias, share within 20 % and interval coverage, in per cent."""
        index = [i for i, row in enumerate(self.rows) if keep(row)]
        relative, covered = self.relative[index], self.covered[index]
        return {
            "n": len(index),
            "mape": round(float(100 * np.mean(np.abs(relative))), 1),
            "median": round(float(100 * np.median(np.abs(relative))), 1),
            "bias": round(float(100 * np.mean(relative)), 1),
            "within_20": round(float(100 * np.mean(np.abs(relative) <= 0.2)), 1),
            "coverage": round(float(100 * np.mean(covered)), 1),
        }


def judge(
    table: Table, part: HeldOut, name: str, halves: tuple[dict[str, Any], dict[str, Any]]
) -> Judged:
    """Judge each point by the intervals and shifts set on the other half of the points."""
    relative, covered = [], []
    for row, domain, x, error in zip(
        part.rows, part.domains, part.sigma_features, part.error[name], strict=True
    ):
        target = halves[1 - row % 2][name]
        sigma = sigma_of(np.array(target["sigma"][domain]), x)
        low, high = target["quantiles"][domain]
        relative.append(math.exp(-target["shift"][domain] * sigma**2 - error) - 1)
        covered.append(low * sigma <= error <= high * sigma)
    rows = [table.rows[i] for i in part.rows]
    return Judged(rows, np.array(relative), np.array(covered))


def evaluate(table: Table, data: dict[str, Any], held: dict[str, HeldOut]) -> dict[str, Any]:
    """Scores per split: overall, per engine, dense and experts, and per left-out model or GPU."""
    halves = (copy.deepcopy(data), copy.deepcopy(data))
    for half in (0, 1):
        calibrate(halves[half], held, lambda row, half=half: row % 2 == half)  # type: ignore[misc]
    report: dict[str, Any] = {}
    for kind, part in held.items():
        report[kind] = {}
        for name in ("tpot", "ttft"):
            judged = judge(table, part, name, halves)
            block: dict[str, Any] = {"all": judged.scores()}
            for engine in ("vllm", "sglang", "trtllm"):
                block[engine] = judged.scores(partial(_has_engine, engine=engine))
            block["dense"] = judged.scores(lambda row: not row.point.roofline.shape.is_moe)
            block["moe"] = judged.scores(lambda row: row.point.roofline.shape.is_moe)
            if kind == "model":
                for value in sorted({row.name for row in judged.rows}):
                    block[value] = judged.scores(partial(_has_name, name=value))
            if kind == "gpu":
                for value in sorted({_gpu(row) for row in judged.rows}):
                    block[value] = judged.scores(partial(_has_gpu, gpu=value))
            report[kind][name] = block
    return report


def _has_engine(row: Measured, engine: str) -> bool:
    return row.point.engine == engine


def _has_name(row: Measured, name: str) -> bool:
    return row.name == name


def _gpu(row: Measured) -> str:
    return row.point.roofline.place.gpu.name


def _has_gpu(row: Measured, gpu: str) -> bool:
    return _gpu(row) == gpu


def rounded(value: Any, digits: int = 5) -> Any:
    """Numbers cut to `digits` significant digits, to keep the file small."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, list):
        return [rounded(item, digits) for item in value]
    if isinstance(value, dict):
        return {key: rounded(item, digits) for key, item in value.items()}
    return value


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measured", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--report", type=Path)
    parser.add_argument(
        "--tune", type=float, metavar="SECONDS", help="search the prior scales first"
    )
    args = parser.parse_args()
    started = time.monotonic()
    hypers = json.loads(HYPER_FILE.read_text())
    table = as_table(load_measured(args.measured))
    if args.tune:
        hypers = {
            name: search_scales(table, name, hyper, args.tune) for name, hyper in hypers.items()
        }
        HYPER_FILE.write_text(json.dumps(hypers, indent=1) + "\n")
    fitter = Fitter(table, hypers)
    everything = np.arange(len(table.rows))
    held = {kind: held_out(fitter, kind, seed=3) for kind in ("random", "model", "gpu", "shape")}
    data = fitter.fit(everything)
    calibrate(data, held)
    report = evaluate(table, data, held)
    data["provenance"] = {
        "fitted_by": "scripts/fit_predictor.py",
        "table": "serving-measured.csv: end-to-end points shipped with aiconfigurator 0.12.0 "
        "(silicon_sample.csv, Apache-2.0), mostly InferenceMAX runs",
        "sha256": hashlib.sha256(args.measured.read_bytes()).hexdigest(),
        "unique_points": len(table.rows),
        "engines": sorted({row.point.engine for row in table.rows}),
        "evaluation": {
            kind: {name: block["all"] for name, block in targets.items()}
            for kind, targets in report.items()
        },
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(rounded(data), separators=(",", ":")) + "\n")
    if args.report:
        args.report.write_text(json.dumps(report, indent=1) + "\n")
    for kind, targets in report.items():
        for name, block in targets.items():
            print(f"{kind:7s} {name} {block['all']}")
    print(f"{len(table.rows)} unique points, {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
