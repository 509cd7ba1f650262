"""GPUs (and CPU hosts) with memory, bandwidth, dense rates, links and power; a source per row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from advisor.catalog.data_files import load
from advisor.catalog.names import UnknownNameError, close_names, normalise

GIB = 1024**3
MIB = 1024**2
# Driver-visible share of the nominal memory where no driver figure is known: ECC and firmware take
# 0 to 6 % on the cards whose figure is known (median 1.5 %).
USABLE_SHARE = 0.97
# A data type without a rate of its own runs in the next wider type it is converted to.
_FALLBACK = {
    "fp4": "fp8",
    "fp8": "bf16",
    "int8": "bf16",
    "bf16": "fp16",
    "fp16": "fp32",
    "tf32": "fp32",
}


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """One device. Rates are dense (no sparsity), in FLOP/s; links count both directions."""

    name: str
    vendor: str
    architecture: str
    memory_bytes: int
    usable_bytes: int  # what the driver shows, or an estimate
    usable_is_measured: bool
    bandwidth_bytes_s: float
    flops: tuple[tuple[str, float], ...]
    tdp_w: float | None
    link_bytes_s: float | None  # None: PCIe only
    gpus_per_node: int
    compute_capability: str | None
    l2_bytes: int | None
    source: str
    confidence: str
    notes: str = ""
    aliases: tuple[str, ...] = ()

    def dense_flops(self, dtype: str) -> float:
        """FLOP/s of dense matmuls in `dtype`; a type the chip lacks runs at the next wider one."""
        rates = dict(self.flops)
        name: str | None = {"fp32": "tf32" if "tf32" in rates else "fp32"}.get(dtype, dtype)
        while name is not None:
            if name in rates:
                return rates[name]
            name = _FALLBACK.get(name)
        # A chip without float32 builds it from narrower products: their rate is a bound above.
        return rates.get("fp32", rates.get("bf16", 0.0))

    def supports(self, dtype: str) -> bool:
        """Whether the chip has a tensor rate for `dtype` of its own."""
        return dtype in dict(self.flops)


def list_gpus() -> tuple[GpuSpec, ...]:
    """Every device of the catalogue, in the order of the data file."""
    return _by_row()


def find_gpu(name: str) -> GpuSpec:
    """The device of that name or alias ("h100_sxm", "NVIDIA H100 80GB HBM3").

    Raises `UnknownNameError` with close names.
    """
    spec = _index().get(normalise(name))
    if spec is None:
        known = [alias for gpu in _by_row() for alias in (gpu.name, *gpu.aliases)]
        # Suggest catalogue names, not the alias that happened to match.
        by_alias = {alias: gpu.name for gpu in _by_row() for alias in (gpu.name, *gpu.aliases)}
        close = tuple(dict.fromkeys(by_alias[hit] for hit in close_names(name, known, 8)))[:5]
        raise UnknownNameError("GPU", name, close)
    return spec


def cpu_host(*, memory_bytes: int, cores: int, bandwidth_bytes_s: float | None = None) -> GpuSpec:
    """A CPU host as a device: its own memory and cores on the catalogue's per-core rates."""
    base = find_gpu("cpu")
    rate = 5e12 / 32 * cores  # the catalogue row is a 32-core socket
    return replace(
        base,
        name=f"CPU host, {cores} cores",
        memory_bytes=memory_bytes,
        usable_bytes=memory_bytes,
        usable_is_measured=True,
        bandwidth_bytes_s=bandwidth_bytes_s or base.bandwidth_bytes_s * min(1.0, cores / 16),
        flops=(("fp32", rate), ("bf16", rate)),
        gpus_per_node=1,
        aliases=(),
    )


@cache
def _by_row() -> tuple[GpuSpec, ...]:
    return tuple(_spec(row) for row in load("gpus.json")["gpus"])


@cache
def _index() -> dict[str, GpuSpec]:
    index: dict[str, GpuSpec] = {}
    for gpu in _by_row():
        for alias in (gpu.name, *gpu.aliases):
            index.setdefault(normalise(alias), gpu)
    return index


def _spec(row: dict[str, Any]) -> GpuSpec:
    memory = round(row["memory_gib"] * GIB)
    usable = row["usable_mib"]
    return GpuSpec(
        name=row["name"],
        vendor=row["vendor"],
        architecture=row["architecture"],
        memory_bytes=memory,
        usable_bytes=usable * MIB if usable else round(memory * USABLE_SHARE),
        usable_is_measured=usable is not None,
        bandwidth_bytes_s=row["bandwidth_gb_s"] * 1e9,
        flops=tuple((name, value * 1e12) for name, value in row["tflops"].items()),
        tdp_w=row["tdp_w"],
        link_bytes_s=None if row["interconnect_gb_s"] is None else row["interconnect_gb_s"] * 1e9,
        gpus_per_node=row["gpus_per_node"],
        compute_capability=row["compute_capability"],
        l2_bytes=None if row["l2_mb"] is None else round(row["l2_mb"] * 1e6),
        source=row["source"],
        confidence=row["confidence"],
        notes=row["notes"],
        aliases=tuple(row["aliases"]),
    )
