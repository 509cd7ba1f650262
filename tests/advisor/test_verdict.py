from __future__ import annotations

import ast

import pytest

from advisor.evidence import StudyEvidence
from advisor.rules.engine import evaluate
from advisor.verdict import StudyVerdict, settings_snippet, study_verdict
from gpuagent.wire import EngineSettings, HubModel, LocalModel, SlaTarget
from tests.builders import (
    ITL_P95,
    TTFT_P95,
    make_baseline_result,
    make_config_model,
    make_current,
    make_evidence,
    make_failure,
    make_kv_trial,
    make_requests,
    make_study_spec,
    make_trial,
    make_validity,
    make_variant,
    make_verification,
    make_workload,
)

FLOAT32 = EngineSettings(dtype="float32")
NB = "\u00a0"


def verdict_of(evidence: StudyEvidence) -> StudyVerdict:
    return study_verdict(evidence, evaluate(evidence))


# --- finished ----------------------------------------------------------------------------------


def test_a_verified_better_configuration_is_met_and_recommended() -> None:
    found = verdict_of(
        make_evidence(make_current(), make_kv_trial(), make_variant(), make_verification(ratio=0.5))
    )
    assert found.status == "met"
    assert found.sentence == (
        f"Trial 3 meets both targets one request at a time: ITL p95 31.5{NB}ms instead of "
        f"62.9{NB}ms"
    )
    assert found.recommended == FLOAT32
    assert found.changes == {"dtype": ("bfloat16", "float32")}
    assert found.verification == "verified"
    assert found.lede.startswith(
        "Change precision from bfloat16 to float32. Verified by A/B: ITL −50"
    )
    assert found.best is not None
    assert found.best.ordinal == 3
    assert [s.verdict for s in found.targets] == ["met", "met"]
    assert [s.verdict for s in found.current_targets] == ["met", "missed"]
    assert found.noise_frac == pytest.approx(0.02)
    assert (found.known, found.unknown) == ((), ())


def test_an_unverified_recommendation_says_so() -> None:
    found = verdict_of(make_evidence(make_current(), make_variant()))
    assert found.verification == "measured_once"
    assert "not verified by an A/B" in found.lede
    assert found.noise_frac == pytest.approx(0.05)


def test_current_settings_that_meet_everything_are_kept() -> None:
    found = verdict_of(make_evidence(make_current(itl_s=0.03), make_variant(itl_s=0.06)))
    assert found.status == "met"
    assert found.sentence == (
        f"The current settings meet both targets one request at a time: TTFT p95 156{NB}ms of "
        f"200{NB}ms"
    )
    assert found.recommended is None
    assert found.changes == {}
    assert found.verification == "none"


def test_an_improvement_is_recommended_even_where_the_targets_are_met() -> None:
    found = verdict_of(make_evidence(make_current(itl_s=0.04), make_variant(itl_s=0.02)))
    assert (found.status, found.recommended) == ("met", FLOAT32)


def test_a_missed_target_names_the_best_number() -> None:
    found = verdict_of(make_evidence(make_current(itl_s=0.09), make_variant(itl_s=0.08)))
    assert found.status == "missed"
    assert found.sentence == (
        f"No configuration meets ITL p95 ≤ 50{NB}ms: the best measured 84.0{NB}ms"
    )


def test_a_single_configuration_that_misses_is_called_the_current_one() -> None:
    found = verdict_of(make_evidence(make_current(itl_s=0.09)))
    assert found.sentence.startswith(f"The current settings miss ITL p95 ≤ 50{NB}ms: measured")


@pytest.mark.parametrize("engine", ["simulated", "imported"])
def test_what_no_agent_measured_is_not_called_measured(engine: str) -> None:
    spec = make_study_spec().model_copy(update={"engine": engine})
    alone = verdict_of(make_evidence(make_current(itl_s=0.09), spec=spec))
    assert ": came to 94" in alone.sentence
    both = verdict_of(make_evidence(make_current(itl_s=0.09), make_variant(itl_s=0.08), spec=spec))
    assert "measured" not in alone.sentence + both.sentence
    assert both.sentence.endswith(f"the best came to 84.0{NB}ms")


def test_missed_without_a_number_counts_requests() -> None:
    requests = make_requests(40, ttft_s=0.3, itl_s=0.03)
    found = verdict_of(
        make_evidence(make_current(requests=requests), spec=make_study_spec(targets=(TTFT_P95,)))
    )
    assert found.sentence.endswith("had 40 of 40 over the limit")


