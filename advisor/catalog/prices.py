"""Prices per GPU and hour as seen on a date, with provider, market and source; never a quote."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from advisor.catalog.data_files import load
from advisor.catalog.gpus import GpuSpec, find_gpu

MARKETS = ("on-demand", "reserved", "spot", "marketplace", "community")


@dataclass(frozen=True, slots=True)
class Price:
    """One price seen: USD per GPU and hour, low and high over shapes or zones."""

    gpu: str
    provider: str
    market: str
    low_usd_per_hour: float
    high_usd_per_hour: float
    date: str
    source: str
    shape: str = ""
    notes: str = ""

    @property
    def mid_usd_per_hour(self) -> float:
        return (self.low_usd_per_hour + self.high_usd_per_hour) / 2


@dataclass(frozen=True, slots=True)
class PriceBasis:
    """The price a cost figure rests on, its spread, and a sentence saying where it comes from."""

    usd_per_gpu_hour: float
    low_usd: float
    high_usd: float
    market: str
    date: str
    basis: str
    n: int


def list_prices(gpu: str | None = None, market: str | None = None) -> tuple[Price, ...]:
    """Prices of the catalogue, of one GPU and market where given; an unknown GPU raises."""
    wanted = find_gpu(gpu).name if gpu is not None else None
    return tuple(
        price
        for price in _all()
        if (wanted is None or price.gpu == wanted) and (market is None or price.market == market)
    )


def price_basis(
    gpu: str | GpuSpec,
    *,
    market: str = "on-demand",
    overrides: Mapping[str, float] | None = None,
) -> PriceBasis | None:
    """The price to compute cost with, or None when the catalogue holds none for that market.

    `overrides` maps GPU names to the organisation's own USD per GPU and hour and wins over the
    catalogue. Otherwise the median over providers; low and high are the extremes seen.
    """
    spec = gpu if isinstance(gpu, GpuSpec) else find_gpu(gpu)
    own = _override(spec, overrides or {})
    if own is not None:
        return PriceBasis(own, own, own, market, "", "the organisation's own price", 1)
    rows = [price for price in _all() if price.gpu == spec.name and price.market == market]
    if not rows:
        return None
    middle = statistics.median(row.mid_usd_per_hour for row in rows)
    dates = sorted(row.date for row in rows if row.date[:2] == "20")
    span = f"{dates[0]} to {dates[-1]}" if dates and dates[0] != dates[-1] else (dates or [""])[0]
    providers = sorted({row.provider for row in rows})
    names = ", ".join(providers[:4]) + (f" and {len(providers) - 4} more" if providers[4:] else "")
    return PriceBasis(
        middle,
        min(row.low_usd_per_hour for row in rows),
        max(row.high_usd_per_hour for row in rows),
        market,
        span,
        f"median of {len(rows)} {market} price{'s' if len(rows) > 1 else ''} ({names}), {span}",
        len(rows),
    )


def _override(spec: GpuSpec, overrides: Mapping[str, float]) -> float | None:
    for name, value in overrides.items():
        if name == spec.name or name in spec.aliases:
            return value
    return None


@cache
def _all() -> tuple[Price, ...]:
    return tuple(
        Price(
            row["gpu"],
            row["provider"],
            row["market"],
            row["usd_per_gpu_hour"][0],
            row["usd_per_gpu_hour"][1],
            row["date"],
            row["source"],
            row["shape"],
            row["notes"],
        )
        for row in load("prices.json")["prices"]
    )
