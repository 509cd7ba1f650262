"""Prices carry market, date and source; the organisation's own price wins."""

from __future__ import annotations

from advisor.catalog import MARKETS, list_gpus, list_prices, price_basis


def test_every_price_names_a_gpu_of_the_catalogue_a_market_and_a_source() -> None:
    names = {gpu.name for gpu in list_gpus()}
    prices = list_prices()
    assert len(prices) > 100
    for price in prices:
        assert price.gpu in names
        assert price.market in MARKETS
        assert price.source
        assert price.date
        assert 0 < price.low_usd_per_hour <= price.high_usd_per_hour


def test_the_basis_is_the_median_with_its_spread_and_dates() -> None:
    basis = price_basis("H100 SXM")
    assert basis is not None
    assert basis.low_usd <= basis.usd_per_gpu_hour <= basis.high_usd
    assert basis.n == len(list_prices("H100 SXM", "on-demand"))
    assert "2026" in basis.basis


def test_spot_and_on_demand_are_not_mixed() -> None:
    spot = price_basis("H100 SXM", market="spot")
    assert spot is not None
    assert spot.market == "spot"
    assert all(p.market == "spot" for p in list_prices("H100 SXM", "spot"))


def test_an_own_price_wins_by_name_or_alias() -> None:
    basis = price_basis("H100 SXM", overrides={"h100_sxm": 1.5})
    assert basis is not None
    assert (basis.usd_per_gpu_hour, basis.low_usd, basis.high_usd) == (1.5, 1.5, 1.5)
    assert "own price" in basis.basis


def test_a_gpu_without_a_price_has_none_not_zero() -> None:
    assert price_basis("Jetson AGX Orin 64GB") is None
