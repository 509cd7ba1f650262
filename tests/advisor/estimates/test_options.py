"""The same load elsewhere: other GPUs at their smallest size, a day's capacity."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from advisor.catalog import PriceBasis, find_gpu, price_basis
from advisor.estimates.cost import TYPICAL_DAY, Interruption
from advisor.estimates.models import known_model
from advisor.estimates.options import per_gpu, serving_plan
from advisor.estimates.service import EstimateRequest, estimate

REQUEST = EstimateRequest(
    known_model("Qwen/Qwen3-32B"), find_gpu("H100 SXM"), tp=2, isl=1024, osl=512
)
STOPS = Interruption(per_hour=0.05, reload_s=300, lost_work_s=10)


def test_gpus_come_cheapest_first_and_those_that_cannot_last() -> None:
    names = ("H100 SXM", "L4", "T4", "B200", "Jetson AGX Orin 64GB", "TPU v5e")
    options = per_gpu(REQUEST, [find_gpu(name) for name in names])
    assert {option.gpu.name for option in options} == set(names)
    prices = [option.usd_per_million for option in options if option.usd_per_million is not None]
    assert prices == sorted(prices)
    assert options[-1].estimate is None
    for option in options:
        if option.tp is not None:
            assert option.estimate is not None
            assert option.estimate.fits
            at_own_size = replace(REQUEST, gpu=option.gpu, tp=option.tp)
            assert option.estimate.memory == estimate(at_own_size).memory


def _plan(price: PriceBasis | None, day: tuple[float, ...] | None) -> Any:
    result = estimate(REQUEST)
    return serving_plan(
        REQUEST, result, price=price, day_req_s=day, headroom=0.2, interruption=STOPS
    )


def test_a_day_needs_rates_and_a_price_and_says_which_is_missing() -> None:
    price = price_basis("H100 SXM")
    peak = tuple(10 * share for share in TYPICAL_DAY)
    whole, no_day, no_price = _plan(price, peak), _plan(price, None), _plan(None, peak)
    assert [item.kind for item in whole.day] == ["fixed", "autoscaled", "spot"]
    assert whole.day_reason == ""
    assert no_day.replicas is None
    assert "rates" in no_day.day_reason
    assert no_price.replicas == replace(whole.replicas, usd_per_hour=None)
    assert "price" in no_price.day_reason
    assert whole.energy.value is None
    tokens_s = whole.capacity_req_s * REQUEST.osl
    assert whole.energy.at_most == pytest.approx(2 * 700 / tokens_s)


def test_what_does_not_fit_has_no_plan() -> None:
    small = replace(REQUEST, gpu=find_gpu("L4"), tp=1)
    result = estimate(small)
    assert not result.fits
    plan = serving_plan(
        small, result, price=None, day_req_s=(1.0,), headroom=0.2, interruption=STOPS
    )
    assert plan is None


def test_the_assumed_day_has_one_value_an_hour_and_reaches_its_peak() -> None:
    assert len(TYPICAL_DAY) == 24
    assert max(TYPICAL_DAY) == 1.0
    assert min(TYPICAL_DAY) > 0
