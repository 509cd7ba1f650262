from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.measures import baselines
from advisor.presets import PRESETS
from advisor.rules.engine import evaluate
from advisor.studies import diagnosis
from advisor.studies.intake import able
from advisor.studies.planner import Plan, next_trials, phase_of, plan, settings_text
from advisor.studies.timing import Timing, about
from gpuagent.wire import EngineSettings, LengthSpec, StudySpec
from gpuagent.wire.agent import InventoryModel
from gpuagent.wire.parallel import TensorParallelConfig
from gpuagent.wire.trial import BaselineConfig, KvCacheConfig, ProfileConfig, VerifyConfig
from tests.builders import (
    make_baseline_result,
    make_current,
    make_device,
    make_evidence,
    make_failure,
    make_kv_trial,
    make_shape,
    make_study_spec,
    make_trial,
    make_validity,
    make_variant,
    make_verification,
    make_workload,
    trial_id,
)
from tests.factories import make_hello

CPU, GPU = make_device(), make_device("gpu")


def planned(spec: StudySpec | None = None, device=CPU, **shape) -> Plan:  # type: ignore[no-untyped-def]
    return plan(spec or make_study_spec(), shape=make_shape(**shape), device=device)


def dtypes(found: Plan) -> list[str]:
    return [t.settings.dtype for t in found.trials if t.role == "variant"]


# --- the first plan ----------------------------------------------------------------------------


def test_current_first_then_diagnosis_then_other_dtypes() -> None:
    found = planned()
    assert [t.role for t in found.trials] == ["current", "diagnosis", "variant"]
    assert found.trials[0].settings == EngineSettings(dtype="bfloat16")
    assert dtypes(found) == ["float32"]
    assert found.trials[2].title == "float32 instead of bfloat16"
    assert all(trial.reason and trial.estimate_s > 0 for trial in found.trials)
    assert found.estimate_s == pytest.approx(sum(t.estimate_s for t in found.trials))


@pytest.mark.parametrize(
    ("current", "device", "expected"),
    [
        ("float32", CPU, ["bfloat16"]),
        ("auto", CPU, ["float32"]),
        ("bfloat16", GPU, ["float16", "float32"]),
        ("float32", GPU, ["bfloat16", "float16"]),
    ],
)
def test_dtypes_follow_the_device_and_leave_out_the_one_in_use(  # type: ignore[no-untyped-def]
    current: str, device, expected: list[str]
) -> None:
    spec = make_study_spec(current=EngineSettings.model_validate({"dtype": current}))
    assert dtypes(planned(spec, device)) == expected


def test_a_cache_that_is_off_gets_a_trial_with_it_on() -> None:
    spec = make_study_spec(current=EngineSettings(dtype="bfloat16", kv_cache=False))
    trials = planned(spec).trials
    assert any(t.role == "variant" and t.settings.kv_cache for t in trials)


def test_eager_attention_gets_a_trial_with_sdpa() -> None:
    spec = make_study_spec(current=EngineSettings(attention="eager"))
    assert "sdpa" in [t.settings.attention for t in planned(spec).trials]


def test_a_profile_is_planned_when_asked_for_and_kept_before_variants() -> None:
    assert not any(isinstance(t.config, ProfileConfig) for t in planned().trials)
    spec = make_study_spec(profile=True)
    (trial,) = [t for t in planned(spec).trials if isinstance(t.config, ProfileConfig)]
    assert trial.role == "diagnosis"
    assert trial.settings == spec.current
    assert trial.config.input_tokens <= 512
    tight = make_study_spec(profile=True, budget_s=planned(spec).trials[0].estimate_s + 60)
    kept = [t.config.experiment for t in planned(tight).trials]
    assert "profile" in kept
    assert len(kept) < len(planned(spec).trials)


def test_a_variant_changes_one_knob() -> None:
    spec = make_study_spec(current=EngineSettings(kv_cache=False, attention="eager"))
    for trial in planned(spec).trials:
        if trial.role == "variant":
            assert len(spec.current.differences(trial.settings)) == 1


