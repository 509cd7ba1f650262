"""Rules on cost and energy: fails with evidence, passes, not applicable, at the threshold."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from advisor.catalog import find_gpu, price_basis
from advisor.evidence import TrialEvidence
from advisor.rules.checks import (
    c001_cheaper_gpu_suffices,
    c002_idle_energy_large,
    c003_power_capped,
    c004_batch_saves_energy,
)
from advisor.rules.rule import Finding, Verdict
from gpuagent.wire import LengthSpec, Quantity, SlaTarget
from gpuagent.wire.measure import Validity, ValidityCheck
from tests.builders import (
    make_baseline_result,
    make_cell,
    make_current,
    make_environment,
    make_shape,
    make_trial,
)
from tests.rule_checks import (
    GIB,
    LLAMA_8B,
    LOOSE_ITL,
    LOOSE_TTFT,
    TIGHT_ITL,
    TIGHT_TTFT,
    aiming_at,
    assert_says_what_is_missing,
    invalid,
    on_gpu,
    one,
    text_of,
)

TIGHT_ENERGY = SlaTarget(metric="joules_per_token", statistic="mean", limit=0.01)
LOOSE_ENERGY = SlaTarget(metric="joules_per_token", statistic="mean", limit=100)


@pytest.mark.parametrize(
    "module",
    [
        c001_cheaper_gpu_suffices,
        c002_idle_energy_large,
        c003_power_capped,
        c004_batch_saves_energy,
    ],
    ids=lambda module: module.ID,
)
def test_without_its_evidence_a_rule_says_what_is_missing(module: Any) -> None:
    assert_says_what_is_missing(one(module, shape=None, device=None))
    assert_says_what_is_missing(one(module, invalid(joules_per_token=2.0)))


# --- cheaper GPU -------------------------------------------------------------------------------


def chat_on_b200(*targets: SlaTarget, **workload: Any) -> dict[str, Any]:
    lengths = {"input_tokens": LengthSpec(mean=512), "output_tokens": LengthSpec(mean=128)}
    return {
        **on_gpu(name="NVIDIA B200", memory_bytes=180 * GIB),
        **aiming_at(*targets, **{**lengths, **workload}),
        "shape": make_shape(**LLAMA_8B),
    }


def test_a_cheaper_gpu_that_keeps_the_targets_by_prediction_is_named_with_its_price() -> None:
    finding = one(c001_cheaper_gpu_suffices, **chat_on_b200(LOOSE_TTFT, LOOSE_ITL))
    assert finding.verdict is Verdict.FAIL
    now, then = (item.value for item in finding.evidence)
    own = price_basis(find_gpu("B200"))
    assert own is not None
    assert now == own.usd_per_gpu_hour
    assert then is not None
    assert then < now
    assert "Predicted for vllm" in finding.summary
    assert finding.change is not None
    assert finding.change.settings == {}
    assert finding.confidence in ("medium", "low")


def test_targets_that_no_cheaper_gpu_keeps_pass() -> None:
    finding = one(c001_cheaper_gpu_suffices, **chat_on_b200(TIGHT_TTFT, TIGHT_ITL))
    assert finding.verdict is Verdict.PASS


def test_the_pessimistic_end_of_the_prediction_decides() -> None:
    found = one(c001_cheaper_gpu_suffices, **chat_on_b200(LOOSE_ITL))
    name, high_ms = _predicted_gap(found)
    at = SlaTarget(metric="itl_s", statistic="p50", limit=high_ms * 1.02e-3)
    assert name in one(c001_cheaper_gpu_suffices, **chat_on_b200(at)).title
    below = SlaTarget(metric="itl_s", statistic="p50", limit=high_ms * 0.98e-3)
    assert name not in one(c001_cheaper_gpu_suffices, **chat_on_b200(below)).title


def _predicted_gap(finding: Finding) -> tuple[str, float]:
    """(GPU, upper end of the predicted gap in ms) of the cheapest one."""
    text = finding.evidence[1].text.replace("\u00a0", " ")
    head, _, tail = text.partition(", gap ")
    number, unit = tail.rpartition("up to ")[2].rstrip(")").split(" ")
    assert unit == "ms"
    return head.partition(": ")[0], float(number)


def test_a_rate_needs_a_baseline_that_says_how_many_requests_run_at_once() -> None:
    fields = chat_on_b200(LOOSE_TTFT, request_rate_per_s=50)
    assert_says_what_is_missing(one(c001_cheaper_gpu_suffices, **fields))
    finding = one(c001_cheaper_gpu_suffices, make_current(), **fields)
    assert finding.verdict in (Verdict.FAIL, Verdict.PASS)


def test_targets_that_are_not_predicted_are_named() -> None:
    finding = one(c001_cheaper_gpu_suffices, **chat_on_b200(LOOSE_TTFT, LOOSE_ENERGY))
    assert "Not part of the prediction" in finding.summary
    e2e = SlaTarget(metric="e2e_s", statistic="p50", limit=1000)
    assert one(c001_cheaper_gpu_suffices, **chat_on_b200(e2e)).verdict is Verdict.PASS


def test_only_a_gpu_with_a_price_and_a_target_is_compared() -> None:
    assert_says_what_is_missing(one(c001_cheaper_gpu_suffices, **chat_on_b200()))
    fields = {**chat_on_b200(LOOSE_TTFT), **on_gpu(name="Tesla V100-PCIE-16GB")}
    assert_says_what_is_missing(one(c001_cheaper_gpu_suffices, **fields))
    cpu = aiming_at(LOOSE_TTFT)
    assert_says_what_is_missing(one(c001_cheaper_gpu_suffices, make_current(), **cpu))


# --- idle energy -------------------------------------------------------------------------------


def drawing(total: float, net: float) -> TrialEvidence:
    return make_current(
        joules_per_token=total,
        net_joules_per_token=Quantity(value=net),
        idle_power_w=Quantity(value=70),
    )


@pytest.mark.parametrize(("net", "verdict"), [(1.0, Verdict.PASS), (0.98, Verdict.FAIL)])
def test_more_than_half_of_the_energy_on_idle_fails(net: float, verdict: Verdict) -> None:
    finding = one(c002_idle_energy_large, drawing(2.0, net), **aiming_at(TIGHT_ENERGY))
    assert finding.verdict is verdict
    assert finding.evidence[0].value == pytest.approx(1 - net / 2)
    assert "70.0 W" in text_of(finding) or "70 W" in text_of(finding)


@pytest.mark.parametrize("targets", [(), (LOOSE_ENERGY,), (TIGHT_TTFT,)])
def test_idle_energy_is_told_where_no_energy_target_is_missed(
    targets: tuple[SlaTarget, ...],
) -> None:
    finding = one(c002_idle_energy_large, drawing(2.0, 0.4), **aiming_at(*targets))
    assert finding.verdict is Verdict.INFORMATIVE
    assert finding.change is None


def test_without_idle_power_the_reason_is_passed_on() -> None:
    finding = one(c002_idle_energy_large, make_current(joules_per_token=2.0))
    assert_says_what_is_missing(finding)
    assert "an older agent" in (finding.missing or "")


# --- power limit -------------------------------------------------------------------------------


def capped(
    verdict: Literal["valid", "warn"], *, limit_w: float | None = 300.0, value: float = 0.4
) -> TrialEvidence:
    environment = make_environment("cuda:0")
    gpu = environment.gpus[0].model_copy(update={"power_limit_w": limit_w})
    line = ValidityCheck(
        id="gpu_power_capped",
        verdict=verdict,
        message="The power limit held the GPU back in 40 % of the samples",
        value=value,
    )
    return make_trial(
        make_baseline_result(),
        environment=environment.model_copy(update={"gpus": (gpu,)}),
        validity=Validity(checks=(line,)),
    )


def test_a_limit_that_holds_back_a_missed_target_is_to_be_raised() -> None:
    finding = one(c003_power_capped, capped("warn"), **on_gpu(), **aiming_at(TIGHT_TTFT))
    assert finding.verdict is Verdict.FAIL
    assert finding.evidence[0].value == 0.4
    assert "limit 300 W, rated 700 W" in text_of(finding)
    without = one(c003_power_capped, capped("warn"), **on_gpu(), **aiming_at())
    assert without.verdict is Verdict.FAIL
    assert "target" not in without.title


def test_the_checklist_decides_whether_the_cap_matters() -> None:
    finding = one(c003_power_capped, capped("valid", value=0.05), **on_gpu())
    assert finding.verdict is Verdict.PASS


def test_a_cap_within_the_targets_or_on_decode_alone_is_only_told() -> None:
    for target in (LOOSE_TTFT, TIGHT_ITL):
        finding = one(c003_power_capped, capped("warn"), **on_gpu(), **aiming_at(target))
        assert finding.verdict is Verdict.INFORMATIVE
        assert finding.change is None


def test_a_limit_at_the_rated_power_cannot_be_raised() -> None:
    rated = capped("warn", limit_w=700.0)
    finding = one(c003_power_capped, rated, **on_gpu(), **aiming_at(TIGHT_TTFT))
    assert finding.verdict is Verdict.INFORMATIVE
    assert "rated" in finding.title


def test_a_processor_has_no_power_limit() -> None:
    assert_says_what_is_missing(one(c003_power_capped, make_current()))


# --- energy of batches -------------------------------------------------------------------------


def batches(*joules: float) -> TrialEvidence:
    cells = tuple(make_cell(2**i, joules_per_token=j) for i, j in enumerate(joules))
    return make_current(cells=cells, joules_per_token=joules[0])


@pytest.mark.parametrize(("least", "verdict"), [(0.8, Verdict.PASS), (0.79, Verdict.FAIL)])
def test_a_batch_that_saves_a_fifth_of_the_energy_is_worth_it(
    least: float, verdict: Verdict
) -> None:
    finding = one(c004_batch_saves_energy, batches(1.0, 0.9, least), **aiming_at(TIGHT_ENERGY))
    assert finding.verdict is verdict
    assert [item.value for item in finding.evidence] == [1.0, 0.9, least]
    if verdict is Verdict.FAIL:
        assert finding.effect is not None
        assert finding.effect.change_frac == pytest.approx(least - 1)
        assert "batch 4" in finding.title


@pytest.mark.parametrize("targets", [(), (LOOSE_ENERGY,), (TIGHT_TTFT,)])
def test_saved_energy_is_told_where_no_energy_target_is_missed(
    targets: tuple[SlaTarget, ...],
) -> None:
    finding = one(c004_batch_saves_energy, batches(1.0, 0.5), **aiming_at(*targets))
    assert finding.verdict is Verdict.INFORMATIVE


def test_one_batch_alone_compares_nothing() -> None:
    assert_says_what_is_missing(one(c004_batch_saves_energy, batches(1.0)))
    assert_says_what_is_missing(one(c004_batch_saves_energy, make_current()))
