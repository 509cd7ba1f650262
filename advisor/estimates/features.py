"""What the serving predictor sees of a point: floors, load, and the groups it may learn from.

One place for training and prediction. Floors come from `roofline`; the coefficients that turn them
into seconds, and the group effects on top, are in `data/serving_model.json`, written by
`scripts/fit_predictor.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.estimates.roofline import Roofline, StepFloor

Vector = NDArray[np.float64]

# Planning constants of the features (not of the memory plan that users see): a share and a rest
# that leave every measured configuration room for at least one sequence.
_FEATURE_SHARE = 0.90
_FEATURE_REST = 2e9
_FEATURE_FLOOR = 0.02


@dataclass(frozen=True, slots=True)
class Load:
    """Closed-loop load: `concurrency` requests of `isl` input and `osl` output tokens in flight."""

    isl: int
    osl: int
    concurrency: int


@dataclass(frozen=True, slots=True)
class ServingPoint:
    """One operating point: model and hardware (in the roofline), engine, load."""

    roofline: Roofline
    engine: str
    engine_version: str
    load: Load
    model: str  # name under which measurements of this model are grouped

    @property
    def precision(self) -> str:
        """bf16, fp8, int8, fp4 or int4: the class of the weights in memory."""
        scheme = self.roofline.scheme
        if scheme is None:
            return "bf16"
        if scheme.bits >= 6:
            return "int8" if scheme.compute == "int8" else "fp8"
        return "fp4" if scheme.compute == "fp4" else "int4"


@dataclass(frozen=True, slots=True)
class PointFeatures:
    """Everything the fitted model needs of one point."""

    tpot_terms: Vector  # seconds; weighted by non-negative coefficients
    ttft_terms: Vector
    load: Vector  # standardised load features, see LOAD_FEATURES
    mechanism: Vector  # standardised model features
    position: Vector  # where the point lies in (batch, lengths, GPUs), for smooth local effects
    groups: tuple[str, ...]  # one key per level of LEVELS
    floor: StepFloor
    prefill: StepFloor
    running: float  # sequences that fit in memory at once
    queue: float  # asked concurrency over what fits
    lengths: str  # "isl/osl"


LEVELS: tuple[str, ...] = (
    "all",
    "engine",
    "gpu",
    "gpu_precision",
    "engine_gpu_precision",
    "model",
    "engine_model",
    "cell",  # engine, GPU, precision and model
    "engine_version",
    "cell_version",
    "engine_lengths",
    "cell_placement",
)
TPOT_TERMS = 14
TTFT_TERMS = 12
LOAD_FEATURES = 17
MECHANISM_FEATURES = 6


def point_features(point: ServingPoint) -> PointFeatures:
    """Features of one operating point; closed form, about 0.1 ms."""
    roofline, load = point.roofline, point.load
    shape, place = roofline.shape, roofline.place
    isl, osl, asked = load.isl, load.osl, float(load.concurrency)
    gpus = place.gpus
    weights = roofline.weight_bytes / gpus
    usable = place.gpu.usable_bytes
    free = max(usable * _FEATURE_SHARE - weights - _FEATURE_REST, _FEATURE_FLOOR * usable)
    per_seq = shape.kv_bytes_for(isl + osl // 2, place.kv_itemsize) * roofline.kv_shard()
    per_seq += shape.state_bytes_per_seq(4) / gpus
    room = max(free / max(per_seq, 1.0), 1.0)
    running = min(asked, room)

    step = roofline.decode(running, isl + osl / 2)
    prefill = roofline.prefill(isl)
    layers = float(shape.layers)
    hops = math.log2(gpus)
    share = running / osl  # prompts that enter per decode step
    work = step.compute_s + step.attention_s
    tpot = (
        step.weights_s,
        step.experts_s,
        step.kv_s,
        work,
        step.comm_s,
        layers * 1e-6,
        layers * hops * 1e-6,
        1e-3,
        running * 1e-6,
        prefill.compute_s * share,
        prefill.attention_s * share,
        prefill.comm_s * share,
        layers * 1e-6 * share,
        (prefill.weights_s + prefill.experts_s) * share,
    )
    waiting = max(asked / room - 1.0, 0.0)
    ttft = (
        prefill.compute_s,
        prefill.attention_s,
        prefill.comm_s,
        prefill.weights_s + prefill.experts_s,
        layers * 1e-4,
        1e-2,
        asked * prefill.compute_s,
        asked * prefill.attention_s,
        asked * prefill.comm_s,
        step.bound_s,
        asked * 1e-4,
        waiting * osl * step.bound_s * 2,
    )
    z_batch = (math.log(asked) - 3.0) / 1.5
    z_in = math.log(isl) - 7.5
    z_out = math.log(osl) - 6.9
    z_gpus = hops - 2.0
    full = math.log(max(asked / room, 1e-9))
    mixing = math.log(prefill.bound_s * share / step.bound_s)
    load_features = (
        z_batch,
        max(z_batch + 0.6, 0.0),
        max(z_batch - 0.2, 0.0),
        max(z_batch - 0.9, 0.0),
        z_in,
        z_out,
        z_gpus,
        max(z_gpus, 0.0),
        z_batch * z_gpus * 0.5,
        z_batch * z_in * 0.5,
        z_batch * z_out * 0.5,
        min(max(full + 0.7, 0.0), 2.5),
        min(max(full, 0.0), 3.0),
        float(place.expert_parallel),
        float(place.attention_dp),
        mixing / 2,
        max(mixing / 2 + 1.0, 0.0),
    )
    mechanism = (
        float(shape.is_moe),
        float(shape.is_mla),
        math.log(layers) - 4.0,
        (math.log(shape.params_active) - 24.0) / 1.5,
        float(shape.state_bytes_per_seq() > 0),
        float(shape.sparse_topk is not None),
    )
    position = (
        z_batch,
        z_in,
        z_out,
        z_gpus,
        2.0 * place.attention_dp,
        2.0 * place.expert_parallel,
    )
    return PointFeatures(
        tpot_terms=np.array(tpot),
        ttft_terms=np.array(ttft),
        load=np.array(load_features),
        mechanism=np.array(mechanism),
        position=np.array(position),
        groups=_groups(point),
        floor=step,
        prefill=prefill,
        running=running,
        queue=asked / room,
        lengths=f"{isl}/{osl}",
    )


def _groups(point: ServingPoint) -> tuple[str, ...]:
    place = point.roofline.place
    engine, gpu, precision, model = point.engine, place.gpu.name, point.precision, point.model
    cell = f"{engine}|{gpu}|{precision}|{model}"
    version = point.engine_version
    placement = f"{place.gpus}{'e' if place.expert_parallel else ''}"
    placement += "d" if place.attention_dp else ""
    return (
        "",
        engine,
        gpu,
        f"{gpu}|{precision}",
        f"{engine}|{gpu}|{precision}",
        model,
        f"{engine}|{model}",
        cell,
        f"{engine}|{version}",
        f"{cell}|{version}",
        f"{engine}|{point.load.isl}|{point.load.osl}",
        f"{cell}|{placement}",
    )