def test_the_budget_drops_the_least_valuable_and_says_so() -> None:
    roomy = planned(make_study_spec(budget_s=7200), GPU)
    tight = planned(make_study_spec(budget_s=roomy.estimate_s * 0.75), GPU)
    assert "float32" in dtypes(roomy)
    assert "float32" not in dtypes(tight)
    assert any(note.startswith("Left out: float32 instead of bfloat16") for note in tight.notes)
    assert tight.trials[0].role == "current"


def test_a_budget_that_holds_nothing_keeps_the_current_settings_and_warns() -> None:
    found = planned(make_study_spec(budget_s=20))
    assert [t.role for t in found.trials] == ["current"]
    assert "more than the budget" in found.notes[-1]


def test_what_does_not_fit_in_memory_is_left_out_by_name() -> None:
    small = make_device(memory_bytes=500 * 1024**2)
    found = planned(device=small)
    assert dtypes(found) == []
    assert "It needs 517" in found.notes[0]
    tiny = planned(device=make_device(memory_bytes=100 * 1024**2))
    assert tiny.notes[0].startswith("The current settings may not fit")
    assert tiny.trials[0].role == "current"


def test_grid_and_contexts_stay_within_the_model() -> None:
    spec = make_study_spec(workload=make_workload(input_tokens=LengthSpec(mean=5000)))
    for trial in planned(spec, GPU, max_position_embeddings=512).trials:
        if isinstance(trial.config, BaselineConfig):
            assert max(trial.config.input_tokens) + trial.config.decode_steps <= 512
        if isinstance(trial.config, KvCacheConfig):
            assert max(trial.config.context_tokens) + trial.config.decode_steps <= 512


def test_the_diagnosis_reaches_a_context_that_says_something() -> None:
    (config,) = [t.config for t in planned().trials if isinstance(t.config, KvCacheConfig)]
    assert max(config.context_tokens) >= 256


def test_slow_devices_get_smaller_grids() -> None:
    big = {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    }
    spec = make_study_spec(workload=make_workload(input_tokens=LengthSpec(mean=1024)))
    on_cpu, on_gpu = planned(spec, CPU, **big), planned(spec, GPU, **big)
    cells = [
        len(p.trials[0].config.batch_sizes) * len(p.trials[0].config.input_tokens)  # type: ignore[union-attr]
        for p in (on_cpu, on_gpu)
    ]
    assert cells[0] < cells[1]


def test_without_a_shape_there_is_still_a_plan() -> None:
    found = plan(make_study_spec(), shape=None, device=CPU)
    assert found.trials[0].estimate_s > 0


@pytest.mark.parametrize("preset", PRESETS)
def test_small_presets_finish_in_minutes(preset: str) -> None:
    chosen = PRESETS[preset]  # type: ignore[index]
    spec = make_study_spec(
        workload=chosen.workload_for(small=True), targets=chosen.targets_for(small=True)
    )
    assert planned(spec).estimate_s < 900


@settings(max_examples=60, deadline=None)
@given(
    budget_s=st.floats(1, 1e5),
    prompt=st.integers(1, 100_000),
    answer=st.integers(1, 10_000),
    context=st.integers(8, 200_000),
    kind=st.sampled_from(["cpu", "gpu"]),
    dtype=st.sampled_from(["auto", "float32", "bfloat16", "float16"]),
    kv_cache=st.booleans(),
)
def test_any_study_gets_a_plan_that_starts_with_the_current_settings(  # type: ignore[no-untyped-def]
    budget_s, prompt, answer, context, kind, dtype, kv_cache
) -> None:
    current = EngineSettings.model_validate({"dtype": dtype, "kv_cache": kv_cache})
    spec = make_study_spec(
        budget_s=budget_s,
        current=current,
        workload=make_workload(
            input_tokens=LengthSpec(mean=prompt), output_tokens=LengthSpec(mean=answer)
        ),
    )
    found = planned(spec, make_device(kind), max_position_embeddings=context)
    assert found.trials[0].settings == current
    assert len({(t.settings, t.config.experiment) for t in found.trials}) == len(found.trials)
    assert found.estimate_s <= budget_s or len(found.trials) == 1


