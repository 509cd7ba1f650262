"""Cost and energy against sums done by hand; unknown stays unknown."""

from __future__ import annotations

import pytest

from advisor.catalog import PriceBasis
from advisor.estimates.cost import (
    Interruption,
    daily_cost,
    energy_per_token,
    replicas_for_rate,
    token_cost,
)

PRICE = PriceBasis(3.6, 3.6, 3.6, "on-demand", "2026-11-09", "test", 1)
SPOT = PriceBasis(1.2, 1.2, 1.2, "spot", "2026-11-09", "test", 1)


def test_a_million_output_tokens_cost_their_share_of_the_hour() -> None:
    cost = token_cost(output_tok_s=1000, isl=1000, osl=500, gpus=2, price=PRICE)
    assert cost.usd_per_hour == 7.2
    assert cost.per_million_output == pytest.approx(2.0)
    assert cost.per_million_input == pytest.approx(1.0)
    assert cost.per_million_total == pytest.approx(2 / 3)
    assert "3.60 USD per GPU and hour" in cost.basis


def test_outputs_that_stop_early_make_each_token_dearer() -> None:
    full = token_cost(output_tok_s=1000, isl=1, osl=1, gpus=1, price=PRICE)
    real = token_cost(output_tok_s=1000, isl=1, osl=1, gpus=1, price=PRICE, real_output_share=0.9)
    assert full.per_million_output is not None
    assert real.per_million_output == pytest.approx(full.per_million_output / 0.9)


def test_no_tokens_cost_nothing_that_can_be_named() -> None:
    assert token_cost(output_tok_s=0, isl=1, osl=1, gpus=1, price=PRICE).per_million_output is None


@pytest.mark.parametrize(("rate", "replicas"), [(0, 1), (8, 1), (8.1, 2), (80, 10)])
def test_replicas_keep_the_headroom(rate: float, replicas: int) -> None:
    plan = replicas_for_rate(rate_req_s=rate, capacity_req_s=10, headroom=0.2, price=PRICE)
    assert plan.replicas == replicas
    assert plan.load_per_replica <= 0.8 + 1e-9
    assert plan.usd_per_hour == pytest.approx(replicas * 3.6)


def test_a_replica_that_serves_nothing_in_time_is_refused() -> None:
    with pytest.raises(ValueError, match="above 0"):
        replicas_for_rate(rate_req_s=1, capacity_req_s=0)


def test_a_day_costs_less_when_capacity_follows_the_curve_and_least_on_spot() -> None:
    curve = [2.0] * 12 + [70.0] * 6 + [2.0] * 6
    fixed, scaled, spot = daily_cost(
        curve,
        capacity_req_s=10,
        gpus_per_replica=1,
        price=PRICE,
        spot=SPOT,
        interruption=Interruption(per_hour=0.1, reload_s=600, lost_work_s=120),
        scale_up_s=360,
    )
    assert fixed.usd_per_day == pytest.approx(9 * 24 * 3.6)
    # 18 h × 1 + 6 h × 9 replicas, and eight starts of 0.1 h.
    assert scaled.replica_hours == pytest.approx(18 + 54 + 0.8)
    assert spot.usd_per_day == pytest.approx(72.8 / (1 - 0.02) * 1.2)
    assert spot.usd_per_day < scaled.usd_per_day < fixed.usd_per_day
    assert "2.0%" in spot.note


def test_spot_that_is_always_interrupted_is_not_offered() -> None:
    kinds = daily_cost(
        [1.0],
        capacity_req_s=10,
        gpus_per_replica=1,
        price=PRICE,
        spot=SPOT,
        interruption=Interruption(per_hour=6, reload_s=600, lost_work_s=0),
    )
    assert [item.kind for item in kinds] == ["fixed", "autoscaled"]


def test_energy_needs_a_measured_power_and_gives_a_ceiling_otherwise() -> None:
    measured = energy_per_token(output_tok_s=1000, gpus=2, power_w=500, tdp_w=700)
    assert (measured.value, measured.at_most) == (1.0, 1.4)
    unknown = energy_per_token(output_tok_s=1000, gpus=2, tdp_w=700)
    assert unknown.value is None
    assert unknown.at_most == 1.4
    assert "not measured" in unknown.reason
