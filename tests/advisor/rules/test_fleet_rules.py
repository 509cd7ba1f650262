"""Rules on a fleet's cost: replicas that follow the day, spot capacity."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.catalog import find_gpu, price_basis
from advisor.costs import gpu_price
from advisor.estimates.cost import TYPICAL_DAY, day_plan
from advisor.evidence import TrialEvidence
from advisor.rules.checks import c001_cheaper_gpu_suffices, c005_fleet_sized_for_peak
from advisor.rules.checks import c006_spot_price_unused as c006
from advisor.rules.rule import Finding, Verdict
from gpuagent.wire import EngineSettings, Quantity, SimulatedModel
from gpuagent.wire.trial import ServeResult
from tests.builders import make_evidence, make_shape, make_study_spec, make_trial, make_workload
from tests.rule_checks import (
    GIB,
    LLAMA_8B,
    LOOSE_ITL,
    LOOSE_TTFT,
    assert_says_what_is_missing,
    on_gpu,
    one,
    text_of,
    through_engine,
)
from tests.served_builders import make_boundary, make_served_trial

H100 = find_gpu("H100 SXM")
DAY = tuple(40 * share for share in TYPICAL_DAY)


def fields(
    day: tuple[float, ...] | None = DAY, *, rate: float | None = None, **more: Any
) -> dict[str, Any]:
    spec = make_study_spec(
        engine="vllm",
        current=EngineSettings(),
        targets=(),
        day_req_s=day,
        workload=make_workload(
            request_rate_per_s=rate, **({"preset": more.pop("preset")} if "preset" in more else {})
        ),
    )
    return {"spec": spec, **on_gpu(), **more}


def serving(rate_per_s: float | None = 5.0, *, ready: Any = 50.0) -> TrialEvidence:
    """A server with this highest rate that was ready after `ready` seconds, or for no reason."""
    found = make_served_trial(make_boundary(rate_per_s) if rate_per_s else None)
    assert found.result is not None
    result = found.result.measurements
    assert isinstance(result, ServeResult)
    quantity = Quantity(value=ready) if isinstance(ready, float) else Quantity(reason=ready)
    served = result.served.model_copy(update={"ready_s": quantity})
    return make_trial(result.model_copy(update={"served": served}), settings=EngineSettings())


@pytest.mark.parametrize("module", [c005_fleet_sized_for_peak, c006], ids=lambda module: module.ID)
def test_without_its_evidence_a_rule_says_what_is_missing(module: Any) -> None:
    assert_says_what_is_missing(one(module))
    assert_says_what_is_missing(one(module, **fields()))
    assert_says_what_is_missing(one(module, shape=None, **{**fields(), "device": None}))


# --- a day --------------------------------------------------------------------------------------


def following(*trials: TrialEvidence, **more: Any) -> Finding:
    return one(c005_fleet_sized_for_peak, *trials, **fields(**more))


def test_a_fleet_for_the_peak_is_to_follow_the_day_with_its_hours_and_its_price() -> None:
    finding = following(serving())
    assert finding.verdict is Verdict.FAIL
    rate, start, day = finding.evidence
    assert (rate.value, rate.low, rate.high) == (5.0, 4.9, pytest.approx(5.15))
    assert (start.value, start.n) == (50.0, 1)
    # 40 req/s over 5 × 0.8 are ten replicas, 0.18 of them two.
    assert "needs 2 to 10 replicas" in day.text
    assert "240 replica hours a day at a fixed size" in day.text
    price = price_basis(H100)
    assert price is not None
    assert f"{price.usd_per_gpu_hour:.2f}"[:1].isdigit()
    assert "USD a day" in day.text
    assert day.n == 24
    effect = finding.effect
    assert effect is not None
    assert effect.basis == "modelled"
    assert effect.low is not None
    assert effect.high is not None
    assert effect.low <= effect.change_frac <= effect.high < -0.2
    assert finding.change is not None
    assert "between 2 and 10 replicas" in finding.change.text


def test_the_own_price_wins_and_without_one_hours_alone_are_counted() -> None:
    own = following(serving(), prices={"H100 SXM": 1.0})
    assert "240 and" in own.evidence[-1].text
    assert "own price" in own.evidence[-1].text
    unknown = following(serving(), **on_gpu(name="Accelerator 9000"))
    assert unknown.verdict is Verdict.FAIL
    assert "USD" not in text_of(unknown)


def test_without_a_day_a_rate_or_a_start_nothing_is_claimed() -> None:
    assert "day_req_s" in (following(serving(), day=None).missing or "")
    assert "highest rate" in (following(serving(None)).missing or "")
    looked = fields()
    looked["spec"] = looked["spec"].model_copy(update={"boundary": True})
    none = make_boundary(None, reason="no rate kept the targets")
    trial = make_served_trial(none)
    found = one(c005_fleet_sized_for_peak, trial, **looked)
    assert "none was found (no rate kept the targets)" in (found.missing or "")
    blind = following(serving(ready="the server was running already"))
    assert blind.verdict is Verdict.CANNOT_TELL
    assert blind.summary == "the server was running already"


def test_a_day_is_not_asked_for_where_a_study_takes_none() -> None:
    spec = make_study_spec(engine="simulated", model=SimulatedModel(name="qwen3-32b-2xh100"))
    finding = one(c005_fleet_sized_for_peak, serving(), spec=spec)
    assert_says_what_is_missing(finding)
    assert "day_req_s" not in (finding.missing or "")


def test_a_day_that_needs_one_size_passes() -> None:
    finding = following(serving(), day=(3.0, 3.5, 3.9))
    assert finding.verdict is Verdict.PASS
    assert "at every hour: 1" in finding.title


@pytest.mark.parametrize(
    ("quiet", "verdict"),
    # Of 10 replicas for half of the day as many less are saved as the other half needs less.
    [(25.0, Verdict.PASS), (15.0, Verdict.FAIL)],
)
def test_a_fifth_of_the_hours_is_the_threshold(quiet: float, verdict: Verdict) -> None:
    finding = following(serving(ready=1.0), day=(quiet, 40.0))
    assert finding.verdict is verdict
    saving = finding.evidence[-1].value
    assert saving is not None
    assert (saving > 0.2) is (verdict is Verdict.FAIL)


def test_the_start_limits_how_closely_the_load_is_followed() -> None:
    quick = following(serving(ready=20.0))
    slow = following(serving(ready=1800.0))
    too_slow = following(serving(ready=3600.0))
    assert quick.change is not None
    assert "within what is left free" in quick.change.text or "Keep" in quick.change.text
    assert slow.evidence[-1].value is not None
    assert quick.evidence[-1].value is not None
    assert slow.evidence[-1].value < quick.evidence[-1].value
    assert too_slow.verdict is Verdict.INFORMATIVE
    assert "more slowly than the load of this day changes" in too_slow.title


def test_replicas_that_a_rise_calls_for_before_a_start_ends_are_there_already() -> None:
    def plan(start_s: float) -> int:
        return day_plan((8, 40), capacity_req_s=5, headroom=0.2, start_s=start_s).ahead

    # From 8 to 40 req/s in 12 hours: one replica of 4 req/s more every 5,400 s.
    assert [plan(s) for s in (0, 5_400, 10_800, 43_200)] == [0, 1, 2, 8]
    steady = day_plan((8, 8, 8), capacity_req_s=5, headroom=0.2, start_s=600)
    assert (steady.ahead, steady.starts) == (0, 0)
    assert steady.followed_hours() == steady.fixed_hours == 48


# --- spot ---------------------------------------------------------------------------------------


def spot(*trials: TrialEvidence, **more: Any) -> Finding:
    return one(c006, *trials, **fields(**more))


def test_spot_capacity_that_saves_with_a_spare_replica_is_to_be_tried() -> None:
    finding = spot(serving(), prices={"H100 SXM": 4.0})
    assert finding.verdict is Verdict.FAIL
    prices, start, fleet = finding.evidence
    market = price_basis(H100, market="spot")
    assert market is not None
    assert prices.value == market.usd_per_gpu_hour
    assert (prices.low, prices.high) == (market.low_usd, market.high_usd)
    # Ten replicas for the day's peak, and one spare.
    saving = 1 - 1.1 * market.usd_per_gpu_hour / 4.0
    assert fleet.value == pytest.approx(saving)
    assert "on demand: 10, on spot capacity: 11, one of them spare;" in fleet.text
    assert start.value is not None
    assert start.value == pytest.approx(saving * 3600 / 51, rel=0.02)
    effect = finding.effect
    assert effect is not None
    assert effect.metric == "usd_per_hour"
    assert effect.change_frac == pytest.approx(-saving)
    assert "in more than one zone" in text_of(finding)


@pytest.mark.parametrize(("factor", "verdict"), [(1.01, Verdict.FAIL), (0.99, Verdict.PASS)])
def test_the_saving_must_exceed_a_fifth(factor: float, verdict: Verdict) -> None:
    market = price_basis(H100, market="spot")
    assert market is not None
    own = 1.1 * market.usd_per_gpu_hour / 0.8 * factor
    assert spot(serving(), prices={"H100 SXM": own}).verdict is verdict


@pytest.mark.parametrize(("hour", "verdict"), [(0.99, Verdict.FAIL), (1.01, Verdict.PASS)])
def test_a_start_that_one_loss_an_hour_makes_too_dear_is_too_long(
    hour: float, verdict: Verdict
) -> None:
    market = price_basis(H100, market="spot")
    assert market is not None
    saving = 1 - 1.1 * market.usd_per_gpu_hour / 8.0
    trial = serving(ready=saving * 3600 * hour)
    finding = spot(trial, prices={"H100 SXM": 8.0})
    assert finding.verdict is verdict
    if verdict is Verdict.PASS:
        assert "too long for spot capacity" in finding.title


def test_one_replica_that_must_answer_is_only_told_and_a_batch_needs_no_spare() -> None:
    alone = spot(serving(), day=None, prices={"H100 SXM": 8.0})
    assert alone.verdict is Verdict.INFORMATIVE
    assert alone.change is None
    batch = spot(serving(), day=None, preset="batch", prices={"H100 SXM": 8.0})
    assert batch.verdict is Verdict.FAIL
    assert "on demand: 1, on spot capacity: 1;" in text_of(batch)
    assert batch.change is not None
    assert "repeat the requests" in batch.change.text


def test_without_a_start_or_a_price_spot_capacity_is_not_judged() -> None:
    blind = spot(serving(ready="an endpoint was running already"), prices={"H100 SXM": 8.0})
    assert blind.verdict is Verdict.CANNOT_TELL
    assert blind.summary == "an endpoint was running already"
    assert_says_what_is_missing(spot(serving(), **on_gpu(name="Accelerator 9000")))
    cpu = {key: value for key, value in fields().items() if key != "device"}
    assert_says_what_is_missing(one(c006, serving(), **cpu))


def test_a_saving_that_the_dearest_zone_takes_away_is_of_low_confidence() -> None:
    market = price_basis(H100, market="spot")
    assert market is not None
    assert market.high_usd > market.usd_per_gpu_hour
    near = 1.1 * market.usd_per_gpu_hour / 0.7
    assert spot(serving(), prices={"H100 SXM": near}).confidence == "low"
    far = 1.1 * market.high_usd / 0.7
    assert spot(serving(), prices={"H100 SXM": far}).confidence == "medium"


def test_the_gpu_of_an_endpoint_has_no_price_and_no_rival() -> None:
    spec = make_study_spec(
        engine="openai", endpoint="main", current=EngineSettings(), targets=(LOOSE_TTFT,)
    )
    more = {"spec": spec, "shape": make_shape(**LLAMA_8B), "prices": {"B200": 50.0}}
    more |= on_gpu(name="NVIDIA B200", memory_bytes=180 * GIB)
    for module in (c001_cheaper_gpu_suffices, c006):
        finding = one(module, serving(), **more)
        assert_says_what_is_missing(finding)
        assert "endpoint" in (finding.missing or "")
    assert gpu_price(make_evidence(serving(), **more)) is None


# --- own prices ---------------------------------------------------------------------------------


def test_the_rule_on_cheaper_gpus_takes_the_organisations_own_price() -> None:
    spec = make_study_spec(targets=(LOOSE_TTFT, LOOSE_ITL))
    fields = {"spec": spec, "shape": make_shape(**LLAMA_8B)}
    device = on_gpu(name="NVIDIA B200", memory_bytes=180 * GIB)
    listed = one(c001_cheaper_gpu_suffices, **fields, **device)
    assert listed.verdict is Verdict.FAIL
    own = one(c001_cheaper_gpu_suffices, **fields, **device, prices={"B200": 0.01})
    assert own.verdict is Verdict.PASS
    assert "the organisation's own price" in text_of(own)


def test_a_study_shows_both_findings() -> None:
    more = fields(prices={"H100 SXM": 8.0})
    evidence = make_evidence(serving(), **more)
    for rule_id in (c005_fleet_sized_for_peak.ID, c006.ID):
        assert through_engine(rule_id, evidence).verdict is Verdict.FAIL