# --- next trials -------------------------------------------------------------------------------


def following(*trials, **fields):  # type: ignore[no-untyped-def]
    evidence = make_evidence(*trials, **{"finished": False, **fields})
    return next_trials(evidence, evaluate(evidence))


def test_the_best_other_configuration_is_verified_once() -> None:
    (trial,) = following(make_current(), make_kv_trial(), make_variant())
    assert trial.role == "verification"
    assert trial.settings == EngineSettings(dtype="bfloat16")
    assert isinstance(trial.config, VerifyConfig)
    assert trial.config.candidate == EngineSettings(dtype="float32")
    assert trial.config.pairs >= 6
    assert trial.config.perplexity_tokens > 0
    assert "Trial 3 looks better" in trial.reason
    assert following(make_current(), make_variant(), make_verification()) == ()


def test_a_refuted_candidate_makes_way_for_the_next_best() -> None:
    third = make_variant("float16", ordinal=5, itl_s=0.04, ttft_s=0.1)
    refuted = make_verification(ratio=1.3, ttft_ratio=1.3)
    (trial,) = following(make_current(), make_variant(), refuted, third)
    assert isinstance(trial.config, VerifyConfig)
    assert trial.config.candidate == EngineSettings(dtype="float16")


def test_a_failed_verification_is_not_repeated() -> None:
    failed = make_trial(
        failure=make_failure(),
        ordinal=4,
        role="verification",
        config=VerifyConfig(candidate=EngineSettings(dtype="float32")),
    )
    assert following(make_current(), make_variant(), failed) == ()


@pytest.mark.parametrize(
    "trials",
    [
        (),
        (make_current(),),
        (make_current(), make_variant(itl_s=0.06, ttft_s=0.15)),
        (make_current(), make_variant(perplexity=30.0)),
        (make_trial(failure=make_failure()), make_variant()),
        (make_current(), make_variant(), make_trial(state="running", ordinal=4)),
    ],
)
def test_nothing_follows_without_a_better_candidate(trials) -> None:  # type: ignore[no-untyped-def]
    assert following(*trials) == ()


def test_an_invalid_baseline_is_not_compared_with() -> None:
    current = make_current()
    assert current.result is not None
    invalid = make_trial(current.result.measurements, validity=make_validity("invalid"))
    assert following(invalid, make_variant()) == ()


def test_finished_cancelled_and_agentless_studies_end() -> None:
    trials = (make_current(), make_variant())
    assert following(*trials, finished=True) == ()
    assert following(*trials, cancelled=True) == ()
    assert following(*trials, device=None) == ()


def test_the_rest_of_the_budget_sizes_the_verification() -> None:
    trials = (make_current(), make_variant())
    (roomy,) = following(*trials)
    (tight,) = following(*trials, spec=make_study_spec(budget_s=140))
    assert isinstance(roomy.config, VerifyConfig)
    assert isinstance(tight.config, VerifyConfig)
    assert tight.config.requests_per_run < roomy.config.requests_per_run
    assert following(*trials, spec=make_study_spec(budget_s=90)) == ()


# --- phases ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trials", "phase"),
    [
        ((), "understand"),
        ((make_trial(), make_trial(ordinal=2, role="variant")), "baseline"),
        ((make_current(), make_trial(ordinal=2, role="diagnosis")), "diagnose"),
        ((make_current(), make_trial(ordinal=2, role="variant", state="running")), "search"),
        ((make_current(), make_trial(ordinal=2, role="verification", state="leased")), "verify"),
        ((make_current(),), "done"),
    ],
)
def test_the_phase_is_the_earliest_with_open_work(trials, phase: str) -> None:  # type: ignore[no-untyped-def]
    assert phase_of(make_evidence(*trials, finished=False)) == phase


