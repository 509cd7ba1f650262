from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.pages.present.trials import phase_lines, quantity_lines
from advisor.reports.method import environment_lines, limit_lines, method_lines
from advisor.rules import engine
from advisor.rules.rule import Verdict
from advisor.studies import planner
from advisor.studies.planner import PlannedTrial
from advisor.verdict import study_verdict
from gpuagent.errors import AgentError
from gpuagent.runner import run_trial
from gpuagent.wire import (
    EngineSettings,
    Failure,
    FailureReason,
    SimulatedModel,
    SlaTarget,
    StudySpec,
    TrialSpec,
)
from gpuagent.wire.serving import ServeConfig
from gpuagent.wire.trial import (
    BaselineConfig,
    BaselineResult,
    KvCacheConfig,
    ServeResult,
    VerifyConfig,
)
from tests import builders

MODEL = SimulatedModel(name="qwen3-32b-2xh100")
BAD = EngineSettings(
    max_running=8, max_batched_tokens=256, cuda_graphs=False, memory_share_frac=0.7
)


def make_spec(**overrides: Any) -> StudySpec:
    fields: dict[str, Any] = {
        "model": MODEL,
        "engine": "simulated",
        "workload": builders.make_workload(
            input_tokens={"mean": 600, "kind": "lognormal", "p95": 1400, "maximum": 4000},
            output_tokens={"mean": 60},
            request_rate_per_s=6.0,
            requests=300,
        ),
        "targets": (
            SlaTarget(metric="ttft_s", statistic="p90", limit=0.8),
            SlaTarget(metric="itl_s", statistic="p90", limit=0.1),
        ),
        "current": BAD,
        "budget_s": 600,
    }
    return builders.make_study_spec(**{**fields, **overrides})


def trial_spec(spec: StudySpec, **overrides: Any) -> TrialSpec:
    fields: dict[str, Any] = {
        "trial_id": builders.trial_id(1),
        "model": spec.model,
        "engine": spec.engine,
        "settings": spec.current,
        "workload": spec.workload,
        "config": BaselineConfig(perplexity_tokens=0),
        "seed": 1,
    }
    return TrialSpec(**{**fields, **overrides})


def measure(spec: TrialSpec) -> Any:
    return run_trial(spec, emit=lambda *_, **__: None, should_cancel=lambda: False, model_roots=())


def run_planned(spec: StudySpec, planned: PlannedTrial, ordinal: int) -> TrialEvidence:
    asked = trial_spec(
        spec,
        trial_id=builders.trial_id(ordinal),
        settings=planned.settings,
        config=planned.config,
        seed=ordinal,
    )
    base = builders.make_trial(ordinal=ordinal, role=planned.role, title=planned.title)
    base = replace(base, spec=asked, reason=planned.reason)
    try:
        return replace(base, state="succeeded", result=measure(asked))
    except AgentError as error:
        failure = Failure(reason=error.reason, message=str(error), detail=error.detail)
        return replace(base, state="failed", failure=failure)


def run_study(spec: StudySpec) -> StudyEvidence:
    """The whole study, each trial really simulated."""
    device = builders.make_device("gpu", name="simulated")
    waiting = list(planner.plan(spec, shape=None, device=device).trials)
    trials: list[TrialEvidence] = []

    def evidence(finished: bool) -> StudyEvidence:
        return builders.make_evidence(
            *trials, spec=spec, shape=None, device=device, finished=finished
        )

    while waiting:
        trials += [
            run_planned(spec, planned, ordinal)
            for ordinal, planned in enumerate(waiting, start=len(trials) + 1)
        ]
        now = evidence(finished=False)
        waiting = list(planner.next_trials(now, engine.evaluate(now)))
        assert len(trials) < 30, "the study does not end"
    return evidence(finished=True)


@pytest.fixture(scope="module")
def finished() -> StudyEvidence:
    return run_study(make_spec())


def test_from_bad_settings_a_study_ends_with_a_verified_better_configuration(
    finished: StudyEvidence,
) -> None:
    verdict = study_verdict(finished, engine.evaluate(finished))
    assert verdict.status == "met", verdict.sentence
    assert verdict.verification == "verified", verdict.verification_sentence
    # A queue that only grows is one long event, too few independent ones to prove a miss.
    assert verdict.current_targets[0].verdict == "not_proven"
    assert "291 of 300 requests over" in verdict.current_targets[0].reason
    assert {"max_running"} <= set(verdict.changes)
    assert len(finished.trials) <= 17


