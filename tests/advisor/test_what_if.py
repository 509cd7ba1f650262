from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from advisor.charts import ChartInput, chart
from advisor.evidence import StudyEvidence
from advisor.rules.checks import c005_fleet_sized_for_peak
from advisor.rules.rule import Verdict
from advisor.what_if import WhatIfQuery, what_if
from gpuagent.wire import EngineSettings
from gpuagent.wire.serving import ServeConfig
from tests import builders
from tests.served_builders import TARGETS, make_boundary, make_served_trial


def target(limit: float, metric: str = "ttft_s", statistic: str = "p95") -> dict[str, Any]:
    return {"metric": metric, "statistic": statistic, "limit": limit}


def ask(evidence: StudyEvidence, **query: Any) -> Any:
    return what_if(evidence, WhatIfQuery.model_validate(query))


@pytest.fixture
def evidence() -> StudyEvidence:
    """bfloat16 today with a quick first token, float32 with quicker gaps."""
    today = builders.make_trial(builders.make_baseline_result(ttft_s=0.1, itl_s=0.06))
    other = builders.make_trial(
        builders.make_baseline_result("float32", ttft_s=0.18, itl_s=0.03),
        ordinal=2,
        role="variant",
        settings=EngineSettings(dtype="float32"),
    )
    return builders.make_evidence(today, other)


def test_the_ranking_follows_the_targets(evidence: StudyEvidence) -> None:
    quick_start = ask(evidence, targets=[target(0.15)])
    assert [r.candidate.trial.ordinal for r in quick_start.ranking] == [1, 2]
    assert quick_start.verdict.status == "met"
    assert quick_start.verdict.recommended is None
    quick_gaps = ask(evidence, targets=[target(0.05, "itl_s")])
    assert [r.candidate.trial.ordinal for r in quick_gaps.ranking] == [2, 1]
    assert quick_gaps.verdict.recommended == EngineSettings(dtype="float32")


def test_a_limit_that_nothing_keeps_is_missed(evidence: StudyEvidence) -> None:
    assert ask(evidence, targets=[target(0.01)]).verdict.status == "missed"


def test_the_studys_own_evidence_stays_as_it_was(evidence: StudyEvidence) -> None:
    before = evidence.spec
    ask(evidence, targets=[target(0.01)])
    assert evidence.spec is before
    same = ask(evidence)
    assert same.evidence.spec == before


def test_a_stricter_percentile_than_was_measured_is_not_proven(evidence: StudyEvidence) -> None:
    found = ask(evidence, targets=[target(0.5, statistic="p99")])
    assert found.verdict.status == "not_proven"
    assert found.verdict.targets[0].needed_n == 299


def test_a_price_gives_cost_at_the_measured_throughput(evidence: StudyEvidence) -> None:
    first, second = ask(evidence, usd_per_hour=3.6).ranking
    by_ordinal = {r.candidate.trial.ordinal: r.usd_per_million for r in (first, second)}
    # 16 tokens in 0.1 + 15 x 0.06 s: 16 tok/s at 0.001 USD a second.
    assert by_ordinal[1] == pytest.approx(62.5, rel=0.02)
    assert by_ordinal[2] == pytest.approx(39.4, rel=0.02)
    assert all(r.usd_per_million is None for r in ask(evidence).ranking)


def test_targets_may_be_dropped(evidence: StudyEvidence) -> None:
    assert ask(evidence, targets=[]).verdict.status == "no_targets"


def searched(*rates: float) -> StudyEvidence:
    """Servers that keep the targets up to `rates`, the settings in use first."""
    trials = [
        make_served_trial(
            make_boundary(rate),
            ordinal=n,
            role="current" if n == 1 else "variant",
            settings=EngineSettings(max_running=8 * n),
            config=ServeConfig(boundary_points=6, targets=TARGETS),
        )
        for n, rate in enumerate(rates, start=1)
    ]
    spec = builders.make_study_spec(
        engine="vllm",
        current=EngineSettings(max_running=8),
        targets=TARGETS,
        boundary=True,
        day_req_s=(1.0, 12.0, 3.0),
    )
    return builders.make_evidence(*trials, spec=spec)


@pytest.mark.parametrize("targets", [[], [target(10, "output_tok_s", "mean")]])
def test_a_study_with_a_highest_rate_may_lose_the_targets_it_kept(targets: Any) -> None:
    found = ask(searched(2.0, 5.0), targets=targets)
    assert not found.evidence.spec.boundary
    assert [r.candidate.boundary_per_s for r in found.ranking] == [None, None]


@pytest.mark.parametrize("limit", [0.2, 0.4])
def test_a_highest_rate_counts_only_under_the_targets_that_it_keeps(limit: float) -> None:
    evidence = searched(2.0, 5.0)
    same = ask(evidence, targets=[t.model_dump() for t in reversed(TARGETS)])
    assert [r.candidate.boundary_per_s for r in same.ranking] == [2.0, 5.0]
    fleet = c005_fleet_sized_for_peak.check(same.evidence)[0]
    assert fleet.verdict is not Verdict.NOT_APPLICABLE
    other = ask(evidence, targets=[target(limit, statistic="p90")])
    assert other.evidence.spec.boundary
    assert [r.candidate.boundary_per_s for r in other.ranking] == [None, None]
    (lost,) = c005_fleet_sized_for_peak.check(other.evidence)
    assert "for other targets" in (lost.missing or "")
    current = other.evidence.current
    day = chart("day-load", ChartInput(other.evidence, current, current))
    assert day.empty_reason


def test_the_verification_counts_for_the_metric_that_now_decides() -> None:
    candidate = EngineSettings(dtype="float32")
    today = builders.make_trial(builders.make_baseline_result(ttft_s=0.15, itl_s=0.06))
    other = builders.make_trial(
        builders.make_baseline_result("float32", ttft_s=0.1, itl_s=0.03),
        ordinal=2,
        role="variant",
        settings=candidate,
    )
    # The A/B proved quicker gaps and a slower first token.
    verified = builders.make_trial(
        builders.make_verify_result(candidate, ratio=0.5, ttft_ratio=1.3),
        ordinal=3,
        role="verification",
    )
    evidence = builders.make_evidence(today, other, verified)
    assert ask(evidence, targets=[target(0.05, "itl_s")]).verdict.verification == "verified"
    assert ask(evidence, targets=[target(0.12)]).verdict.verification == "contradicted"


@pytest.mark.parametrize(
    "query",
    [
        {"targets": [target(0.1), target(0.2)]},
        {"targets": [target(0)]},
        {"usd_per_hour": 0},
        {"usd_per_hour": float("inf")},
        {"surprise": 1},
    ],
)
def test_bad_questions_are_refused(evidence: StudyEvidence, query: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ask(evidence, **query)