def test_finished_and_cancelled_studies_are_done() -> None:
    assert phase_of(make_evidence(make_current())) == "done"
    assert phase_of(make_evidence(make_trial(), finished=False, cancelled=True)) == "done"


# --- words and estimates -----------------------------------------------------------------------


def test_settings_are_named_by_what_differs_from_the_defaults() -> None:
    assert settings_text(EngineSettings(), make_shape()) == "bfloat16"
    settings = EngineSettings(dtype="float32", kv_cache=False, attention="eager", threads=2)
    assert settings_text(settings) == "float32, cache off, eager, 2 threads"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (3, "about 10\u00a0s"),
        (42, "about 40\u00a0s"),
        (240, "about 4\u00a0min"),
        (7200, "about 2\u00a0h"),
    ],
)
def test_estimates_are_rounded(seconds: float, text: str) -> None:
    assert about(seconds) == text


def test_decoding_without_a_cache_is_estimated_as_prefill() -> None:
    on = Timing(make_shape(), CPU, EngineSettings())
    off = Timing(make_shape(), CPU, EngineSettings(kv_cache=False))
    assert off.step_s(512) == pytest.approx(on.prefill_s(512))
    assert off.request_s(make_workload()) > on.request_s(make_workload())


def test_a_rate_bounds_the_time_of_the_requests() -> None:
    slow = make_workload(request_rate_per_s=0.1, requests=60)
    assert Timing(make_shape(), GPU, EngineSettings()).requests_s(slow) == pytest.approx(600)


def test_two_models_that_do_not_fit_together_are_not_verified() -> None:
    trials = (make_current(), make_variant())
    assert following(*trials, device=make_device(memory_bytes=850 * 1024**2)) == ()
    assert len(following(*trials, device=make_device(memory_bytes=900 * 1024**2))) == 1


def test_at_a_rate_the_arrivals_size_the_verification() -> None:
    workload = make_workload(request_rate_per_s=10)
    trials = [
        make_trial(
            make_baseline_result(dtype, itl_s=itl_s, ttft_s=itl_s),
            ordinal=ordinal,
            role=role,
            settings=EngineSettings.model_validate({"dtype": dtype}),
            workload=workload,
        )
        for ordinal, role, dtype, itl_s in (
            (1, "current", "bfloat16", 0.06),
            (3, "variant", "float32", 0.03),
        )
    ]
    (trial,) = following(*trials, spec=make_study_spec(workload=workload))
    assert isinstance(trial.config, VerifyConfig)
    assert trial.config.requests_per_run == 20


# --- measuring again ---------------------------------------------------------------------------

BUSY = make_validity("invalid", "Other processes used 70% of the processor", "other_cpu_load")
WRONG = make_validity("invalid", "2 of 60 requests failed", "requests_completed")


def again_of(trial, ordinal: int, **changes):  # type: ignore[no-untyped-def]
    return replace(
        trial,
        ordinal=ordinal,
        trial_id=trial_id(ordinal),
        result=trial.result.model_copy(update={"validity": make_validity(), **changes}),
    )


def invalid(trial, validity=BUSY):  # type: ignore[no-untyped-def]
    return replace(trial, result=trial.result.model_copy(update={"validity": validity}))


def test_a_disturbed_measurement_is_taken_once_more() -> None:
    first, variant = make_current(), invalid(make_variant())
    (trial,) = following(first, variant)
    assert (trial.role, trial.settings, trial.config) == (
        "variant",
        variant.settings,
        variant.spec.config,
    )
    assert trial.reason == "Trial 3 is invalid: other processes used 70% of the processor."
    (after,) = following(first, variant, again_of(variant, 4))
    assert after.role == "verification"
    twice = again_of(variant, 4, validity=BUSY)
    assert following(first, variant, twice) == ()


