"""Rules on several GPUs: fails with evidence, passes, not applicable, at the threshold."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.rules.checks import (
    d001_model_needs_splitting,
    d002_tensor_parallel_heads,
    d003_gpus_idle,
    d004_latent_cache_replicated,
    d005_link_too_slow,
)
from advisor.rules.rule import Verdict
from advisor.rules.support import predict
from gpuagent.wire import EngineSettings, LengthSpec, SimulatedModel, SlaTarget
from gpuagent.wire.ceilings import Ceiling, Ceilings
from tests.builders import (
    make_baseline_result,
    make_current,
    make_evidence,
    make_loaded,
    make_served,
    make_shape,
    make_study_spec,
    make_trial,
    make_workload,
)
from tests.inside_builders import make_ceiling, make_ceilings
from tests.rule_checks import (
    DEEPSEEK_V3,
    GIB,
    LLAMA_8B,
    LLAMA_70B,
    LOOSE_RATE,
    TIGHT_ITL,
    TIGHT_RATE,
    TIGHT_TTFT,
    aiming_at,
    assert_says_what_is_missing,
    invalid,
    on_gpu,
    one,
    text_of,
    through_engine,
)

FLOAT32 = {"spec": make_study_spec(current=EngineSettings(dtype="float32"))}
# Weights of 30 GiB in float32 on cards of 24 GB: two of them hold the model.
TOO_LARGE: dict[str, Any] = {"shape": make_shape(**LLAMA_8B), **FLOAT32}
L4 = {"name": "NVIDIA L4", "memory_bytes": 24 * GIB}


@pytest.mark.parametrize(
    "module",
    [
        d001_model_needs_splitting,
        d002_tensor_parallel_heads,
        d003_gpus_idle,
        d004_latent_cache_replicated,
        d005_link_too_slow,
    ],
    ids=lambda module: module.ID,
)
def test_without_its_evidence_a_rule_says_what_is_missing(module: Any) -> None:
    assert_says_what_is_missing(one(module, shape=None, device=None))
    assert_says_what_is_missing(one(module, make_current()))


@pytest.mark.parametrize(
    "module",
    [
        d002_tensor_parallel_heads,
        d003_gpus_idle,
        d004_latent_cache_replicated,
        d005_link_too_slow,
    ],
    ids=lambda module: module.ID,
)
def test_one_gpu_has_nothing_to_divide(module: Any) -> None:
    assert_says_what_is_missing(one(module, make_current(), **on_gpu()))


# --- splitting ---------------------------------------------------------------------------------


def test_a_model_too_large_for_one_gpu_is_split_over_the_fewest_that_hold_it() -> None:
    finding = one(d001_model_needs_splitting, **TOO_LARGE, **on_gpu(count=4, **L4))
    assert finding.verdict is Verdict.FAIL
    assert finding.title.startswith("Split the model over 2 GPUs")
    need, each = (item.value for item in finding.evidence)
    assert need is not None
    assert each is not None
    assert each < 24 * GIB < need


def test_a_host_with_too_few_gpus_and_a_model_for_no_node_say_so() -> None:
    few = one(d001_model_needs_splitting, **TOO_LARGE, **on_gpu(**L4))
    assert few.title.startswith("Use 2 GPUs")
    assert "the host has 1" in few.title
    never = one(
        d001_model_needs_splitting, shape=make_shape(**DEEPSEEK_V3), **on_gpu(count=8, **L4)
    )
    assert never.verdict is Verdict.FAIL
    assert never.title.startswith("Use a larger GPU")


def test_a_model_for_several_hosts_is_split_within_each_and_by_layers_between_them() -> None:
    large = {**LLAMA_70B, "hidden_size": 16384, "intermediate_size": 53248}
    large |= {"num_hidden_layers": 126, "num_attention_heads": 128}
    finding = one(d001_model_needs_splitting, shape=make_shape(**large), **on_gpu(count=8))
    assert finding.verdict is Verdict.FAIL
    assert finding.title.startswith("Use 2 hosts of 8 GPUs")
    assert "tensor parallel size 8 and pipeline parallel size 2" in text_of(finding)
    assert finding.change is not None
    assert finding.change.settings == {}


def test_the_memory_of_the_driver_is_the_threshold() -> None:
    shape = {"shape": make_shape(**LLAMA_8B)}
    found = predict(make_evidence(**shape, **on_gpu(**L4)), context=80)
    assert found is not None
    plan = found.memory
    # An engine can be told to fill 0.97 of the device at most; its runtime lies outside of that.
    need = max(plan.total, (plan.total - plan.runtime.value) / 0.97)
    for factor, verdict in ((1.001, Verdict.PASS), (0.999, Verdict.FAIL)):
        device = on_gpu(name="NVIDIA L4", memory_bytes=round(need * factor))
        assert one(d001_model_needs_splitting, **shape, **device).verdict is verdict


def test_a_model_that_ran_on_one_gpu_needs_no_splitting() -> None:
    gpu = on_gpu(count=4, **L4)
    ran = one(d001_model_needs_splitting, make_current(), **TOO_LARGE, **gpu)
    assert ran.verdict is Verdict.INFORMATIVE
    assert ran.change is None
    assert one(d001_model_needs_splitting, invalid(), **TOO_LARGE, **gpu).verdict is Verdict.FAIL


# --- heads -------------------------------------------------------------------------------------


def heads(query: int, kv: int, **overrides: Any) -> dict[str, Any]:
    config = {"num_attention_heads": query, "num_key_value_heads": kv, "hidden_size": 64 * query}
    return {"shape": make_shape(**{**config, **overrides})}


def test_a_size_that_does_not_divide_the_heads_names_those_that_do() -> None:
    finding = one(d002_tensor_parallel_heads, **heads(28, 4), **on_gpu(count=8))
    assert finding.verdict is Verdict.INFORMATIVE
    assert finding.title.startswith("Use tensor parallel size 1, 2 or 4:")
    assert finding.change is not None
    assert "over 4 GPUs at most" in finding.change.text


def test_it_fails_where_the_model_must_be_split() -> None:
    shape = heads(28, 4, num_hidden_layers=200, head_dim=128, hidden_size=8192)
    finding = one(d002_tensor_parallel_heads, **shape, **on_gpu(count=8, **L4))
    assert finding.verdict is Verdict.FAIL
    # One GPU is no answer for a model that does not fit it.
    assert finding.title.startswith("Use tensor parallel size 2 or 4:")


def test_without_any_size_that_divides_the_heads_layers_are_split() -> None:
    shape = heads(71, 1, num_hidden_layers=200, hidden_size=4544)
    needed = one(d002_tensor_parallel_heads, **shape, **on_gpu(count=8, **L4))
    assert needed.verdict is Verdict.FAIL
    assert needed.title.startswith("Split by layers")
    # Two stages hold it: the advice is that of the rule on splitting.
    assert "pipeline parallel size 2" in text_of(needed)
    split = one(d001_model_needs_splitting, **shape, **on_gpu(count=8, **L4))
    assert "pipeline parallel size 2" in text_of(split)
    small = one(d002_tensor_parallel_heads, **heads(71, 1), **on_gpu(count=8))
    assert small.title.startswith("Use tensor parallel size 1:")
    assert "one replica per GPU" in text_of(small)


@pytest.mark.parametrize(
    ("query", "kv", "count", "verdict"),
    [
        (32, 8, 8, Verdict.PASS),
        (32, 8, 16, Verdict.PASS),  # beyond the K/V heads they are replicated
        (40, 10, 8, Verdict.INFORMATIVE),
        (40, 10, 5, Verdict.PASS),
        (52, 52, 3, Verdict.INFORMATIVE),
    ],
)
def test_both_kinds_of_heads_must_divide(query: int, kv: int, count: int, verdict: Verdict) -> None:
    finding = one(d002_tensor_parallel_heads, **heads(query, kv), **on_gpu(count=count))
    assert finding.verdict is verdict


# --- idle GPUs ---------------------------------------------------------------------------------

ON_FIRST = make_loaded(device="cuda:0")


def test_idle_gpus_fail_where_throughput_is_short() -> None:
    finding = one(
        d003_gpus_idle, make_current(loaded=ON_FIRST), **on_gpu(count=4), **aiming_at(TIGHT_RATE)
    )
    assert finding.verdict is Verdict.FAIL
    assert "3 of 4 GPUs are idle" in finding.title
    assert finding.effect is not None
    assert (finding.effect.low, finding.effect.high) == (0.0, 3.0)
    assert 0 < finding.gain <= 1


@pytest.mark.parametrize(
    ("targets", "rate", "verdict"),
    [
        ((), None, Verdict.FAIL),
        ((LOOSE_RATE,), None, Verdict.INFORMATIVE),
        (
            (TIGHT_TTFT,),
            None,
            Verdict.INFORMATIVE,
        ),  # one request after the other: copies do not help
        ((TIGHT_TTFT,), 4.0, Verdict.FAIL),
        ((TIGHT_ITL,), 4.0, Verdict.INFORMATIVE),
    ],
)
def test_copies_help_load_and_not_a_single_stream(
    targets: tuple[SlaTarget, ...], rate: float | None, verdict: Verdict
) -> None:
    arrivals = "poisson" if rate else "closed_loop"
    trial = make_current(loaded=ON_FIRST, arrivals=arrivals)
    fields = aiming_at(*targets, request_rate_per_s=rate)
    assert one(d003_gpus_idle, trial, **on_gpu(count=2), **fields).verdict is verdict


def test_a_model_spread_over_all_gpus_passes_and_an_invalid_trial_tells_nothing() -> None:
    trial = make_current(loaded=make_loaded(device="cuda"))
    assert one(d003_gpus_idle, trial, **on_gpu(count=2)).verdict is Verdict.PASS
    assert_says_what_is_missing(one(d003_gpus_idle, invalid(loaded=ON_FIRST), **on_gpu(count=2)))


@pytest.mark.parametrize(
    ("degrees", "verdict", "copies"),
    [
        ({}, Verdict.FAIL, 8),
        ({"tensor_parallel": 2}, Verdict.FAIL, 4),
        ({"tensor_parallel": 2, "data_parallel": 2}, Verdict.FAIL, 4),
        ({"tensor_parallel": 8}, Verdict.PASS, None),
        ({"pipeline_parallel": 2, "data_parallel": 4}, Verdict.PASS, None),
        ({"tensor_parallel": 5}, Verdict.INFORMATIVE, None),  # three are too few for another
    ],
)
def test_a_server_uses_the_gpus_that_its_degrees_take(
    degrees: dict[str, int], verdict: Verdict, copies: int | None
) -> None:
    now = EngineSettings(**degrees)
    spec = make_study_spec(engine="vllm", current=now, targets=(TIGHT_RATE,))
    # Its device is always the first one by name.
    trial = make_trial(make_served(make_baseline_result(loaded=ON_FIRST)), settings=now)
    finding = one(d003_gpus_idle, trial, spec=spec, **on_gpu(count=8))
    assert finding.verdict is verdict
    if copies is None:
        assert finding.change is None
    else:
        assert finding.change is not None
        assert finding.change.settings == {"data_parallel": copies}


def test_gpus_of_the_host_are_not_those_of_a_simulation() -> None:
    spec = make_study_spec(engine="simulated", model=SimulatedModel(name="qwen3-32b-2xh100"))
    evidence = make_evidence(make_current(), spec=spec, shape=None, **on_gpu(count=8))
    assert_says_what_is_missing(through_engine("gpus-idle", evidence))


# --- latent cache ------------------------------------------------------------------------------


def test_a_latent_cache_is_as_large_on_each_of_eight_gpus_as_on_one() -> None:
    finding = one(d004_latent_cache_replicated, shape=make_shape(**DEEPSEEK_V3), **on_gpu(count=8))
    assert finding.verdict is Verdict.INFORMATIVE
    # 61 layers × 576 × 2 bytes, whatever the number of GPUs.
    assert finding.evidence[0].value == 70_272
    assert finding.change is not None
    assert "attention data parallel" in finding.change.text


def test_a_cache_that_splits_by_heads_passes() -> None:
    finding = one(d004_latent_cache_replicated, shape=make_shape(**LLAMA_8B), **on_gpu(count=8))
    assert finding.verdict is Verdict.PASS
    unknown = on_gpu(count=8, name="Accelerator 9000")
    assert_says_what_is_missing(
        one(d004_latent_cache_replicated, shape=make_shape(**DEEPSEEK_V3), **unknown)
    )


# --- links -------------------------------------------------------------------------------------


def linked(rate_bytes_s: float) -> Ceilings:
    plain = make_ceilings()
    entry: Ceiling = make_ceiling("all_reduce", rate_bytes_s)
    return plain.model_copy(update={"entries": (*plain.entries, entry)})


def long_prompt(**fields: Any) -> dict[str, Any]:
    spec = make_study_spec(workload=make_workload(input_tokens=LengthSpec(mean=4000)))
    return {"spec": spec, "shape": make_shape(**LLAMA_70B), **fields}


def test_a_slow_link_fails_where_the_model_must_be_split() -> None:
    gpus = on_gpu(count=4, ceilings=linked(1e9))
    finding = one(d005_link_too_slow, **long_prompt(), **gpus)
    assert finding.verdict is Verdict.FAIL
    assert "calibrated all-reduce" in text_of(finding)
    assert finding.confidence == "medium"
    small = one(d005_link_too_slow, **long_prompt(shape=make_shape(**LLAMA_8B)), **gpus)
    assert small.verdict is Verdict.INFORMATIVE
    ran = one(d005_link_too_slow, make_current(), **long_prompt(), **gpus)
    assert ran.verdict is Verdict.INFORMATIVE


def test_the_data_sheet_is_a_guess_of_low_confidence() -> None:
    fast = one(d005_link_too_slow, **long_prompt(), **on_gpu(count=4))
    assert fast.verdict is Verdict.PASS
    pcie = one(d005_link_too_slow, **long_prompt(), **on_gpu(count=8, **L4))
    assert pcie.verdict is Verdict.FAIL
    assert pcie.confidence == "low"


def test_the_link_may_take_three_tenths_of_prefill() -> None:
    shares = {}
    for rate in (1e9, 1e13):
        finding = one(d005_link_too_slow, **long_prompt(), **on_gpu(count=4, ceilings=linked(rate)))
        shares[rate] = finding.evidence[0].value
    slow = shares[1e9]
    assert slow is not None
    # share = c / (c + busy) with c ∝ 1 / rate: solve for the rate of 0.3.
    busy = (1 - slow) / slow
    limit = 1e9 * (1 - 0.3) / 0.3 / busy
    for factor, verdict in ((1.01, Verdict.PASS), (0.99, Verdict.FAIL)):
        gpus = on_gpu(count=4, ceilings=linked(limit * factor))
        assert one(d005_link_too_slow, **long_prompt(), **gpus).verdict is verdict


def test_without_a_pipeline_that_holds_the_model_none_is_advised() -> None:
    wide = {**LLAMA_70B, "hidden_size": 16_384, "intermediate_size": 131_072}
    wide |= {"num_hidden_layers": 1, "num_attention_heads": 128, "num_key_value_heads": 8}
    gpus = on_gpu(count=8, ceilings=linked(1e8), **L4)
    fields = long_prompt(shape=make_shape(**wide), **gpus)
    within = one(d001_model_needs_splitting, **fields)
    assert within.change is not None
    assert set(within.change.settings) <= {"tensor_parallel"}
    finding = one(d005_link_too_slow, **fields)
    assert finding.verdict is Verdict.FAIL
    assert finding.change is not None
    assert finding.change.settings == {}
    assert "pipeline parallel size" not in text_of(finding)
