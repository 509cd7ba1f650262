"""Money and energy: USD per million tokens at a load, replicas for a rate, a day's curve, joules.

All prices are per GPU and hour with their basis; a figure without a price or a power is None.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.catalog import PriceBasis

HOURS_PER_MONTH = 730.0
# Share of the day's peak rate in each hour from midnight. An assumption for people who know their
# peak alone: a service of one time zone with a quiet night.
TYPICAL_DAY = (
    *(0.35, 0.25, 0.20, 0.18, 0.18, 0.22, 0.32, 0.50, 0.72, 0.88, 0.96, 1.00),
    *(0.98, 0.97, 0.98, 0.96, 0.92, 0.88, 0.84, 0.80, 0.74, 0.66, 0.56, 0.44),
)


@dataclass(frozen=True, slots=True)
class TokenCost:
    """USD per million tokens of one replica at a load, by what the tokens are."""

    usd_per_hour: float
    per_million_output: float | None
    per_million_input: float | None
    per_million_total: float | None
    price: PriceBasis

    @property
    def basis(self) -> str:
        return f"{self.price.usd_per_gpu_hour:.2f} USD per GPU and hour: {self.price.basis}"


def token_cost(
    *,
    output_tok_s: float,
    isl: float,
    osl: float,
    gpus: int,
    price: PriceBasis,
    real_output_share: float = 1.0,
) -> TokenCost:
    """What tokens cost when `gpus` GPUs give `output_tok_s` output tokens per second.

    Input tokens arrive at isl / osl per output token. Each figure charges the whole machine to that
    kind of token, so they do not add up. `real_output_share` scales outputs that stop before `osl`
    (public benchmarks average 0.90 of the nominal length).
    """
    per_hour = gpus * price.usd_per_gpu_hour
    out = output_tok_s * real_output_share
    into = output_tok_s * isl / osl if osl > 0 else 0.0

    def per_million(rate: float) -> float | None:
        return per_hour / (rate * 3600.0) * 1e6 if rate > 0 else None

    return TokenCost(per_hour, per_million(out), per_million(into), per_million(out + into), price)


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    """Replicas that hold a request rate with headroom."""

    replicas: int
    load_per_replica: float  # share of each replica's capacity that is used, 0 to 1
    capacity_req_s: float
    headroom: float
    usd_per_hour: float | None


def replicas_for_rate(
    *,
    rate_req_s: float,
    capacity_req_s: float,
    gpus_per_replica: int = 1,
    headroom: float = 0.2,
    price: PriceBasis | None = None,
) -> ReplicaPlan:
    """The fewest replicas that serve `rate_req_s` using at most 1 - headroom of their capacity.

    `capacity_req_s` is one replica's rate within the SLA. Raises ValueError for a rate below 0 or a
    capacity of 0.
    """
    if rate_req_s < 0 or not math.isfinite(rate_req_s):
        raise ValueError("rate_req_s must be 0 or more")
    if capacity_req_s <= 0:
        raise ValueError("capacity_req_s must be above 0: this replica serves no request in time")
    if not 0 <= headroom < 1:
        raise ValueError("headroom must lie between 0 and 1")
    usable = capacity_req_s * (1.0 - headroom)
    replicas = max(1, math.ceil(rate_req_s / usable - 1e-9))
    cost = replicas * gpus_per_replica * price.usd_per_gpu_hour if price is not None else None
    return ReplicaPlan(
        replicas, rate_req_s / (replicas * capacity_req_s), capacity_req_s, headroom, cost
    )


@dataclass(frozen=True, slots=True)
class DayPlan:
    """Replicas through a day. counts: one per slice. starts: replicas that are started in it.

    ahead: replicas that a rise calls for before a start ends, so that they must be there already.
    """

    counts: tuple[int, ...]
    slice_s: float
    starts: int
    start_s: float
    ahead: int

    @property
    def peak(self) -> int:
        return max(self.counts)

    @property
    def fixed_hours(self) -> float:
        """Replica hours of the peak's replicas all day."""
        return self.peak * 24.0

    def followed_hours(self, *, ahead: int = 0) -> float:
        """Replica hours of replicas that follow the day, `ahead` of them more than it needs."""
        kept = sum(min(self.peak, count + ahead) for count in self.counts)
        return kept * self.slice_s / 3600.0 + self.starts * self.start_s / 3600.0