def test_the_current_settings_come_before_everything_else() -> None:
    current, variant = invalid(make_current()), invalid(make_variant())
    (trial,) = following(current, invalid(make_kv_trial()), variant)
    assert trial.role == "current"
    assert following(current, variant, again_of(current, 4, validity=BUSY)) == ()
    better = again_of(current, 4)
    assert [t.role for t in following(current, variant, better)] == ["variant"]
    evidence = make_evidence(current, make_variant(), better)
    assert evidence.current is better
    assert [t.ordinal for t in baselines(evidence)] == [4, 3]


def test_what_would_fail_again_is_not_repeated() -> None:
    current = invalid(make_current(), WRONG)
    assert following(current, make_variant()) == ()


def test_repeats_keep_half_of_what_is_left_for_the_verification() -> None:
    slow = replace(make_variant(), finished_at=make_variant().started_at + timedelta(seconds=500))
    spec = make_study_spec(budget_s=1000)
    assert following(make_current(), invalid(slow), spec=spec) == ()


def test_a_diagnosis_runs_every_part_beside_todays_settings_within_fifteen_minutes() -> None:
    spec = make_study_spec(goal="diagnose", budget_s=900)
    found = planned(spec)
    assert [t.config.experiment for t in found.trials] == [
        "baseline",
        "kv_cache",
        *diagnosis.EXPERIMENTS,
    ]
    assert {t.settings for t in found.trials} == {spec.current}
    assert found.estimate_s <= 900
    assert not found.notes


@pytest.mark.parametrize(
    ("count", "sizes"), [(1, None), (2, (1, 2)), (4, (1, 2, 4)), (6, (1, 2, 4))]
)
def test_a_host_with_several_gpus_tries_the_model_over_them(
    count: int, sizes: tuple[int, ...] | None
) -> None:
    spec = make_study_spec(goal="diagnose", budget_s=900)
    configs = [t.config for t in planned(spec, device=make_device("gpu", count=count)).trials]
    tried = [c.sizes for c in configs if isinstance(c, TensorParallelConfig)]
    assert tried == ([] if sizes is None else [sizes])


def test_an_agent_that_cannot_split_is_not_asked_to() -> None:
    device = make_device("gpu", count=2, experiments=frozenset(diagnosis.EXPERIMENTS))
    found = planned(make_study_spec(goal="diagnose", budget_s=900), device=device)
    assert all(t.config.experiment != "tensor_parallel" for t in found.trials)


@pytest.mark.parametrize(("weights", "splits"), [("gguf", False), ("safetensors", True)])
def test_gguf_files_are_not_split_over_gpus(weights: str, splits: bool) -> None:
    spec = make_study_spec(goal="diagnose", budget_s=900)
    model = InventoryModel(name=spec.model.label, weights=weights)
    device = make_device("gpu", count=2, experiments=able(make_hello(models=(model,)), spec))
    found = [t.config.experiment for t in planned(spec, device=device).trials]
    assert ("tensor_parallel" in found) is splits
    assert "kernels" in found


def test_a_short_budget_drops_the_least_of_a_diagnosis_by_name() -> None:
    found = planned(make_study_spec(goal="diagnose", budget_s=300))
    assert found.trials[0].config.experiment == "baseline"
    assert len(found.trials) < 7
    assert any("Left out: Batches" in note for note in found.notes)


def test_contexts_of_a_diagnosis_fit_the_model() -> None:
    shape = make_shape(max_position_embeddings=64)
    spec = make_study_spec(
        goal="diagnose", workload=make_workload(input_tokens=LengthSpec(mean=30))
    )
    found = plan(spec, shape=shape, device=make_device())
    configs = {t.config.experiment: t.config for t in found.trials}
    assert max(configs["attention"].context_tokens) <= 64
    assert configs["batching"].chunked_input_tokens < 64
    assert configs["kernels"].input_tokens <= 32
