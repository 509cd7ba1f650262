"""No two failing findings of a study, and none and its recommendation, set one knob differently."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.evidence import DeviceFacts, StudyEvidence, TrialEvidence
from advisor.rules.engine import evaluate
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.verdict import study_verdict
from gpuagent.wire import EngineSettings, LengthSpec, SlaTarget
from gpuagent.wire.parallel import TensorParallelConfig
from gpuagent.wire.robustness import CHECKS
from gpuagent.wire.settings import SERVER_KNOBS
from gpuagent.wire.trial import BaselineResult
from tests.builders import (
    make_baseline_result,
    make_current,
    make_device,
    make_environment,
    make_evidence,
    make_failure,
    make_kv_trial,
    make_loaded,
    make_robustness,
    make_served,
    make_shape,
    make_study_spec,
    make_trial,
    make_validity,
    make_variant,
    make_workload,
)
from tests.inside_builders import (
    make_attention_result,
    make_batching_result,
    make_ceilings,
    make_kernels_result,
    make_quantisation_result,
    make_split_point,
    make_split_result,
)
from tests.rule_checks import (
    DEEPSEEK_V3,
    GIB,
    LLAMA_8B,
    LLAMA_70B,
    QWEN3_30B_FP8,
    TIGHT_ITL,
    TIGHT_RATE,
    aiming_at,
    make_busy,
    on_gpu,
)
from tests.served_builders import make_boundary

DTYPES = ("float32", "bfloat16", "float16")
SPEEDS = (0.02, 0.045, 0.06, 0.09)
SHAPES = (make_shape(), make_shape(**LLAMA_8B), None)
DEVICES: tuple[DeviceFacts, ...] = (
    make_device(),
    make_device(memory_bytes=GIB),
    make_device(ceilings=make_ceilings()),
    make_device("gpu"),
    make_device("gpu", name="Tesla T4", memory_bytes=16 * GIB, count=4),
    make_device("gpu", name="NVIDIA L4", memory_bytes=4 * GIB),
)
TARGETS = (
    SlaTarget(metric="ttft_s", statistic="p50", limit=0.1),
    SlaTarget(metric="itl_s", statistic="p50", limit=0.05),
    SlaTarget(metric="memory_bytes", statistic="peak", limit=2e9),
    SlaTarget(metric="output_tok_s", statistic="mean", limit=30),
)
DIAGNOSES = (
    make_attention_result(),
    make_quantisation_result(),
    make_kernels_result(),
    make_batching_result(),
    make_robustness(),
    make_robustness(died_after="overload", **dict.fromkeys(CHECKS, "fail")),
)
SERVED: tuple[dict[str, Any], ...] = (
    {"prefix_hit_frac": {"value": 0.0}, "spec_accepted_frac": {"value": 0.1}},
    {"counts": [{"what": "requests", "client": 12, "server": 15}]},
)


@cache
def baseline(
    dtype: str, attention: str, step_s: float, perplexity: float, peak_bytes: float
) -> BaselineResult:
    loaded = make_loaded(dtype, attention=attention, stored_weight_bytes=int(0.7 * peak_bytes))
    return make_baseline_result(
        dtype,
        ttft_s=2 * step_s,
        itl_s=step_s,
        perplexity=perplexity,
        peak_memory_bytes=peak_bytes,
        n_requests=12,
        loaded=loaded,
    )


@st.composite
def trials(draw: st.DrawFn) -> tuple[TrialEvidence, ...]:
    """The current settings, up to three variants, and diagnoses; some fail or are disturbed."""
    kept = draw(st.booleans())
    found: list[TrialEvidence] = []
    for ordinal in range(1, 2 + draw(st.integers(0, 3))):
        dtype = draw(st.sampled_from(DTYPES))
        attention = draw(st.sampled_from(("eager", "sdpa")))
        threads = draw(st.sampled_from((None, 1, 4)))
        chosen = EngineSettings.model_validate(
            {"dtype": dtype, "attention": attention, "threads": threads, "kv_cache": kept}
        )
        measured = baseline(
            dtype,
            attention,
            draw(st.sampled_from(SPEEDS)),
            draw(st.sampled_from((17.9, 18.0, 19.0))),
            draw(st.sampled_from((0.9e9, 3e9, 30e9))),
        )
        told = draw(st.sampled_from((None, *SERVED)))
        result = measured if told is None else make_served(measured, **told)
        ends: dict[str, Any] = draw(
            st.sampled_from(
                (
                    {"measurements": result},
                    {"measurements": result},
                    {"measurements": result},
                    {"measurements": result, "validity": make_validity("invalid")},
                    {"failure": make_failure()},
                )
            )
        )
        found.append(
            make_trial(
                **ends,
                ordinal=ordinal,
                role="current" if ordinal == 1 else "variant",
                settings=chosen,
                environment=make_environment(threads=threads or 2),
                workload=make_workload(shared_prefix_frac=0.0 if told is None else 0.5),
            )
        )
    if draw(st.booleans()):
        found.append(
            make_kv_trial(ordinal=8, uncached_s_per_token=draw(st.sampled_from((0.0, 0.01))))
        )
    for result in draw(st.lists(st.sampled_from(DIAGNOSES), max_size=2, unique_by=id)):
        found.append(make_trial(result, ordinal=len(found) + 10, role="diagnosis"))
    return tuple(found)


@st.composite
def studies(draw: st.DrawFn) -> StudyEvidence:
    measured = draw(trials())
    workload = make_workload(
        preset=draw(st.sampled_from(("chat", "batch"))),
        input_tokens=LengthSpec(mean=draw(st.sampled_from((64, 2000)))),
        request_rate_per_s=draw(st.sampled_from((None, 2.0))),
        requests=12,
    )
    spec = make_study_spec(
        targets=tuple(draw(st.lists(st.sampled_from(TARGETS), max_size=3, unique=True))),
        workload=workload,
        current=measured[0].settings,
    )
    return make_evidence(
        *measured,
        spec=spec,
        shape=draw(st.sampled_from(SHAPES)),
        device=draw(st.sampled_from(DEVICES)),
    )


def new_values(findings: list[Finding]) -> dict[str, set[object]]:
    """Knob -> every value that a failing finding sets it to."""
    values: dict[str, set[object]] = {}
    for finding in findings:
        if finding.verdict is Verdict.FAIL and finding.change is not None:
            for knob, value in finding.change.settings.items():
                values.setdefault(knob, set()).add(value)
    return values


@settings(max_examples=25, deadline=None, derandomize=True)
@given(evidence=studies())
def test_a_study_gives_every_knob_one_value(evidence: StudyEvidence) -> None:
    findings = evaluate(evidence)
    assert Verdict.ERROR not in {finding.verdict for finding in findings}
    values = new_values(findings)
    assert all(len(found) == 1 for found in values.values()), values
    for knob, (_, new) in study_verdict(evidence, findings).changes.items():
        assert values.get(knob, {new}) == {new}


# --- servers on several GPUs ---------------------------------------------------------------------

MANY_GPUS = (
    make_device("gpu", count=8, memory_bytes=141 * GIB, name="NVIDIA H200"),
    make_device("gpu", count=8, memory_bytes=16 * GIB),
    make_device("gpu", count=8, memory_bytes=16 * GIB, name="NVIDIA L4"),
    make_device("gpu", count=2, memory_bytes=24 * GIB, name="NVIDIA L4"),
)
MANY_SHAPES = (
    make_shape(**LLAMA_8B),
    make_shape(**LLAMA_70B),
    make_shape(**QWEN3_30B_FP8),
    make_shape(**DEEPSEEK_V3),
)


@st.composite
def served_studies(draw: st.DrawFn) -> StudyEvidence:
    """A server whose model lies on several GPUs in some way, measured or not."""
    degree = st.sampled_from((None, 1, 2, 4, 8))
    now = EngineSettings(
        tensor_parallel=draw(degree),
        pipeline_parallel=draw(degree),
        data_parallel=draw(st.sampled_from((None, 2))),
        expert_parallel=draw(st.sampled_from((None, True))),
    )
    boundary = make_boundary(draw(st.sampled_from((None, 2.0, 5.0))))
    result = make_busy(draw(st.sampled_from((1, 4, 32)))).model_copy(update={"boundary": boundary})
    ends: dict[str, Any] = draw(
        st.sampled_from(({"measurements": result}, {"failure": make_failure()}, {}))
    )
    return make_evidence(
        *((make_trial(**ends, settings=now),) if ends else ()),
        spec=make_study_spec(
            engine=draw(st.sampled_from(("vllm", "sglang"))),
            current=now,
            targets=tuple(draw(st.lists(st.sampled_from(TARGETS), max_size=2, unique=True))),
            day_req_s=draw(st.sampled_from((None, (2.0, 30.0, 10.0)))),
        ),
        shape=draw(st.sampled_from(MANY_SHAPES)),
        device=draw(st.sampled_from(MANY_GPUS)),
    )


@settings(max_examples=12, deadline=None, derandomize=True)
@given(evidence=served_studies())
def test_a_server_on_several_gpus_gets_one_placement(evidence: StudyEvidence) -> None:
    findings = evaluate(evidence)
    assert Verdict.ERROR not in {finding.verdict for finding in findings}
    values = new_values(findings)
    assert all(len(found) == 1 for found in values.values()), values
    # The rules agree by themselves.
    aside = {f.rule_id for f in findings if f.title.startswith("Set aside")}
    assert aside == set(), aside
    # What is advised can be said to the engine.
    assert set(values) <= set(SERVER_KNOBS) | {"dtype", "threads"}


def failing(evidence: StudyEvidence) -> dict[str, Finding]:
    return {f.rule_id: f for f in evaluate(evidence) if f.verdict is Verdict.FAIL}


def test_idle_gpus_get_copies_or_a_split_and_not_both() -> None:
    points = (make_split_point(1, 0.02), make_split_point(4, 0.011))
    measured = make_trial(
        make_split_result(points=points),
        ordinal=2,
        role="diagnosis",
        config=TensorParallelConfig(),
    )
    found = failing(
        make_evidence(
            make_current(loaded=make_loaded(device="cuda:0")),
            measured,
            **on_gpu(count=4),
            **aiming_at(TIGHT_ITL, TIGHT_RATE),
        )
    )
    assert {"gpus-idle", "split-unused"} & set(found) == {"gpus-idle"}


@pytest.mark.parametrize("tp", [2, 4])
@pytest.mark.parametrize("in_flight", [64, 256])
def test_servers_of_a_model_with_experts_are_counted_once_and_over_the_host(
    tp: int, in_flight: int
) -> None:
    now = EngineSettings(tensor_parallel=tp)
    workload = make_workload(input_tokens=LengthSpec(mean=1024), output_tokens=LengthSpec(mean=256))
    found = failing(
        make_evidence(
            make_trial(make_busy(in_flight), settings=now),
            spec=make_study_spec(
                engine="vllm",
                current=now,
                workload=workload,
                targets=(SlaTarget(metric="output_tok_s", statistic="mean", limit=1e6),),
            ),
            shape=make_shape(**QWEN3_30B_FP8),
            **on_gpu(name="NVIDIA H200", memory_bytes=141 * GIB, count=8),
        )
    )
    (advising_copies,) = {"gpus-idle", "split-beyond-need"} & set(found)
    if in_flight == 256 and tp == 4:
        assert advising_copies == "split-beyond-need"
    change = found[advising_copies].change
    assert change is not None
    size = int(change.text.split("tensor parallel size ")[1].split()[0])
    assert (size < tp) is (advising_copies == "split-beyond-need")
    assert change.text.startswith(f"Start {8 // size} servers ")


# --- what gives way ----------------------------------------------------------------------------


def advising(rule_id: str, gain: float, **changes: Any) -> Rule:
    """A rule that always advises `changes`."""

    def check(evidence: StudyEvidence) -> list[Finding]:
        return [
            Finding(
                rule_id=rule_id,
                verdict=Verdict.FAIL,
                title=f"Take {rule_id}",
                evidence=(EvidenceItem(text="seen"),),
                change=Change(text="Do so.", settings=changes),
                gain=gain,
            )
        ]

    return Rule(
        id=rule_id,
        code="x001",
        group="memory",
        title="",
        failing_title="",
        why="",
        how_measured="",
        threshold="",
        source="",
        when_not="",
        needs=(),
        knobs=tuple(changes),
        check=check,
    )


def test_the_change_that_closes_more_of_the_distance_stays_and_the_other_is_set_aside() -> None:
    rules = (
        advising("small", 0.1, dtype="bfloat16", threads=4),
        advising("large", 0.6, dtype="float32"),
        advising("other", 0.2, threads=8),
    )
    findings = evaluate(make_evidence(make_current()), rules)
    assert [f.rule_id for f in findings] == ["large", "other", "small"]
    aside = findings[-1]
    assert aside.verdict is Verdict.INFORMATIVE
    # Half of a change that was thought out as a whole is another change.
    assert aside.change is None
    assert "“Take large”, which sets dtype to float32" in aside.summary
    assert new_values(findings) == {"dtype": {"float32"}, "threads": {8}}


@pytest.mark.parametrize(("dtype", "verdict"), [("float32", "fail"), ("float16", "informative")])
def test_advice_against_the_measured_recommendation_is_set_aside(dtype: str, verdict: str) -> None:
    evidence = make_evidence(make_current(), make_variant())
    (finding,) = evaluate(evidence, (advising("any", 0.9, dtype=dtype),))
    assert finding.verdict == verdict
    if verdict == "informative":
        assert "the settings of trial 3, which set dtype to float32" in finding.summary


def test_changes_that_agree_both_stay() -> None:
    rules = (advising("one", 0.3, dtype="float32"), advising("two", 0.1, dtype="float32"))
    findings = evaluate(make_evidence(make_current()), rules)
    assert [f.verdict for f in findings] == [Verdict.FAIL, Verdict.FAIL]
