"""Rules on how a server's model lies on its GPUs: copies, pipelines, experts."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.evidence import TrialEvidence
from advisor.rules.checks import (
    d001_model_needs_splitting,
    d002_tensor_parallel_heads,
    d005_link_too_slow,
    d006_split_beyond_need,
    d007_pipeline_starved,
    d008_expert_slices_misaligned,
    d009_experts_spread_slow,
)
from advisor.rules.checks._parallel import parallel_change
from advisor.rules.engine import evaluate
from advisor.rules.rule import Finding, Verdict
from gpuagent.wire import EngineSettings, LengthSpec, SlaTarget
from gpuagent.wire.settings import Engine
from tests.builders import (
    make_evidence,
    make_shape,
    make_study_spec,
    make_trial,
    make_validity,
    make_workload,
)
from tests.rule_checks import (
    GIB,
    LLAMA_8B,
    LLAMA_70B,
    LOOSE_RATE,
    QWEN3_30B,
    QWEN3_30B_FP8,
    TIGHT_ITL,
    assert_says_what_is_missing,
    make_busy,
    on_gpu,
    one,
    text_of,
)

MODULES = (
    d006_split_beyond_need,
    d007_pipeline_starved,
    d008_expert_slices_misaligned,
    d009_experts_spread_slow,
)
# More than any of these trials serve.
SHORT_RATE = SlaTarget(metric="output_tok_s", statistic="mean", limit=1e6)
B200 = on_gpu(name="NVIDIA B200", memory_bytes=180 * GIB, count=8)
H100 = on_gpu(count=8)


def trial(in_flight: int, settings: EngineSettings, **fields: Any) -> TrialEvidence:
    return make_trial(make_busy(in_flight), settings=settings, **fields)


def spec(settings: EngineSettings, *targets: SlaTarget, engine: Engine = "vllm") -> dict[str, Any]:
    workload = make_workload(input_tokens=LengthSpec(mean=1024), output_tokens=LengthSpec(mean=256))
    return {
        "spec": make_study_spec(engine=engine, current=settings, targets=targets, workload=workload)
    }


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.ID)
def test_without_its_evidence_a_rule_says_what_is_missing(module: Any) -> None:
    split = EngineSettings(tensor_parallel=4, pipeline_parallel=2, expert_parallel=True)
    assert_says_what_is_missing(one(module))
    assert_says_what_is_missing(one(module, shape=None, device=None, **spec(split)))
    # An engine in the agent's process has no such settings.
    assert_says_what_is_missing(one(module, trial(4, EngineSettings()), **H100))


# --- copies against a split ---------------------------------------------------------------------


def copies(
    in_flight: int, *targets: SlaTarget, tp: int = 8, device: Any = H100, **fields: Any
) -> Finding:
    now = EngineSettings(tensor_parallel=tp)
    fields = {"shape": make_shape(**LLAMA_8B), **device, **spec(now, *targets), **fields}
    return one(d006_split_beyond_need, trial(in_flight, now), **fields)


def test_a_split_that_serves_less_than_copies_by_prediction_is_to_be_tried_as_copies() -> None:
    finding = copies(96, SHORT_RATE)
    assert finding.verdict is Verdict.FAIL
    assert finding.change is not None
    assert finding.change.settings == {"tensor_parallel": 4, "data_parallel": 2}
    seen, predicted = finding.evidence
    assert seen.value == pytest.approx(96, rel=0.06)
    assert seen.n == 1920
    assert predicted.value is not None
    assert predicted.value > 1.1
    assert "Predicted at this load" in predicted.text
    effect = finding.effect
    assert effect is not None
    assert effect.basis == "modelled"
    assert (effect.low, effect.high) == (0.0, pytest.approx(2 * effect.change_frac))


def test_at_a_light_load_the_split_serves_as_much() -> None:
    assert copies(8, SHORT_RATE).verdict is Verdict.PASS
    # Two requests cannot keep two copies busy and be faster for it.
    assert copies(1, SHORT_RATE).verdict is Verdict.PASS


@pytest.mark.parametrize(("in_flight", "verdict"), [(64, Verdict.FAIL), (48, Verdict.CANNOT_TELL)])
def test_the_predicted_gain_must_reach_a_tenth(in_flight: int, verdict: Verdict) -> None:
    finding = copies(in_flight, SHORT_RATE)
    assert finding.verdict is verdict
    ratio = finding.evidence[-1].value
    assert ratio is not None
    assert 1.09 < ratio < 1.12
    assert (ratio >= 1.1) is (verdict is Verdict.FAIL)


def test_copies_are_only_told_where_the_targets_are_met_and_none_on_another_basis() -> None:
    told = copies(96, LOOSE_RATE)
    assert told.verdict is Verdict.INFORMATIVE
    assert told.change is None
    # The predictor has no measurement of this GPU, and the model fits no smaller group there.
    unknown = on_gpu(name="NVIDIA L4", memory_bytes=24 * GIB, count=8)
    assert_says_what_is_missing(copies(64, SHORT_RATE, device=unknown))
    held = copies(64, SHORT_RATE, tp=2, shape=make_shape(**LLAMA_70B))
    assert held.verdict is Verdict.PASS


def test_experts_are_shared_among_the_copies_of_vllm_so_servers_are_advised() -> None:
    now = EngineSettings(tensor_parallel=8)
    found = {}
    for engine in ("vllm", "sglang"):
        found[engine] = one(
            d006_split_beyond_need,
            trial(96, now),
            shape=make_shape(**QWEN3_30B),
            **B200,
            **spec(now, SHORT_RATE, engine=engine),
        )
    assert {f.verdict for f in found.values()} == {Verdict.FAIL}
    vllm, sglang = (found[engine].change for engine in ("vllm", "sglang"))
    assert vllm is not None
    assert sglang is not None
    assert vllm.settings == {}
    assert "servers of tensor parallel size" in vllm.text
    assert set(sglang.settings) == {"tensor_parallel", "data_parallel"}


def test_a_disturbed_trial_tells_nothing_about_copies() -> None:
    now = EngineSettings(tensor_parallel=8)
    disturbed = trial(96, now, validity=make_validity("invalid"))
    fields = {"shape": make_shape(**LLAMA_8B), **H100, **spec(now, SHORT_RATE)}
    assert_says_what_is_missing(one(d006_split_beyond_need, disturbed, **fields))


# --- pipelines ----------------------------------------------------------------------------------


def pipeline(
    in_flight: int, *targets: SlaTarget, stages: int = 4, dp: int | None = None, **fields: Any
) -> Finding:
    now = EngineSettings(pipeline_parallel=stages, data_parallel=dp)
    fields = {"shape": make_shape(**LLAMA_70B), **H100, **spec(now, *targets), **fields}
    return one(d007_pipeline_starved, trial(in_flight, now), **fields)


def test_fewer_requests_than_stages_fail_and_the_layers_are_to_be_split_within() -> None:
    finding = pipeline(2, TIGHT_ITL)
    assert finding.verdict is Verdict.FAIL
    idle = finding.evidence[0].value
    assert idle == pytest.approx(0.5, abs=0.03)
    assert finding.change is not None
    assert finding.change.settings == {"tensor_parallel": 4, "pipeline_parallel": 1}
    effect = finding.effect
    assert effect is not None
    assert effect.low is not None
    # Four GPUs read the weights four times as fast at best.
    assert -0.75 <= effect.low < -0.6
    assert effect.high == 0.0


@pytest.mark.parametrize(("in_flight", "verdict"), [(3, Verdict.FAIL), (5, Verdict.PASS)])
def test_one_request_for_each_stage_is_the_threshold(in_flight: int, verdict: Verdict) -> None:
    assert pipeline(in_flight, TIGHT_ITL).verdict is verdict
    # Each of two copies has a pipeline of its own.
    assert pipeline(5, TIGHT_ITL, dp=2).verdict is Verdict.FAIL


def test_an_idle_pipeline_is_told_within_the_targets() -> None:
    finding = pipeline(2, LOOSE_RATE)
    assert finding.verdict is Verdict.INFORMATIVE
    assert finding.change is None


@pytest.mark.parametrize(
    "fields",
    [
        {
            "shape": make_shape(
                **{**LLAMA_8B, "num_attention_heads": 30, "num_key_value_heads": 6, "head_dim": 128}
            )
        },
        on_gpu(name="NVIDIA L4", memory_bytes=24 * GIB, count=4),
        on_gpu(count=2),
        {"device": None},
    ],
    ids=["heads", "link", "gpus", "unknown"],
)
def test_where_layers_cannot_be_split_within_more_requests_are_advised(fields: Any) -> None:
    finding = pipeline(2, TIGHT_ITL, **fields)
    assert finding.verdict is Verdict.FAIL
    assert finding.title.startswith("Keep the pipeline full")
    assert finding.change is not None
    assert finding.change.settings == {}
    assert finding.effect is None


# --- experts ------------------------------------------------------------------------------------


def slices(settings: EngineSettings, *trials: TrialEvidence, **fields: Any) -> Finding:
    fields = {"shape": make_shape(**QWEN3_30B_FP8), **H100, **spec(settings), **fields}
    return one(d008_expert_slices_misaligned, *trials, **fields)


@pytest.mark.parametrize(
    ("tp", "verdict"), [(1, None), (2, Verdict.PASS), (3, Verdict.PASS), (4, Verdict.FAIL)]
)
def test_slices_of_an_expert_are_whole_blocks_of_128_columns(
    tp: int, verdict: Verdict | None
) -> None:
    finding = slices(EngineSettings(tensor_parallel=tp))
    if verdict is None:
        assert_says_what_is_missing(finding)
        return
    assert finding.verdict is verdict
    assert finding.evidence[0].value == 768 / tp


def test_slices_through_blocks_ask_for_whole_experts_and_name_sizes_that_work() -> None:
    finding = slices(EngineSettings(tensor_parallel=4))
    assert finding.change is not None
    assert finding.change.settings == {"expert_parallel": True}
    assert "slices of 192 columns" in finding.title
    assert "between blocks: 1, 2." in finding.summary
    # vLLM shares experts among the copies as well.
    shared = EngineSettings(tensor_parallel=2, data_parallel=4)
    assert slices(shared).verdict is Verdict.FAIL
    assert slices(shared, **spec(shared, engine="sglang")).verdict is Verdict.PASS


def test_whole_experts_another_format_and_an_engine_that_runs_do_not_fail() -> None:
    whole = EngineSettings(tensor_parallel=4, expert_parallel=True)
    assert slices(whole).verdict is Verdict.PASS
    cut = EngineSettings(tensor_parallel=4)
    assert slices(cut, shape=make_shape(**QWEN3_30B)).verdict is Verdict.PASS
    assert slices(cut, trial(8, cut)).verdict is Verdict.INFORMATIVE
    assert_says_what_is_missing(slices(cut, shape=make_shape(**LLAMA_8B)))


def test_the_size_that_the_model_needs_counts_where_none_is_set() -> None:
    # 30 GB of weights on cards of 16 GiB: two are too few, and four slice through the blocks.
    small = on_gpu(memory_bytes=16 * GIB, count=8)
    assert "over 4 GPUs" in text_of(slices(EngineSettings(), **small))
    assert slices(EngineSettings(), **small).verdict is Verdict.FAIL
    assert_says_what_is_missing(slices(EngineSettings()))


def spread(
    settings: EngineSettings, *targets: SlaTarget, shape: dict[str, Any] = QWEN3_30B
) -> Finding:
    fields = {"shape": make_shape(**shape), **H100, **spec(settings, *targets)}
    return one(d009_experts_spread_slow, trial(8, settings), **fields)


WHOLE = EngineSettings(tensor_parallel=4, expert_parallel=True)


def test_whole_experts_on_one_host_are_to_be_tried_as_slices() -> None:
    finding = spread(WHOLE, TIGHT_ITL)
    assert finding.verdict is Verdict.FAIL
    assert finding.confidence == "low"
    assert finding.change is not None
    assert finding.change.settings == {"expert_parallel": False}
    assert finding.effect is not None
    assert finding.effect.basis == "modelled"
    assert "32" in finding.source or "not of this study" in text_of(finding)
    assert spread(WHOLE, LOOSE_RATE).verdict is Verdict.INFORMATIVE


def test_whole_experts_stay_where_slices_could_not_be_loaded() -> None:
    assert spread(WHOLE, TIGHT_ITL, shape=QWEN3_30B_FP8).verdict is Verdict.PASS
    two = WHOLE.model_copy(update={"tensor_parallel": 2})
    assert spread(two, TIGHT_ITL, shape=QWEN3_30B_FP8).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    "change",
    [
        {"expert_parallel": None},
        {"tensor_parallel": None},
        {"data_parallel": 2},
        {"pipeline_parallel": 2},
    ],
)
def test_whole_experts_are_judged_on_one_host_alone(change: dict[str, Any]) -> None:
    assert_says_what_is_missing(spread(WHOLE.model_copy(update=change), TIGHT_ITL))


# --- together -----------------------------------------------------------------------------------


def test_rules_on_a_model_that_must_be_split_give_one_advice() -> None:
    """Slow links, heads that do not divide, too large: whatever holds, the degrees agree."""
    odd = {**LLAMA_70B, "num_attention_heads": 71, "num_key_value_heads": 1, "hidden_size": 4544}
    l4 = on_gpu(name="NVIDIA L4", memory_bytes=24 * GIB, count=8)
    for shape in (LLAMA_70B, odd, QWEN3_30B_FP8, LLAMA_8B):
        for device in (l4, H100):
            evidence = make_evidence(
                shape=make_shape(**shape), **device, **spec(EngineSettings(), SHORT_RATE)
            )
            said: dict[str, set[object]] = {}
            for finding in evaluate(evidence):
                assert not finding.title.startswith("Set aside"), finding.title
                if finding.verdict is Verdict.FAIL and finding.change is not None:
                    for knob, value in finding.change.settings.items():
                        said.setdefault(knob, set()).add(value)
            assert all(len(values) == 1 for values in said.values()), said


def test_two_data_sheets_do_not_condemn_a_fast_link() -> None:
    # Few active parameters and full stated arithmetic make any link look slow.
    fields = {"shape": make_shape(**QWEN3_30B_FP8), **spec(EngineSettings())}
    finding = one(d005_link_too_slow, **fields, **H100)
    assert finding.verdict is Verdict.CANNOT_TELL
    assert finding.change is None
    small = on_gpu(memory_bytes=16 * GIB, count=8)
    needed = one(d001_model_needs_splitting, **fields, **small)
    assert needed.change is not None
    assert needed.change.settings == {"tensor_parallel": 4}


def test_a_slow_link_asks_for_the_same_pipeline_in_every_rule() -> None:
    fields = {
        "shape": make_shape(**LLAMA_8B),
        **on_gpu(name="NVIDIA L4", memory_bytes=16 * GIB, count=8),
        **spec(EngineSettings(dtype="float32"), SHORT_RATE),
    }
    needs = one(d001_model_needs_splitting, **fields)
    link = one(d005_link_too_slow, **fields)
    assert needs.verdict is link.verdict is Verdict.FAIL
    assert needs.change is not None
    assert link.change is not None
    assert needs.change.settings == link.change.settings
    assert set(needs.change.settings) == {"pipeline_parallel"}
    assert "too slow to split within the layers" in needs.change.text
    assert one(d002_tensor_parallel_heads, **fields).verdict is not Verdict.FAIL


def test_only_knobs_that_differ_and_that_the_engine_has_are_set() -> None:
    now = EngineSettings(tensor_parallel=2)
    evidence = make_evidence(**spec(now))
    change = parallel_change(
        evidence, "Do.", tensor_parallel=2, data_parallel=4, pipeline_parallel=1
    )
    assert change.settings == {"data_parallel": 4}
    whole = parallel_change(evidence, "Do.", expert_parallel=True)
    assert whole.settings == {"expert_parallel": True}
    assert parallel_change(make_evidence(), "Do.", tensor_parallel=2).settings == {}
    with pytest.raises(ValueError, match="max_running"):
        parallel_change(evidence, "Do.", max_running=2)