def test_everything_says_that_it_is_simulated(finished: StudyEvidence) -> None:
    verdict = study_verdict(finished, ())
    assert verdict.sentence.startswith("Simulated: ")
    assert {status.basis for status in verdict.targets} == {"simulated"}
    for trial in finished.trials:
        if trial.result is not None:
            assert "Simulated" in trial.result.validity.reasons[0]
            assert trial.result.environment.device.startswith("simulated ")


def test_every_trial_says_why_and_none_repeats_another(finished: StudyEvidence) -> None:
    assert all(trial.reason for trial in finished.trials)
    variants = [t.settings for t in finished.trials if isinstance(t.spec.config, ServeConfig)]
    assert len({repr(s) for s in variants}) == len(variants)
    roles = [t.role for t in finished.trials]
    assert roles[0] == "current"
    assert roles[-1] == "verification"


def test_no_rule_breaks_on_simulated_evidence(finished: StudyEvidence) -> None:
    broken = [f for f in engine.evaluate(finished) if f.verdict is Verdict.ERROR]
    assert broken == []


def test_a_closed_loop_sends_one_request_at_a_time() -> None:
    spec = make_spec(workload=builders.make_workload(requests=5))
    result = measure(trial_spec(spec)).measurements
    assert isinstance(result, BaselineResult)
    assert result.arrivals == "closed_loop"
    assert result.server is not None
    assert result.server.running_peak == 1
    ends = [r.token_s[-1] for r in result.requests]
    assert all(
        later.intended_s >= end for later, end in zip(result.requests[1:], ends, strict=False)
    )


@pytest.mark.parametrize(
    ("asked", "reason", "detail"),
    [
        (EngineSettings(memory_share_frac=0.99), FailureReason.OUT_OF_MEMORY, None),
        (EngineSettings(memory_share_frac=0.4), FailureReason.OUT_OF_MEMORY, "cache_too_small"),
        (
            EngineSettings(max_running=4096, max_batched_tokens=1024),
            FailureReason.CONFIG_ERROR,
            None,
        ),
    ],
)
def test_what_does_not_start_fails_with_a_reason(
    asked: EngineSettings, reason: FailureReason, detail: str | None
) -> None:
    with pytest.raises(AgentError) as failed:
        measure(trial_spec(make_spec(), settings=asked))
    assert failed.value.reason is reason
    assert failed.value.detail == detail


def test_a_token_budget_alone_lowers_the_default_batch_as_the_engine_does() -> None:
    measure(trial_spec(make_spec(), settings=EngineSettings(max_batched_tokens=512)))


def serving(spec: StudySpec, **config: Any) -> TrialSpec:
    """A serve trial with a search of a few short points."""
    asked: dict[str, Any] = {"boundary_points": 4, "point_s": 20.0, "targets": spec.targets}
    return trial_spec(spec, config=ServeConfig(**{**asked, **config}))


@pytest.fixture(scope="module")
def served() -> ServeResult:
    measured = measure(serving(make_spec(boundary=True))).measurements
    assert isinstance(measured, ServeResult)
    return measured


def test_a_simulated_server_shows_what_a_real_one_does(served: ServeResult) -> None:
    seen = served.served.timeline
    assert seen is not None
    assert seen.at_s == tuple(float(s) for s in range(len(seen.at_s)))
    assert len(seen.at_s) == math.ceil(served.window_s)
    # Eight places and more load than they take: the rest waits.
    assert max(seen.running) == 8
    assert max(seen.waiting) > 50
    assert seen.running[-1] >= 1
    assert served.server is not None
    assert max(seen.kv_frac) <= served.server.kv_peak_frac
    assert served.served.facts.max_running == 8


def test_a_simulated_server_has_no_process_no_log_and_no_second_count(served: ServeResult) -> None:
    engine_seen = served.served
    assert engine_seen.engine == "simulated"
    assert (engine_seen.command, engine_seen.counts) == ((), ())
    assert engine_seen.facts.attention is None
    for quantity in (
        engine_seen.ready_s,
        engine_seen.prefix_hit_frac,
        engine_seen.spec_accepted_frac,
        served.joules_per_token,
    ):
        assert quantity.value is None
        assert quantity.reason
    assert served.cold is None