def test_open_targets_are_not_proven_with_the_number_that_decides() -> None:
    found = verdict_of(make_evidence(make_current(n_requests=30, itl_s=0.03)))
    assert found.status == "not_proven"
    assert found.sentence == (f"Not proven: TTFT p95 ≤ 200{NB}ms needs 59 requests (30 so far)")


def test_a_rate_that_was_not_measured_is_not_proven() -> None:
    spec = make_study_spec(workload=make_workload(request_rate_per_s=12))
    found = verdict_of(make_evidence(make_current(itl_s=0.03), spec=spec))
    assert found.status == "not_proven"
    assert f"the target is for 12{NB}req/s" in found.sentence


def test_a_rate_that_was_measured_is_named() -> None:
    spec = make_study_spec(workload=make_workload(request_rate_per_s=12), targets=(TTFT_P95,))
    requests = make_requests(1500, itl_s=0.01, rate_per_s=12)
    current = make_current(requests=requests, arrivals="poisson")
    assert f" at 12{NB}req/s" in verdict_of(make_evidence(current, spec=spec)).sentence


def test_energy_without_a_counter_leaves_the_study_unproven() -> None:
    goal = SlaTarget(metric="joules_per_token", statistic="mean", limit=2.0)
    spec = make_study_spec(targets=(TTFT_P95, goal))
    found = verdict_of(make_evidence(make_current(), spec=spec))
    assert found.status == "not_proven"
    assert "is not measured, because no energy counter" in found.sentence


def test_a_contradicted_candidate_is_not_recommended() -> None:
    worse = make_verification(ratio=1.3, ttft_ratio=1.3)
    found = verdict_of(make_evidence(make_current(), make_variant(), worse))
    assert found.recommended is None
    assert found.verification == "contradicted"
    assert found.status == "missed"
    assert found.sentence.startswith("No confirmed configuration meets ITL p95")
    assert "Trial 3: Contradicted by A/B" in found.lede


def test_an_ab_without_difference_withdraws_the_recommendation() -> None:
    equal = make_verification(ratio=1.0, ttft_ratio=1.0)
    found = verdict_of(make_evidence(make_current(), make_variant(), equal))
    assert (found.recommended, found.verification) == (None, "not_proven")


def test_lost_quality_in_the_ab_contradicts_however_fast() -> None:
    lossy = make_verification(ratio=0.5, perplexity_b=20.0)
    found = verdict_of(make_evidence(make_current(), make_variant(), lossy))
    assert found.verification == "contradicted"
    assert "perplexity rises by 11" in found.verification_sentence


def test_a_failed_or_invalid_ab_leaves_the_advice_measured_once() -> None:
    verify = make_verification()
    assert verify.result is not None
    failed = make_trial(
        failure=make_failure(), ordinal=4, role="verification", config=verify.spec.config
    )
    found = verdict_of(make_evidence(make_current(), make_variant(), failed))
    assert found.verification == "measured_once"
    assert "the A/B trial failed" in found.verification_sentence
    invalid = make_trial(
        verify.result.measurements,
        ordinal=4,
        role="verification",
        validity=make_validity("invalid"),
    )
    found = verdict_of(make_evidence(make_current(), make_variant(), invalid))
    assert "measurement is invalid" in found.verification_sentence


def test_prompts_of_varying_length_are_compared_in_pairs() -> None:
    workload = make_workload(output_tokens={"kind": "lognormal", "mean": 16, "p95": 40})
    verify = make_verification(ratio=0.5, ttft_ratio=0.5)
    assert verify.result is not None
    trial = make_trial(
        verify.result.measurements, ordinal=4, role="verification", workload=workload
    )
    found = verdict_of(make_evidence(make_current(), make_variant(), trial))
    assert "p = 0.031" in found.verification_sentence


def test_without_targets_a_variant_that_runs_beats_settings_that_do_not() -> None:
    failed = make_trial(failure=make_failure())
    spec = make_study_spec(targets=())
    found = verdict_of(make_evidence(failed, make_variant(), spec=spec))
    assert found.sentence == "Trial 3 gives answers; the current settings gave none"
    assert found.recommended == FLOAT32


def test_without_targets_the_gain_is_the_verdict() -> None:
    spec = make_study_spec(targets=())
    faster = verdict_of(make_evidence(make_current(), make_variant(), spec=spec))
    assert faster.status == "no_targets"
    assert faster.sentence == f"Trial 3 answers 2.0{NB}× faster than the current settings"
    same = verdict_of(make_evidence(make_current(), spec=spec))
    assert same.sentence.startswith("No change beats the current settings")


# --- no verdict --------------------------------------------------------------------------------


