"""Studies of real servers: what is planned, in which order, and what stays as it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from advisor.candidates import best_candidate
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.studies.planner import next_trials, phase_of, plan
from advisor.studies.searching import defaults_of, loss_of, space_of
from gpuagent.wire import EngineSettings, StudySpec
from gpuagent.wire.measure import Quantity
from gpuagent.wire.robustness import RobustnessConfig
from gpuagent.wire.serving import EngineFacts, RateBoundary, ServeConfig, ServedEngine
from gpuagent.wire.trial import ServerCounters, ServeResult, VerifyConfig
from tests.builders import (
    make_baseline_result,
    make_device,
    make_evidence,
    make_failure,
    make_requests,
    make_robustness,
    make_shape,
    make_study_spec,
    make_trial,
    make_workload,
)

CPU, GPU = make_device(), make_device("gpu")
BAD = EngineSettings(max_running=1, max_batched_tokens=64, cuda_graphs=False)


def spec(**overrides: Any) -> StudySpec:
    wanted = {"engine": "vllm", "current": BAD, "budget_s": 1500.0, **overrides}
    return make_study_spec(**wanted)


def served(mean_s: float = 0.05, rate: float | None = None, **counters: Any) -> ServeResult:
    plain = make_baseline_result(arrivals="closed_loop").model_dump()
    shown = {
        "steps": 900, "preemptions": 0, "running_peak": 1, "kv_peak_frac": 0.1, "full_frac": 0.9,
        "starved_frac": 0.0, "eager_frac": None, "mixed_frac": None, "shares_of": "samples",
        "samples": 30,
    } | counters  # fmt: skip
    boundary = None
    if rate is not None:
        boundary = RateBoundary(
            rate_per_s=rate, low=rate, high=rate, proven_per_s=None, needed_requests=None,
            confidence=0.95, reason="bracketed", point_s=15, points=(),
        )  # fmt: skip
    return ServeResult.model_validate(
        plain
        | {
            "experiment": "serve",
            "cells": (),
            "server": ServerCounters.model_validate(shown),
            "served": ServedEngine(
                engine="vllm", version="0.32.0", ready_s=Quantity(value=50.0), facts=EngineFacts()
            ),
            "boundary": boundary,
        }
    )


def current(**more: Any) -> TrialEvidence:
    return make_trial(served(**more), ordinal=1, role="current", settings=BAD)


def evidence(*trials: TrialEvidence, **overrides: Any) -> StudyEvidence:
    return make_evidence(*trials, spec=spec(**overrides), finished=False)


def test_the_current_settings_are_served_first_and_streams_follow_from_the_scenario() -> None:
    found = plan(spec(), shape=None, device=CPU)
    assert [t.role for t in found.trials] == ["current"]
    assert found.trials[0].config == ServeConfig(streams=4, point_s=15.0)
    assert "4 requests are kept in flight" in found.notes[0]
    rated = plan(spec(workload=make_workload(request_rate_per_s=2.0)), shape=None, device=CPU)
    (note,) = rated.notes
    assert note.startswith("At the end the server is misused on purpose (about 3")
    assert plan(spec(robustness=False), shape=None, device=CPU).notes == found.notes[:1]


def test_a_boundary_takes_the_latency_targets_alone() -> None:
    config = plan(spec(boundary=True), shape=None, device=GPU).trials[0].config
    assert isinstance(config, ServeConfig)
    assert config.boundary_points > 0
    assert config.targets
    assert all(target.percentile is not None for target in config.targets)


def test_the_search_goes_on_with_what_the_counters_show() -> None:
    found = next_trials(evidence(current()), ())
    assert [t.role for t in found] == ["variant"]
    changed = BAD.differences(found[0].settings)
    assert set(changed) <= {"max_running", "max_batched_tokens", "chunked_prefill"}
    assert isinstance(found[0].config, ServeConfig)


def test_on_a_cpu_nothing_of_a_gpu_is_tried() -> None:
    on_cpu, on_gpu = space_of(spec(), CPU, None), space_of(spec(), GPU, None)
    for knob in ("memory_share_frac", "kv_dtype", "cuda_graphs"):
        assert len(on_cpu.values[knob]) == 1
        assert len(on_gpu.values[knob]) > 1
    assert defaults_of(spec(), CPU)["max_running"] == 128


def test_a_refused_setting_teaches_and_the_search_goes_on() -> None:
    refused = make_trial(
        None, ordinal=2, role="variant", state="failed", failure=make_failure("config_error"),
        settings=BAD.model_copy(update={"max_running": 256}),
    )  # fmt: skip
    found = next_trials(evidence(current(), refused), ())
    assert found
    assert found[0].settings != refused.settings


def test_the_budget_ends_the_search() -> None:
    assert next_trials(evidence(current(), budget_s=60.0), ()) == ()


def test_an_endpoint_is_measured_and_no_more() -> None:
    asked = spec(engine="openai", endpoint="prod", current=EngineSettings())
    found = plan(asked, shape=None, device=CPU)
    assert len(found.trials) == 1
    done = make_trial(served(), ordinal=1, role="current", settings=EngineSettings())
    assert next_trials(make_evidence(done, spec=asked, finished=False), ()) == ()


def test_the_best_of_a_boundary_is_the_highest_rate_and_is_verified() -> None:
    better = BAD.model_copy(update={"max_running": 16, "max_batched_tokens": 2048})
    trials = [current(rate=1.0)]
    trials += [
        make_trial(
            served(rate=4.0, full_frac=0.0, running_peak=4),
            ordinal=2 + at,
            role="variant",
            settings=better.model_copy(update={"max_batched_tokens": 2048 + at}),
        )
        for at in range(14)
    ]
    found = next_trials(evidence(*trials, boundary=True, budget_s=5000.0), ())
    assert [t.role for t in found] == ["verification"]
    config = found[0].config
    assert isinstance(config, VerifyConfig)
    assert config.streams == 4
    assert config.candidate.max_running == 16


def ended_search(**more: Any) -> list[TrialEvidence]:
    """So many trials that the search is over; none is better than the current settings."""
    same = BAD.model_copy(update={"max_running": 2})
    tried = [
        make_trial(
            served(mean_s=0.05, **more),
            ordinal=2 + at,
            role="variant",
            settings=same.model_copy(update={"max_batched_tokens": 64 + at}),
        )
        for at in range(14)
    ]
    return [current(**more), *tried]


def test_the_misuse_comes_last_once_and_says_why() -> None:
    trials = ended_search()
    (found,) = next_trials(evidence(*trials), ())
    assert (found.role, found.settings) == ("diagnosis", BAD)
    assert found.title == "Robustness of the current settings"
    assert isinstance(found.config, RobustnessConfig)
    assert found.config.burst == 8
    assert 60 < found.estimate_s < 300
    assert "runs last" in found.reason
    waiting = make_trial(ordinal=16, role="diagnosis", config=found.config, settings=BAD)
    assert phase_of(evidence(*trials, waiting)) == "verify"
    done = make_trial(make_robustness(), ordinal=16, role="diagnosis", settings=BAD)
    assert next_trials(evidence(*trials, done), ()) == ()


@pytest.mark.parametrize(
    "changed", [{"robustness": False}, {"budget_s": 100.0}], ids=["unwanted", "no time"]
)
def test_a_misuse_that_is_not_wanted_or_does_not_fit_is_left_out(changed: dict[str, Any]) -> None:
    assert next_trials(evidence(*ended_search(), **changed), ()) == ()


def test_an_agent_that_cannot_misuse_is_not_asked_to() -> None:
    old = make_device(experiments=frozenset({"serve", "verify"}))
    found = make_evidence(*ended_search(), spec=spec(), finished=False, device=old)
    assert next_trials(found, ()) == ()


def test_settings_without_a_valid_measurement_are_not_misused() -> None:
    failed = make_trial(None, ordinal=1, role="current", failure=make_failure(), settings=BAD)
    assert next_trials(evidence(failed, engine="transformers_serve", current={}), ()) == ()


def test_an_endpoint_is_misused_only_where_that_is_asked_for() -> None:
    asked = spec(engine="openai", endpoint="prod", current=EngineSettings(), robustness=True)
    done = make_trial(served(), ordinal=1, role="current", settings=EngineSettings())
    (found,) = next_trials(make_evidence(done, spec=asked, finished=False), ())
    assert isinstance(found.config, RobustnessConfig)
    assert "misused on purpose" in plan(asked, shape=None, device=CPU).notes[-1]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"current": EngineSettings(kv_cache=False)}, "has no setting kv_cache"),
        ({"goal": "diagnose"}, "nothing inside to diagnose"),
        ({"endpoint": "x"}, "go together"),
        ({"engine": "openai"}, "go together"),
        ({"engine": "transformers", "current": EngineSettings(), "boundary": True}, "a server"),
        ({"boundary": True, "targets": ()}, "needs a latency target"),
        ({"engine": "transformers", "current": EngineSettings(), "robustness": True}, "a server"),
        ({"model": {"kind": "config", "name": "m", "config": {}}}, "not a bare config"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_the_reason(wrong: dict[str, Any], words: str) -> None:
    payload = spec().model_dump(mode="json") | {
        key: value.model_dump() if isinstance(value, EngineSettings) else value
        for key, value in wrong.items()
    }
    with pytest.raises(ValidationError, match=words):
        StudySpec.model_validate(payload)


def test_a_cancelled_configuration_is_not_proposed_again() -> None:
    proposed = next_trials(evidence(current()), ())[0]
    stopped = make_trial(ordinal=2, role="variant", settings=proposed.settings, state="cancelled")
    stopped = replace(
        stopped, spec=stopped.spec.model_copy(update={"config": ServeConfig(streams=4)})
    )
    again = next_trials(evidence(current(), stopped), ())
    assert again
    assert again[0].settings != proposed.settings


def test_the_load_of_a_day_is_that_of_a_server_and_not_nothing() -> None:
    assert spec(day_req_s=(0, 2.5)).day_req_s == (0, 2.5)
    for wrong in (
        {"engine": "transformers", "current": EngineSettings(), "day_req_s": (1, 2)},
        {"day_req_s": (0, 0)},
        {"day_req_s": (1,)},
        {"day_req_s": (1, -2)},
        {"day_req_s": (1,) * 289},
    ):
        with pytest.raises(ValidationError, match="day_req_s"):
            spec(**wrong)


# --- several GPUs ------------------------------------------------------------------------------

FOUR_GPUS = replace(GPU, count=4)


def test_degrees_are_those_that_divide_the_heads_and_that_the_agent_has_gpus_for() -> None:
    shape = make_shape()
    assert (shape.heads, shape.kv_heads) == (9, 3)
    values = space_of(spec(), FOUR_GPUS, shape).values
    assert (values["tensor_parallel"], values["data_parallel"]) == ((1, 3), (1, 2, 4))
    piped = spec(current=BAD.model_copy(update={"pipeline_parallel": 2}))
    assert space_of(piped, FOUR_GPUS, shape).values["data_parallel"] == (1, 2)
    for alone in (space_of(spec(), GPU, shape), space_of(spec(), CPU, shape)):
        assert (alone.values["tensor_parallel"], alone.values["data_parallel"]) == ((1,), (1,))
    assert space_of(spec(), FOUR_GPUS, None).values["tensor_parallel"] == (1,)


def test_fewer_gpus_than_today_are_tried_only_for_the_highest_rate() -> None:
    split = BAD.model_copy(update={"tensor_parallel": 3})
    shape = make_shape()
    today = space_of(spec(current=split), FOUR_GPUS, shape)
    assert today.values["tensor_parallel"] == (3,)
    rated = space_of(spec(current=split, boundary=True), FOUR_GPUS, shape)
    assert rated.values["tensor_parallel"] == (1, 3)
    assert defaults_of(spec(current=split), FOUR_GPUS)["tensor_parallel"] == 3


def split_trial(ordinal: int, degree: int, mean_s: float, **more: Any) -> TrialEvidence:
    return make_trial(
        served(mean_s, **more),
        ordinal=ordinal,
        role="variant",
        settings=BAD.model_copy(update={"tensor_parallel": degree}),
    )


def test_the_highest_rate_counts_per_gpu() -> None:
    asked: dict[str, Any] = {"boundary": True, "budget_s": 5000.0}
    one, three = current(rate=2.0), split_trial(2, 3, 0.05, rate=5.0)
    found = make_evidence(one, three, spec=spec(**asked), device=FOUR_GPUS, finished=False)
    assert loss_of(found, one) == pytest.approx(1 / 2)
    assert loss_of(found, three) == pytest.approx(3 / 5)
    best = best_candidate(found)
    assert best is not None
    assert best.trial is one
    faster = split_trial(2, 3, 0.05, rate=8.0)
    best = best_candidate(replace(found, trials=(one, faster)))
    assert best is not None
    assert best.trial is faster


def test_more_gpus_do_not_replace_settings_that_meet_every_target() -> None:
    def trial(ordinal: int, ttft_s: float, settings: EngineSettings) -> TrialEvidence:
        requests = make_requests(400, ttft_s=ttft_s, itl_s=ttft_s / 4)
        role = "current" if settings == BAD else "variant"
        result = served().model_copy(update={"requests": requests})
        return make_trial(result, ordinal=ordinal, role=role, settings=settings)

    def best(now_s: float, degree: int) -> TrialEvidence:
        split = BAD.model_copy(update={"tensor_parallel": degree})
        trials = (trial(1, now_s, BAD), trial(2, 0.01, split))
        found = best_candidate(make_evidence(*trials, spec=spec(), device=FOUR_GPUS))
        assert found is not None
        return found.trial

    assert best(0.1, 3).role == "current"
    assert best(0.1, 1).role == "variant"
    assert best(5.0, 3).role == "variant"