def test_the_highest_rate_is_found_in_simulated_time_and_again(served: ServeResult) -> None:
    found = served.boundary
    assert found is not None
    assert served.boundary_reason is None
    assert found.low is not None
    assert found.high is not None
    assert found.rate_per_s is not None
    assert found.low < found.rate_per_s < found.high
    assert len(found.points) <= 4
    assert all(p.meets == (p.rate_per_s <= found.low) for p in found.points)
    assert found.points[-1].saturated
    assert not any(p.stopped_early or p.client_bound for p in found.points)
    again = measure(serving(make_spec(boundary=True))).measurements
    assert again == served


def test_a_closed_loop_keeps_its_streams_in_flight_and_finds_a_rate_from_them() -> None:
    spec = make_spec(
        workload=builders.make_workload(requests=40),
        targets=(SlaTarget(metric="e2e_s", statistic="p50", limit=2.0),),
        boundary=True,
    )
    result = measure(serving(spec, streams=4, boundary_points=1, point_s=5.0)).measurements
    assert (result.arrivals, result.streams) == ("closed_loop", 4)
    assert result.server.running_peak == 4
    assert [len(p.targets) for p in result.boundary.points] == [1]


def test_without_a_search_there_is_none_and_without_a_percentile_a_reason() -> None:
    few = builders.make_workload(requests=10, request_rate_per_s=5.0)
    spec = make_spec(workload=few)
    none = measure(serving(spec, boundary_points=0)).measurements
    assert (none.boundary, none.boundary_reason) == (None, None)
    mean = (SlaTarget(metric="ttft_s", statistic="mean", limit=1.0),)
    why = measure(serving(spec, targets=mean)).measurements
    assert why.boundary is None
    assert "percentile" in why.boundary_reason


def test_the_plan_asks_for_it_and_says_how_long_it_takes() -> None:
    device = builders.make_device("gpu", name="simulated")
    plain, searched = (
        planner.plan(make_spec(boundary=asked), shape=None, device=device).trials[0]
        for asked in (False, True)
    )
    assert isinstance(searched.config, ServeConfig)
    assert searched.config.boundary_points > 0
    assert searched.config.targets == make_spec().targets
    assert plain.config == ServeConfig(streams=8, point_s=searched.config.point_s)
    assert plain.estimate_s < searched.estimate_s <= 10
    with pytest.raises(ValidationError, match="percentile"):
        make_spec(boundary=True, targets=())


def test_other_machines_and_experiments_are_refused() -> None:
    with pytest.raises(AgentError, match="knows"):
        measure(trial_spec(make_spec(), model=SimulatedModel(name="abacus")))
    with pytest.raises(AgentError, match="baseline, serve and verify"):
        measure(trial_spec(make_spec(), config=KvCacheConfig()))


def test_a_verification_gives_both_sides_the_same_requests() -> None:
    config = VerifyConfig(candidate=EngineSettings(), pairs=5, requests_per_run=20)
    runs = measure(trial_spec(make_spec(), config=config)).measurements.runs
    assert [run.side for run in runs[:4]] == ["a", "b", "b", "a"]
    first, second = runs[0].requests, runs[1].requests
    assert [r.input_tokens for r in first] == [r.input_tokens for r in second]
    assert [r.intended_s for r in first] == [r.intended_s for r in second]


@pytest.mark.parametrize(
    "fields",
    [
        {"engine": "transformers"},
        {"model": builders.make_study_spec().model},
        {"goal": "diagnose"},
        {"profile": True},
    ],
)
def test_engine_and_model_must_fit(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        make_spec(**fields)


def test_an_engine_in_process_has_no_scheduler_to_set() -> None:
    with pytest.raises(ValidationError, match="max_running"):
        builders.make_study_spec(current=EngineSettings(max_running=4))


def test_what_a_simulator_has_not_is_no_zero(finished: StudyEvidence) -> None:
    first = finished.trials[0]
    result = first.measured(BaselineResult)
    assert result is not None
    assert result.cold is None
    assert phase_lines(first) == ()
    verdict = study_verdict(finished, ())
    told = " ".join(
        [
            *method_lines(finished),
            *limit_lines(finished, verdict),
            *(f"{name} {text}" for name, text in environment_lines(finished)),
        ]
    )
    assert "warm-up" not in told
    assert "Model as loaded" not in told
    assert "Host" not in told
    assert told.count("Simulated: no number") == 1
    assert {name: note for name, _, note in quantity_lines(first)}["Peak memory"] == (
        "share of the simulated device"
    )
