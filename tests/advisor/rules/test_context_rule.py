"""The rule on a server's context limit: fails, passes, threshold, runs, missing evidence."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.evidence import TrialEvidence
from advisor.rules.checks import m007_context_exceeds_memory
from advisor.rules.checks import m014_context_beyond_need as m014
from advisor.rules.rule import Finding, Verdict
from advisor.rules.support import predict
from gpuagent.wire import EngineSettings, LengthSpec
from gpuagent.wire.settings import Engine
from tests.builders import (
    make_evidence,
    make_failure,
    make_served,
    make_shape,
    make_study_spec,
    make_trial,
    make_validity,
    make_workload,
)
from tests.rule_checks import GIB, LLAMA_8B, assert_says_what_is_missing, on_gpu, one, text_of

L4 = on_gpu(name="NVIDIA L4", memory_bytes=24 * GIB)
MILLION = {**LLAMA_8B, "max_position_embeddings": 1_048_576}


def limited(
    *trials: TrialEvidence,
    to: int | None = None,
    prompt: int = 1984,
    engine: Engine = "vllm",
    shape: dict[str, Any] | None = MILLION,
    **fields: Any,
) -> Finding:
    """Requests of `prompt` and 64 tokens, with a limit of the setting or the model's own."""
    spec = make_study_spec(
        engine=engine,
        current=EngineSettings(max_context=to) if to else EngineSettings(),
        targets=(),
        workload=make_workload(
            input_tokens=LengthSpec(mean=prompt), output_tokens=LengthSpec(mean=64)
        ),
    )
    known = make_shape(**shape) if shape is not None else None
    return one(m014, *trials, **{"spec": spec, "shape": known, **L4, **fields})


def test_a_limit_that_fits_nowhere_and_that_nobody_asks_is_cut_to_the_workload() -> None:
    for trials in ((), (make_trial(failure=make_failure()),)):
        finding = limited(*trials)
        assert finding.verdict is Verdict.FAIL
        assert finding.change is not None
        assert finding.change.settings == {"max_context": 2048}
        asked, room = finding.evidence
        assert asked.value == 512
        assert room.value is not None
        assert 2048 < room.value < 1_048_576
        assert "(predicted)" in room.text


def test_the_advised_limit_passes_the_fit_of_the_engine() -> None:
    evidence = make_evidence(spec=make_study_spec(engine="vllm"), shape=make_shape(**MILLION), **L4)
    plan = predict(evidence, engine="vllm", context=2048)
    assert plan is not None
    assert plan.memory.fits


@pytest.mark.parametrize(("limit", "verdict"), [(4096, Verdict.PASS), (4097, Verdict.INFORMATIVE)])
def test_twice_the_longest_request_is_the_threshold(limit: int, verdict: Verdict) -> None:
    finding = limited(to=limit)
    assert finding.verdict is verdict
    assert finding.evidence[0].value == limit / 2048
    assert finding.change is None


def test_a_server_that_runs_with_its_limit_holds_no_memory_for_it() -> None:
    trial = make_trial(make_served(facts={"max_context": 100_000}), settings=EngineSettings())
    finding = limited(trial)
    assert finding.verdict is Verdict.INFORMATIVE
    assert "The server allows 100,000 tokens" in text_of(finding)
    assert "paged" in finding.summary
    disturbed = make_trial(
        make_served(facts={"max_context": 100_000}),
        settings=EngineSettings(),
        validity=make_validity("invalid"),
    )
    assert "The model allows" in text_of(limited(disturbed))


def test_without_a_server_a_limit_or_a_gpu_nothing_fails() -> None:
    assert_says_what_is_missing(limited(engine="transformers"))
    assert_says_what_is_missing(limited(shape=None))
    assert limited(shape=None, to=2048).verdict is Verdict.PASS
    assert limited(device=None).verdict is Verdict.INFORMATIVE
    unknown = on_gpu(name="Accelerator 9000")
    assert limited(**unknown).verdict is Verdict.INFORMATIVE


def test_requests_that_do_not_fit_themselves_are_the_other_rule_s() -> None:
    fields = {"prompt": 400_000}
    assert_says_what_is_missing(limited(**fields))
    spec = make_study_spec(workload=make_workload(input_tokens=LengthSpec(mean=400_000)))
    other = one(m007_context_exceeds_memory, spec=spec, shape=make_shape(**MILLION), **L4)
    assert other.verdict is Verdict.FAIL