def test_a_cancelled_study_has_no_verdict_and_never_a_missed_target() -> None:
    evidence = make_evidence(
        make_current(itl_s=0.2), make_trial(state="cancelled", ordinal=2), cancelled=True
    )
    found = verdict_of(evidence)
    assert found.status == "no_verdict"
    assert found.sentence == "No verdict: the study was cancelled after 1 of 2 trials"
    assert "miss" not in found.sentence + found.lede
    assert found.unknown == ()


def test_a_failed_study_says_why() -> None:
    found = verdict_of(make_evidence(make_trial(failure=make_failure())))
    assert found.status == "no_verdict"
    assert found.sentence == "No verdict: the model and its cache do not fit in memory (trial 1)"
    assert found.lede.startswith("Lower batch, context or precision")


def test_a_study_of_invalid_measurements_has_no_verdict() -> None:
    trial = make_trial(make_baseline_result(), validity=make_validity("invalid"))
    found = verdict_of(make_evidence(trial))
    assert found.status == "no_verdict"
    assert "trial 1 is invalid: another process used the device" in found.sentence


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        (make_evidence(device=None), "no agent measures this study"),
        (make_evidence(make_trial(), finished=False), "0 of 1 trials have ended"),
        (
            make_evidence(make_trial(state="running"), finished=False),
            "0 of 1 trials have ended",
        ),
        (
            make_evidence(make_current(itl_s=0.06), finished=False),
            f"the current settings measured 62.9{NB}ms for ITL p95 ≤ 50{NB}ms",
        ),
        (
            make_evidence(make_current(), make_variant(), finished=False),
            "trial 3 meets both targets one request at a time, measured once",
        ),
        (
            make_evidence(make_current(itl_s=0.03, n_requests=30), finished=False),
            "1 of 2 targets are proven so far",
        ),
    ],
)
def test_a_running_study_says_what_decides_so_far(evidence: StudyEvidence, words: str) -> None:
    found = verdict_of(evidence)
    assert found.status == "no_verdict"
    assert found.sentence == f"No verdict yet: {words}" or words in found.sentence


def test_a_running_study_lists_what_is_known_and_what_is_not() -> None:
    waiting = make_trial(ordinal=3, role="variant", state="running", title="float32")
    found = verdict_of(
        make_evidence(make_current(n_requests=30, itl_s=0.06), waiting, finished=False)
    )
    assert any(line.startswith("The current settings miss ITL p95") for line in found.known)
    assert any("TTFT p95" in line and "needs 59 requests" in line for line in found.unknown)
    assert "float32: built for a test" in found.unknown
    assert found.lede == "1 of 2 trials are done. Now: float32."


def test_no_sentence_shouts_or_pleads() -> None:
    for evidence in (
        make_evidence(),
        make_evidence(make_current(), make_variant(), make_verification()),
        make_evidence(make_current(itl_s=0.2), spec=make_study_spec(targets=(ITL_P95,))),
    ):
        found = verdict_of(evidence)
        text = found.sentence + found.lede + found.verification_sentence
        assert "!" not in text
        assert "please" not in text.lower()
        assert found.sentence[0].isupper()
        assert not found.sentence.endswith(".")


# --- snippet -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        LocalModel(name='SmolLM2"; import os'),
        HubModel(id="HuggingFaceTB/SmolLM2-135M", revision="a" * 40),
        make_config_model(),
    ],
)
def test_the_snippet_is_python_and_a_name_stays_a_string(model) -> None:  # type: ignore[no-untyped-def]
    settings = EngineSettings(dtype="float32", attention="sdpa", threads=2, kv_cache=True)
    text = settings_snippet(settings, make_study_spec(model=model))
    tree = ast.parse(text)
    imported = [n for n in ast.walk(tree) if isinstance(n, ast.Import)]
    assert [alias.name for n in imported for alias in n.names] == ["torch"]
    for part in ("torch.float32", '"sdpa"', "set_num_threads(2)", "use_cache=True"):
        assert part in text


def test_the_snippet_leaves_out_what_the_engine_chooses() -> None:
    text = settings_snippet(EngineSettings(), make_study_spec())
    assert 'dtype="auto"' in text
    assert "attn_implementation" not in text
    assert "set_num_threads" not in text


def test_without_a_valid_baseline_of_today_no_change_is_recommended() -> None:
    invalid = make_trial(make_baseline_result(), validity=make_validity("invalid"))
    found = verdict_of(make_evidence(invalid, make_variant()))
    assert found.recommended is None
    assert found.lede.endswith("The current settings have no valid measurement to compare with.")


def test_settings_that_run_replace_settings_that_fail() -> None:
    found = verdict_of(make_evidence(make_trial(failure=make_failure()), make_variant()))
    assert found.recommended == FLOAT32
    assert found.sentence.startswith("Trial 3 meets both targets")