def day_plan(
    curve_req_s: Sequence[float], *, capacity_req_s: float, headroom: float, start_s: float
) -> DayPlan:
    """Replicas for one rate per equal slice of 24 hours; the day repeats.

    Within a slice the load is taken to rise evenly to that of the next. Raises ValueError for an
    empty day and as `replicas_for_rate` does.
    """
    if not curve_req_s:
        raise ValueError("curve_req_s must hold at least one rate")

    def needed(rate: float) -> int:
        plan = replicas_for_rate(rate_req_s=rate, capacity_req_s=capacity_req_s, headroom=headroom)
        return plan.replicas

    counts = tuple(needed(rate) for rate in curve_req_s)
    slice_s = 86_400.0 / len(counts)
    share = min(1.0, start_s / slice_s)
    following = (*curve_req_s[1:], curve_req_s[0])
    ahead = max(
        needed(rate + max(0.0, then - rate) * share) - count
        for rate, then, count in zip(curve_req_s, following, counts, strict=True)
    )
    before = (counts[-1], *counts[:-1])
    starts = sum(max(0, new - old) for old, new in zip(before, counts, strict=True))
    return DayPlan(counts, slice_s, starts, start_s, ahead)


@dataclass(frozen=True, slots=True)
class Interruption:
    """What one spot interruption costs: the time to be back and the work thrown away."""

    per_hour: float  # interruptions of one GPU group per hour
    reload_s: float  # start, load of weights, graph capture
    lost_work_s: float  # average age of requests in flight

    @property
    def lost_share(self) -> float:
        """Share of paid time without useful work; at most 1."""
        return min(1.0, self.per_hour * (self.reload_s + self.lost_work_s) / 3600.0)


@dataclass(frozen=True, slots=True)
class DayCost:
    """USD per day of one way to buy capacity for a load curve."""

    kind: str  # fixed, autoscaled or spot
    usd_per_day: float
    replica_hours: float
    peak_replicas: int
    note: str

    @property
    def usd_per_month(self) -> float:
        return self.usd_per_day / 24.0 * HOURS_PER_MONTH


def daily_cost(
    curve_req_s: Sequence[float],
    *,
    capacity_req_s: float,
    gpus_per_replica: int,
    price: PriceBasis,
    spot: PriceBasis | None = None,
    interruption: Interruption | None = None,
    headroom: float = 0.2,
    scale_up_s: float = 300.0,
) -> tuple[DayCost, ...]:
    """Cost of a day whose request rate is `curve_req_s`, one value per equal slice of 24 hours.

    Fixed keeps the peak's replicas all day. Autoscaled follows the curve and pays `scale_up_s` of
    idle start for every replica added. Spot buys the autoscaled capacity at the spot price, and
    the replicas that interruptions take away on top.
    """
    plan = day_plan(
        curve_req_s, capacity_req_s=capacity_req_s, headroom=headroom, start_s=scale_up_s
    )
    counts, peak, started = plan.counts, plan.peak, plan.starts
    unit = gpus_per_replica * price.usd_per_gpu_hour
    followed = plan.followed_hours()
    result = [
        DayCost("fixed", peak * 24.0 * unit, peak * 24.0, peak, f"{peak} replicas all day"),
        DayCost(
            "autoscaled",
            followed * unit,
            followed,
            peak,
            f"{min(counts)} to {peak} replicas; {started} starts of {scale_up_s:.0f} s are paid",
        ),
    ]
    if spot is not None:
        stop = interruption or Interruption(per_hour=0.05, reload_s=scale_up_s, lost_work_s=10.0)
        share = stop.lost_share
        if share < 1.0:
            needed = followed / (1.0 - share)
            result.append(
                DayCost(
                    "spot",
                    needed * gpus_per_replica * spot.usd_per_gpu_hour,
                    needed,
                    math.ceil(peak / (1.0 - share)),
                    f"{stop.per_hour:g} interruptions per hour, {stop.reload_s:.0f} s reload and "
                    f"{stop.lost_work_s:.0f} s of lost work each: {share:.1%} of the time is lost",
                )
            )
    return tuple(result)


@dataclass(frozen=True, slots=True)
class Energy:
    """Joules per output token: `value` from measured power, `at_most` from the power limit."""

    value: float | None
    at_most: float | None
    reason: str


def energy_per_token(
    *, output_tok_s: float, gpus: int, power_w: float | None = None, tdp_w: float | None = None
) -> Energy:
    """J per output token. `power_w`: measured mean per GPU; `tdp_w`: the GPU's limit, a ceiling."""
    if output_tok_s <= 0:
        return Energy(None, None, "no token rate")
    ceiling = gpus * tdp_w / output_tok_s if tdp_w is not None else None
    if power_w is None:
        return Energy(None, ceiling, "power not measured; the ceiling uses the power limit")
    return Energy(gpus * power_w / output_tok_s, ceiling, "measured power")
