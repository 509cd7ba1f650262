"""One row of a batch file or of a measurement table to a serving point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from advisor.catalog import GpuSpec
from advisor.estimates.memory import tp_problem
from advisor.estimates.roofline import Placement
from advisor.shapes import ModelShape

MAX_TOKENS = 1 << 24
MAX_CONCURRENCY = 1 << 20
MAX_GPUS = 1 << 12


class RowError(ValueError):
    """A value that cannot be used: `field` names it, `message` says what to do."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


# What published tables call a precision -> the dtype of `ModelShape.weight_bytes`.
PRECISIONS: dict[str, str] = {"": "auto", "auto": "auto", "fp4": "nvfp4", "w4a16_awq": "awq"}


@dataclass(frozen=True, slots=True)
class Parallelism:
    """GPUs of one model copy, and the concurrency over all of them."""

    gpus: int
    tp: int
    pp: int
    expert_parallel: bool
    attention_dp: bool
    concurrency: int
    note: str = ""


def row_int(
    row: Mapping[str, str],
    name: str,
    default: int | None,
    maximum: int,
    *,
    zero_is_unset: bool = False,
) -> int:
    """The whole number in column `name`; `default` when it is empty or missing."""
    text = (row.get(name) or "").strip()
    if not text:
        if default is None:
            raise RowError(name, "is missing; give a whole number of 1 or more")
        return default
    try:
        value = float(text)
    except ValueError:
        raise RowError(name, f"{text[:40]!r} is not a number") from None
    if value == 0 and zero_is_unset and default is not None:
        return default
    if not value.is_integer() or not 1 <= value <= maximum:
        raise RowError(name, f"must be a whole number between 1 and {maximum:,}, not {text[:40]}")
    return int(value)


def read_parallelism(row: Mapping[str, str], *, gpus_per_node: int) -> Parallelism:
    """GPUs and total concurrency from tp_size, pp_size and the expert and attention columns.

    Published tables hold two readings of the same machine: tensor × expert parallel sizes that
    multiply to the square of the GPU count (tp 64 = 8 × 8 on an 8-GPU node), and a batch per
    attention rank. Both are undone here, checked against the identifiers of those tables.
    """
    tp = row_int(row, "tp_size", 1, MAX_GPUS)
    pp = row_int(row, "pp_size", 1, MAX_GPUS)
    ranks = row_int(row, "attention_dp_size", 1, MAX_GPUS, zero_is_unset=True)
    moe_tp = row_int(row, "moe_tp_size", 1, MAX_GPUS, zero_is_unset=True)
    moe_ep = row_int(row, "moe_ep_size", 1, MAX_GPUS, zero_is_unset=True)
    batch = row_int(row, "batch_size", 1, MAX_CONCURRENCY)
    stated = "moe_ep_size" in row
    gpus, note, ep = tp, "", moe_ep > 1
    root = round(tp**0.5)
    if ranks > 1:
        gpus = tp if tp > 1 else max(moe_tp, moe_ep)
    elif stated and moe_tp == moe_ep > 1 and tp == moe_tp * moe_ep:
        gpus = moe_tp
        note = f"tp_size {tp} read as {gpus} GPUs with tensor and expert parallelism"
    elif not stated and tp > gpus_per_node and root * root == tp and root in (2, 4, 8):
        gpus, ep = root, True
        note = f"tp_size {tp} is more than a node holds: read as {root} GPUs, TP {root} × EP {root}"
    return Parallelism(
        gpus=gpus * pp,
        tp=gpus,
        pp=pp,
        expert_parallel=ep,
        attention_dp=ranks > 1,
        concurrency=min(batch * ranks, MAX_CONCURRENCY),
        note=note,
    )


def placement_of(shape: ModelShape, gpu: GpuSpec, plan: Parallelism, dtype: str) -> Placement:
    """The placement of a row. More GPUs than the heads allow is wide expert parallelism."""
    wide = shape.is_moe and plan.tp > 8 and tp_problem(shape, plan.tp) is not None
    return Placement(
        gpu,
        gpus=plan.gpus,
        tp=1 if wide else plan.tp,
        pp=plan.pp,
        expert_parallel=plan.expert_parallel or wide,
        attention_dp=plan.attention_dp or wide,
        dtype=dtype,
    )


def row_dtype(row: Mapping[str, str]) -> str:
    """The weight dtype of column `precision`, in our names."""
    text = (row.get("precision") or "").strip().lower()
    return PRECISIONS.get(text, text)
